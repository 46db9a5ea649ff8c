package main

import (
	"agentgw/directory/match/train/contrast"
	"agentgw/directory/match/train/glove"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	dir := flag.String("data", "", "folder of the public sets")
	vectors := flag.String("vectors", "", "")
	out := flag.String("out", "", "")
	leave := flag.String("without", "", "")
	seed := flag.Uint64("seed", 0, "")
	flag.Parse()
	t := time.Now()
	f, err := os.Open(*vectors)
	if err != nil {
		panic(err)
	}
	w, err := glove.Read(f)
	if err != nil {
		panic(err)
	}
	fmt.Println("read", time.Since(t))
	t = time.Now()
	w.Normalise()
	fmt.Println("normalise", time.Since(t))
	t = time.Now()
	m, err := contrast.Read(*dir, *leave)
	if err != nil {
		panic(err)
	}
	fmt.Println("material", m.Pairs(), time.Since(t))
	t = time.Now()
	r, err := contrast.Train(w, m, *seed)
	if err != nil {
		panic(err)
	}
	fmt.Println("trained", r.Stems, r.Learned, r.Losses, time.Since(t))
	os.WriteFile(*out, r.File, 0o644)
}

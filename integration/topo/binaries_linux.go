package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build makes the binaries of some packages of the module into the folder dir, with the flags of the environment: what `go
// test` or make has built already is not built again.
//
// It looks at every file of the module: `go test` keeps results of tests whose files have not changed, and would not know
// that a test which runs binaries depends on their sources.
func Build(dir string, packages ...string) error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && (d.Name()[0] == '.' || d.Name() == "bin" || d.Name() == "out" || d.Name() == "lab") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the sources: %w", err)
	}
	cmd := exec.Command("go", append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("build %s: %w", strings.Join(packages, " "), err), errors.New(string(out)))
	}
	return nil
}

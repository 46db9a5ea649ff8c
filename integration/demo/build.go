package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// programs are what the demo builds and runs.
var programs = []string{"./gatewayd", "./agentd", "./integration/demo/agents"}

// moduleRoot is the folder of the module that the demo belongs to.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "", "go", "env", "GOMOD")
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	file := strings.TrimSpace(string(out))
	mod, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(mod), "module agentgw\n") {
		return "", errors.New("this is not the agentgw module: run `go run ./integration/demo` in its top folder")
	}
	return filepath.Dir(file), nil
}

// build makes the binaries into bin.
func build(ctx context.Context, bin string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	args := append([]string{"build", "-o", bin + string(filepath.Separator)}, programs...)
	if _, err := run(ctx, "", root, "go", args...); err != nil {
		return fmt.Errorf("build the binaries: %w", err)
	}
	return nil
}

package app

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// resolved is the enrolment with a program that can be started from anywhere: it runs in agents.d, and its user means the folder that the
// verb was called in.
func (o EnrolOptions) resolved() (EnrolOptions, error) {
	if o.Program == "" {
		if len(o.Args) > 0 {
			return o, errors.New("--stdio-arg is for the program of --stdio, which is missing")
		}
		return o, nil
	}
	found, err := exec.LookPath(o.Program)
	if err == nil {
		o.Program, err = filepath.Abs(found)
	}
	if err != nil {
		return o, fmt.Errorf("--stdio: %w", err)
	}
	o.Args = slices.Clone(o.Args)
	for i, arg := range o.Args {
		if o.Args[i], err = argument(arg); err != nil {
			return o, err
		}
	}
	return o, nil
}

// argument is one of the program as it means the same in any folder: the absolute path where it names a file from here.
func argument(arg string) (string, error) {
	if filepath.IsAbs(arg) {
		return arg, nil
	}
	if s, err := os.Stat(arg); err == nil && s.Mode().IsRegular() {
		return filepath.Abs(arg)
	}
	if arg == "." || arg == ".." || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") {
		return "", fmt.Errorf("--stdio-arg %s is a relative path and names no file from here, and the program runs in agents.d: give an absolute path", arg)
	}
	return arg, nil
}

// command is what the program is started with, empty where none was named.
func (o EnrolOptions) command() []string {
	if o.Program == "" {
		return nil
	}
	return append([]string{o.Program}, o.Args...)
}

// Command run is the make targets that count: it runs tests, reads what they report, and ends with one summary line.
//
//	run cases -n N            rows of the table of failure cases whose tests (TestCaseNN…) pass
//	run fuzz -time 10s        every fuzz target in turn
//	run netns -known N        the scenarios in network namespaces
//	run ci                    all that must pass before main moves
//
// It fails on a failure, on less than was asked for, and with CI_ROOT=1 on a skip of what needs root.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	n := flags.Int("n", 0, "rows that must pass")
	known := flags.Int("known", 0, "scenarios that must run where CI_ROOT=1")
	fuzzTime := flags.Duration("time", 10*time.Second, "for each fuzz target")
	flags.Parse(os.Args[2:])
	var err error
	switch os.Args[1] {
	case "cases":
		err = cases(*n)
	case "fuzz":
		err = fuzz(*fuzzTime)
	case "netns":
		err = netns(*known)
	case "ci":
		err = ci()
	default:
		usage()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: run cases|fuzz|netns|ci [flags]")
	os.Exit(2)
}

// rootPromised says that the environment promises root, so that a skip for the lack of it is a failure.
func rootPromised() bool { return os.Getenv("CI_ROOT") == "1" }

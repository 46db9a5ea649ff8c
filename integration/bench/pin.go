package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// pin moves every thread of this process to one core, the last one that it may use; what it starts from now on inherits that.
// Two ends on one core differ by ±3 % from run to run, on two idle cores every wake-up is an interrupt of its own.
func pin() (mode string, err error) {
	var one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return "", fmt.Errorf("read the cores of this process: %w", err)
	}
	core := 0
	for i := range len(allowed) * 64 {
		if allowed.IsSet(i) {
			core = i
		}
	}
	one.Set(core)
	runtime.GOMAXPROCS(1) // as the children have it, which start on one core
	return "1 core", move(os.Getpid(), &one)
}

// allowed are the cores that this process began with.
var allowed unix.CPUSet

// spread moves this process and its children to all cores again, for what many do at once. The children's runtimes notice within a
// second or two.
func spread(children []int) (mode string, err error) {
	for _, pid := range append(children, os.Getpid()) {
		if err := move(pid, &allowed); err != nil {
			return "", err
		}
	}
	runtime.SetDefaultGOMAXPROCS()
	time.Sleep(noticed)
	return fmt.Sprintf("%d cores", allowed.Count()), nil
}

const noticed = 3 * time.Second

// move moves every thread of a process.
func move(pid int, to *unix.CPUSet) error {
	for range 2 { // a thread that was born during the first pass has the mask of its parent after the second
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			if err := unix.SchedSetaffinity(id, to); err != nil && err != unix.ESRCH {
				return fmt.Errorf("move thread %d of process %d: %w", id, pid, err)
			}
		}
	}
	return nil
}

// Package topo puts nodes into network namespaces of one Linux machine and joins them with veth links and bridges, so that
// the daemons meet a kernel's network: addresses of their own, links that go silent, processes that die.
//
// A [Namespace] is an OS thread: namespaces belong to threads while goroutines move, so a goroutine that is locked to its
// thread makes the namespace, starts the node's processes in it, and takes the namespace along when it ends. Namespaces have
// no name in the file system and processes die with the thread that started them: whatever happens to the test, nothing is
// left behind. The bridges live in a namespace of their own, [Wires]; the machine's own interfaces are never touched. Addresses
// are of 10.0.0.0/8 and exist inside the namespaces only; two topologies may use the same ones at the same time.
//
// All of it needs root. Its tests, TestScenario…, run the built binaries; they run within `go test ./...` too where that is
// root's, side by side, in less than a minute (with -short without the part that waits for hold timers). Without root they
// skip with the reason; where CI_ROOT=1 promises root the same is a failure.
//
// A [Namespace], [Wires], [Net] and [Process] are safe for concurrent use; Close is idempotent. Byte counts are bytes on the
// wire, limits are durations. Errors wrap the kernel's and name the namespace, link or program.
package topo

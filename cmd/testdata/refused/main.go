// Command refused stands in jail-init's place and, once it is confined, asks for what no jail allows. It stands for an engine that was broken out of.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/runners"
)

func main() {
	if len(os.Args) == 1 {
		fmt.Fprintln(os.Stderr, guest.Enter(os.Environ()))
		os.Exit(125)
	}
	conn, err := guest.Confine()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	var order runners.Order
	files, err := conn.Receive(&order)
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	for range 3 {
		unix.Syscall6(unix.SYS_MOUNT, 0, 0, 0, 0, 0, 0)
	}
	unix.Syscall(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	// What it says itself is not taken for what the kernel told.
	denied := []runners.Denial{{Layer: "seccomp", What: "nothing", Rule: "made up", Count: 1}}
	if err := conn.Send(runners.Answer{Report: &runners.Report{Denied: denied}}); err != nil {
		os.Exit(125)
	}
}

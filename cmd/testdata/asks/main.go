// Command asks is a program of the host that asks for what no jail allows:
//
//	asks          a mount three times, two sockets, a file out of sight, one that it may only read
//	asks flood N  a mount N times, and N sockets of all kinds
//
// It ends with 1 if anything of it was given.
package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func main() {
	given := 0
	mount := func() {
		if _, _, errno := unix.Syscall6(unix.SYS_MOUNT, 0, 0, 0, 0, 0, 0); errno != unix.EPERM {
			given++
		}
	}
	socket := func(family, kind, protocol uintptr) {
		if _, _, errno := unix.Syscall(unix.SYS_SOCKET, family, kind, protocol); errno != unix.EPERM {
			given++
		}
	}
	if len(os.Args) == 3 {
		n, err := strconv.Atoi(os.Args[2])
		if err != nil {
			os.Exit(2)
		}
		for i := range uintptr(n) {
			mount()
			socket(40+i%20, 1+i%5, i%7)
		}
	} else {
		for range 3 {
			mount()
		}
		socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
		socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		for name, flags := range map[string]int{"/etc/shadow": os.O_RDONLY, "/usr/new": os.O_RDWR | os.O_CREATE} {
			f, err := os.OpenFile(name, flags, 0o600)
			fmt.Println(err)
			if err == nil {
				f.Close()
				given++
			}
		}
	}
	os.Exit(min(given, 1))
}

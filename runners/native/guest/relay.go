package guest

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Proxy opens streams to the fetch proxy.
type Proxy interface{ Open() (*os.File, error) }

// backlog is the maximum number of connections that wait for accept.
const backlog = 128

// Host serves the connections of an agent's program.
type Host interface{ Take(client *os.File) }

// relay listens at at, on the jail's loopback, and connects each client to a stream of its own to
// the fetch proxy, which speaks HTTP.
func relay(at netip.AddrPort, proxy Proxy) error {
	err := listen(at, func(client *os.File) {
		go func() {
			defer client.Close()
			stream, err := proxy.Open()
			if err != nil {
				// The client sees the end.
				return
			}
			defer stream.Close()
			carryBoth(client, stream)
		}()
	})
	if err != nil {
		return fmt.Errorf("relay to the fetch proxy at %s: %w", at, err)
	}
	return nil
}

// listen listens at at, on the jail's loopback, and calls take with each connection.
func listen(at netip.AddrPort, take func(client *os.File)) error {
	// Not by the package net, which asks the kernel for things that no jail has.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err = syscall.Bind(fd,
		&syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err == nil {
		err = syscall.Listen(fd, backlog)
	}
	if err != nil {
		syscall.Close(fd)
		return err
	}
	go accept(fd, take)
	return nil
}

// accept calls take with each connection. It never returns.
func accept(fd int, take func(client *os.File)) {
	for {
		conn, _, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		if err != nil {
			// No descriptor is free, or the client has gone again.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		take(os.NewFile(uintptr(conn), "client"))
	}
}

func carryBoth(a, b *os.File) {
	var both sync.WaitGroup
	for _, way := range [][2]*os.File{{a, b}, {b, a}} {
		both.Go(func() {
			// The structs hide the file types, for which io.Copy would use system calls that the
			// filter refuses.
			_, err := io.Copy(struct{ io.Writer }{way[1]}, struct{ io.Reader }{way[0]})
			if err != nil || sys.CloseWrite(way[1]) != nil {
				a.Close()
				b.Close()
			}
		})
	}
	both.Wait()
}

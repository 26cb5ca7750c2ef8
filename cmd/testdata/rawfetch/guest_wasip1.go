package main

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
)

var listener = sync.OnceValues(func() (net.Listener, error) {
	fd, err := strconv.Atoi(os.Getenv("JAIL_FETCH_FD"))
	if err != nil {
		return nil, errors.New("there is no fetch proxy")
	}
	return net.FileListener(os.NewFile(uintptr(fd), "fetch"))
})

func dial() (net.Conn, error) {
	l, err := listener()
	if err != nil {
		return nil, err
	}
	return l.Accept()
}

func tunnel(net.Conn, string) (*tls.Conn, error) {
	return nil, errors.New("no tunnel of a guest is opened")
}

//go:wasmimport jail_fetch_v1 open
func fetchOpen(method, url, headers string, length int64, ms uint32, handle *uint32) uint32

//go:wasmimport jail_fetch_v1 write
func fetchWrite(handle uint32, data string) uint32

//go:wasmimport jail_fetch_v1 status
func fetchStatus(handle uint32, status *uint32) uint32

//go:wasmimport jail_fetch_v1 head
func fetchHead(handle uint32, to *byte, size uint32, total *uint32) uint32

//go:wasmimport jail_fetch_v1 read
func fetchRead(handle uint32, to *byte, size uint32, got *uint32) uint32

//go:wasmimport jail_fetch_v1 close
func fetchClose(handle uint32) uint32

//go:wasmimport jail_fetch_v1 error
func fetchError(to *byte, size uint32, total *uint32) uint32

// call makes one request by the host functions, and returns its answer, or the words and the number of the error.
func call(s say) (string, int) {
	var handle, status, n uint32
	if e := fetchOpen(s.Method, s.URL, s.Headers, s.Length, 0, &handle); e != 0 {
		return words(), int(e)
	}
	defer fetchClose(handle)
	if len(s.Body) > 0 {
		if e := fetchWrite(handle, string(s.Body)); e != 0 && e != 64 {
			return words(), int(e)
		}
	}
	if e := fetchStatus(handle, &status); e != 0 {
		return words(), int(e)
	}
	buf := make([]byte, shown)
	if e := fetchHead(handle, &buf[0], shown, &n); e != 0 {
		return words(), int(e)
	}
	text := string(buf[:min(n, shown)])
	for {
		if e := fetchRead(handle, &buf[0], shown, &n); e != 0 {
			return words(), int(e)
		}
		if n == 0 {
			return text[:min(len(text), shown)], 0
		}
		text += string(buf[:n])
	}
}

func words() string {
	var n uint32
	buf := make([]byte, shown)
	if fetchError(&buf[0], shown, &n) != 0 {
		return "no words"
	}
	return string(buf[:min(n, shown)])
}

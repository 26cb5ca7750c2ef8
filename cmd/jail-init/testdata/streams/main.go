// Command streams is a guest that takes a stream to the fetch proxy, says something, ends its half
// and reads the answer.
package main

import (
	"os"
	"strconv"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 sock_accept
func sockAccept(fd, flags uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 sock_shutdown
func sockShutdown(fd, how uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_write
func fdWrite(fd uint32, iovs unsafe.Pointer, n uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_read
func fdRead(fd uint32, iovs unsafe.Pointer, n uint32, out *uint32) uint32

const shutWrite = 2

func main() {
	listener, err := strconv.Atoi(os.Getenv("JAIL_FETCH_FD"))
	if err != nil {
		os.Exit(1)
	}
	var fd, n uint32
	data := []byte("data")
	iov := unsafe.Pointer(&[2]uint32{uint32(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))})
	for i, e := range []uint32{sockAccept(uint32(listener), 0, &fd), fdWrite(fd, iov, 1, &n), sockShutdown(fd, shutWrite), fdRead(fd, iov, 1, &n)} {
		if e != 0 {
			os.Exit(2 + i)
		}
	}
}

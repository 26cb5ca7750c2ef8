// Command uses is a guest that makes every preview 1 call whose work the host does by a system
// call, below descriptor 3, a directory that may be written to.
package main

import (
	"fmt"
	"os"
	"time"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 path_open
func pathOpen(fd, lookup uint32, p *byte, n uint32, oflags uint32, base, inherit uint64, fdflags uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_read
func fdRead(fd uint32, iovs unsafe.Pointer, n uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_write
func fdWrite(fd uint32, iovs unsafe.Pointer, n uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_pread
func fdPread(fd uint32, iovs unsafe.Pointer, n uint32, off uint64, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_pwrite
func fdPwrite(fd uint32, iovs unsafe.Pointer, n uint32, off uint64, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_close
func fdClose(fd uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_seek
func fdSeek(fd uint32, off int64, whence uint32, out *uint64) uint32

//go:wasmimport wasi_snapshot_preview1 fd_sync
func fdSync(fd uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_datasync
func fdDatasync(fd uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_advise
func fdAdvise(fd uint32, off, n uint64, advice uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_allocate
func fdAllocate(fd uint32, off, n uint64) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_set_size
func fdSetSize(fd uint32, size uint64) uint32

//go:wasmimport wasi_snapshot_preview1 fd_fdstat_set_flags
func fdSetFlags(fd, flags uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_get
func fdStat(fd uint32, out *[64]byte) uint32

//go:wasmimport wasi_snapshot_preview1 fd_readdir
func fdReaddir(fd uint32, buf *byte, n uint32, cookie uint64, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_filestat_get
func pathStat(fd, lookup uint32, p *byte, n uint32, out *[64]byte) uint32

//go:wasmimport wasi_snapshot_preview1 path_filestat_set_times
func pathSetTimes(fd, lookup uint32, p *byte, n uint32, atim, mtim uint64, flags uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_create_directory
func pathMkdir(fd uint32, p *byte, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_remove_directory
func pathRmdir(fd uint32, p *byte, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_unlink_file
func pathUnlink(fd uint32, p *byte, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_rename
func pathRename(fd uint32, p *byte, n uint32, fd2 uint32, q *byte, m uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_link
func pathLink(fd, lookup uint32, p *byte, n uint32, fd2 uint32, q *byte, m uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_symlink
func pathSymlink(t *byte, n uint32, fd uint32, p *byte, m uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_readlink
func pathReadlink(fd uint32, p *byte, n uint32, buf *byte, size uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 random_get
func randomGet(p *byte, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 clock_res_get
func clockRes(id uint32, out *uint64) uint32

//go:wasmimport wasi_snapshot_preview1 clock_time_get
func clockTime(id uint32, precision uint64, out *uint64) uint32

//go:wasmimport wasi_snapshot_preview1 sched_yield
func schedYield() uint32

const (
	root       = 3
	creat      = 1
	rights     = 1<<30 - 1
	processCPU = 2
)

var failed bool

func check(what string, e uint32) {
	if e != 0 {
		failed = true
		fmt.Fprintf(os.Stderr, "%s: error %d\n", what, e)
	}
}

func name(s string) (*byte, uint32) { return unsafe.StringData(s), uint32(len(s)) }

// iov is a list of one piece of memory. Go's pointers are wider here than those of preview 1.
func iov(b []byte) unsafe.Pointer {
	return unsafe.Pointer(&[2]uint32{uint32(uintptr(unsafe.Pointer(&b[0]))), uint32(len(b))})
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "idle" {
		time.Sleep(200 * time.Millisecond)
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		for begun := time.Now(); time.Since(begun) < time.Second; {
		}
		return
	}
	var fd, n uint32
	var n64 uint64
	var stat [64]byte
	p, pn := name("file")
	check("path_open", pathOpen(root, 1, p, pn, creat, rights, rights, 0, &fd))
	data := []byte("data")
	v := iov(data)
	check("fd_write", fdWrite(fd, v, 1, &n))
	check("fd_pwrite", fdPwrite(fd, v, 1, 4, &n))
	check("fd_seek", fdSeek(fd, 0, 0, &n64))
	check("fd_read", fdRead(fd, v, 1, &n))
	check("fd_pread", fdPread(fd, v, 1, 0, &n))
	check("fd_allocate", fdAllocate(fd, 0, 4096))
	check("fd_filestat_set_size", fdSetSize(fd, 8))
	check("fd_advise", fdAdvise(fd, 0, 0, 0))
	check("fd_sync", fdSync(fd))
	check("fd_datasync", fdDatasync(fd))
	check("fd_filestat_get", fdStat(fd, &stat))
	check("fd_fdstat_set_flags", fdSetFlags(fd, 1)) // to append
	check("fd_close", fdClose(fd))
	check("path_filestat_get", pathStat(root, 1, p, pn, &stat))
	check("path_filestat_set_times", pathSetTimes(root, 1, p, pn, 1e9, 1e9, 1|4))
	d, dn := name("dir")
	check("path_create_directory", pathMkdir(root, d, dn))
	check("path_remove_directory", pathRmdir(root, d, dn))
	q, qn := name("other")
	check("path_link", pathLink(root, 0, p, pn, root, q, qn))
	check("path_rename", pathRename(root, q, qn, root, d, dn))
	check("path_unlink_file", pathUnlink(root, d, dn))
	check("path_symlink", pathSymlink(p, pn, root, q, qn))
	buf := make([]byte, 4096)
	check("path_readlink", pathReadlink(root, q, qn, &buf[0], 4096, &n))
	check("fd_readdir", fdReaddir(root, &buf[0], 4096, 0, &n))
	check("path_unlink_file", pathUnlink(root, q, qn)|pathUnlink(root, p, pn))
	check("random_get", randomGet(&buf[0], 4096))
	check("clock_res_get", clockRes(processCPU, &n64))
	check("clock_time_get", clockTime(processCPU, 0, &n64))
	check("sched_yield", schedYield())
	d0 := 50 * time.Millisecond
	if len(os.Args) > 1 && os.Args[1] == "full" {
		p, n := name("big")
		pathOpen(root, 1, p, n, creat, rights, rights, 0, &fd)
		for fdWrite(fd, iov(buf), 1, &n) == 0 {
		}
		return
	}
	if len(os.Args) > 1 {
		d0, _ = time.ParseDuration(os.Args[1])
	}
	fmt.Println("sleeping")
	time.Sleep(d0) // poll_oneoff
	if failed {
		os.Exit(1)
	}
}

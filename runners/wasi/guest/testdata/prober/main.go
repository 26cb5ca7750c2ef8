// Command prober is a guest for tests. Each argument is one operation, its parts
// parted by tabs; each prints one line, its error number first. Paths go to
// preview 1 as they are, below descriptor 3, with no library in between.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 path_open
func pathOpen(fd, lookup uint32, p *byte, n uint32, oflags uint32, base, inherit uint64, fdflags uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_read
func fdRead(fd uint32, iovs unsafe.Pointer, n uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_write
func fdWrite(fd uint32, iovs unsafe.Pointer, n uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_close
func fdClose(fd uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_readdir
func fdReaddir(fd uint32, buf *byte, n uint32, cookie uint64, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_set_size
func fdSetSize(fd uint32, size uint64) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_set_times
func fdSetTimes(fd uint32, atim, mtim uint64, flags uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_allocate
func fdAllocate(fd uint32, off, n uint64) uint32

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

//go:wasmimport wasi_snapshot_preview1 sock_accept
func sockAccept(fd, flags uint32, out *uint32) uint32

//go:wasmimport wasi_snapshot_preview1 random_get
func randomGet(p *byte, n uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_fdstat_set_rights
func fdSetRights(fd uint32, base, inherit uint64) uint32

//go:wasmimport wasi_snapshot_preview1 proc_exit
func procExit(code uint32)

const (
	rightRead  = 1 << 1
	rightWrite = 1 << 6

	creat     = 1
	directory = 2
	excl      = 4
	trunc     = 8
)

// iovec holds an address in 32 bits, which a pointer in a struct has not.
type iovec struct{ p, n uint32 }

func iovecOf(b []byte) iovec {
	return iovec{uint32(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), uint32(len(b))}
}

func bytesOf(s string) (*byte, uint32) { return unsafe.StringData(s), uint32(len(s)) }

func open(path string, lookup, oflags uint32, rights uint64) (uint32, uint32) {
	var fd uint32
	p, n := bytesOf(path)
	e := pathOpen(3, lookup, p, n, oflags, rights, ^uint64(0)>>36, 0, &fd)
	return fd, e
}

func read(path string) (uint32, string) {
	fd, e := open(path, 1, 0, rightRead)
	if e != 0 {
		return e, ""
	}
	defer fdClose(fd)
	buf := make([]byte, 4096)
	v := iovecOf(buf)
	var got uint32
	e = fdRead(fd, unsafe.Pointer(&v), 1, &got)
	runtime.KeepAlive(buf)
	return e, string(buf[:got])
}

func write(path, data string, oflags uint32) uint32 {
	fd, e := open(path, 1, oflags, rightWrite)
	if e != 0 {
		return e
	}
	defer fdClose(fd)
	b := []byte(data + "\n")
	v := iovecOf(b)
	var got uint32
	defer runtime.KeepAlive(b)
	return fdWrite(fd, unsafe.Pointer(&v), 1, &got)
}

func list(path string) (uint32, string) {
	fd, e := open(path, 1, directory, 1<<14)
	if e != 0 {
		return e, ""
	}
	defer fdClose(fd)
	var names []string
	var cookie uint64
	for {
		buf := make([]byte, 512)
		var used uint32
		if e := fdReaddir(fd, &buf[0], uint32(len(buf)), cookie, &used); e != 0 {
			return e, ""
		}
		rest := buf[:used]
		for len(rest) >= 24 {
			next := *(*uint64)(unsafe.Pointer(&rest[0]))
			n := *(*uint32)(unsafe.Pointer(&rest[16]))
			if int(n)+24 > len(rest) {
				break
			}
			if name := string(rest[24 : 24+n]); name != "." && name != ".." {
				names = append(names, name)
			}
			cookie = next
			rest = rest[24+n:]
		}
		if used < uint32(len(buf)) {
			return 0, strings.Join(names, " ")
		}
	}
}

// onOpen opens a file for reading and calls f on its descriptor.
func onOpen(path string, f func(fd uint32) uint32) uint32 {
	fd, e := open(path, 1, 0, rightRead)
	if e != 0 {
		return e
	}
	defer fdClose(fd)
	return f(fd)
}

func path(verb string, a []string) (e uint32, data string) {
	p, n := bytesOf(a[0])
	var q *byte
	var m uint32
	if len(a) > 1 {
		q, m = bytesOf(a[1])
	}
	var out [64]byte
	switch verb {
	case "read":
		return read(a[0])
	case "write":
		return write(a[0], a[1], 0), ""
	case "creat":
		return write(a[0], a[1], creat|trunc), ""
	case "excl":
		return write(a[0], a[1], creat|excl), ""
	case "trunc":
		fd, e := open(a[0], 1, trunc, rightRead)
		if e == 0 {
			fdClose(fd)
		}
		return e, ""
	case "list":
		return list(a[0])
	case "stat":
		e = pathStat(3, 1, p, n, &out)
		return e, strconv.Itoa(int(out[16]))
	case "lstat":
		e = pathStat(3, 0, p, n, &out)
		return e, strconv.Itoa(int(out[16]))
	case "utimes":
		return pathSetTimes(3, 1, p, n, 1e9, 1e9, 1|4), ""
	case "lutimes":
		return pathSetTimes(3, 0, p, n, 1e9, 1e9, 1|4), ""
	case "mkdir":
		return pathMkdir(3, p, n), ""
	case "rmdir":
		return pathRmdir(3, p, n), ""
	case "unlink":
		return pathUnlink(3, p, n), ""
	case "rename":
		return pathRename(3, p, n, 3, q, m), ""
	case "renameto4":
		return pathRename(3, p, n, 4, q, m), ""
	case "linkto4":
		return pathLink(3, 0, p, n, 4, q, m), ""
	case "renamefrom4":
		return pathRename(4, p, n, 3, q, m), ""
	case "linkfrom4":
		return pathLink(4, 0, p, n, 3, q, m), ""
	case "link":
		return pathLink(3, 0, p, n, 3, q, m), ""
	case "symlink":
		return pathSymlink(p, n, 3, q, m), ""
	case "readlink":
		buf := make([]byte, 256)
		var used uint32
		e = pathReadlink(3, p, n, &buf[0], uint32(len(buf)), &used)
		return e, string(buf[:used])
	case "setsize":
		return onOpen(a[0], func(fd uint32) uint32 { return fdSetSize(fd, 0) }), ""
	case "fdtimes":
		return onOpen(a[0], func(fd uint32) uint32 { return fdSetTimes(fd, 1e9, 1e9, 1|4) }), ""
	case "rights": // all of them, on a descriptor that was opened for reading, and then a change
		return onOpen(a[0], func(fd uint32) uint32 {
			if e := fdSetRights(fd, 1<<30-1, 1<<30-1); e == 0 {
				fmt.Println("rights were raised")
			}
			return fdSetSize(fd, 0)
		}), ""
	case "allocate":
		return onOpen(a[0], func(fd uint32) uint32 { return fdAllocate(fd, 0, 1<<20) }), ""
	}
	panic("no verb " + verb)
}

func main() {
	for _, arg := range os.Args[1:] {
		verb, rest, _ := strings.Cut(arg, "\t")
		a := strings.Split(rest, "\t")
		switch verb {
		case "args":
			fmt.Printf("%q\n", os.Args)
		case "env":
			fmt.Printf("%q\n", os.Environ())
		case "pwd":
			wd, err := os.Getwd()
			fmt.Println(wd, err)
		case "cat": // stdin to stdout
			n, err := io.Copy(os.Stdout, os.Stdin)
			fmt.Fprintln(os.Stderr, n, err)
		case "flood":
			n, _ := strconv.Atoi(a[0])
			buf := []byte(strings.Repeat("0123456789abcde\n", 4096))
			for n > 0 {
				w, err := os.Stdout.Write(buf[:min(n, len(buf))])
				if n -= w; err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(3)
				}
			}
		case "exit":
			n, _ := strconv.Atoi(a[0])
			procExit(uint32(n))
		case "sleep":
			d, _ := time.ParseDuration(a[0])
			time.Sleep(d)
			fmt.Println("slept")
		case "sock":
			var fd uint32
			fmt.Println(sockAccept(3, 0, &fd))
		case "grow": // megabytes
			n, _ := strconv.Atoi(a[0])
			b := make([]byte, n<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			runtime.KeepAlive(b)
			fmt.Println("grew")
		case "random":
			n, _ := strconv.Atoi(a[0])
			b := make([]byte, n)
			fmt.Println(randomGet(&b[0], uint32(n)), b[n-1] != 0 || b[n/2] != 0 || b[0] != 0)
		case "openmany":
			var e uint32
			n := 0
			for ; n < 1_000_000 && e == 0; n++ {
				_, e = open(a[0], 1, 0, rightRead)
			}
			fmt.Println(e, n-1)
		case "append": // by the library
			f, err := os.OpenFile(a[0], os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(a[1])
			}
			fmt.Println(err)
		case "walk":
			fmt.Println(walk(a[0]))
		case "swap": // names for links to the outside and back, so many times
			n, _ := strconv.Atoi(a[0])
			fmt.Println(swap(n))
		case "race": // what swap exchanges, until the file named stop is there
			fmt.Println(race(a[0]))
		default:
			e, data := path(verb, a)
			fmt.Printf("%d\t%q\n", e, data)
		}
	}
}

// walk does what grep -r does: it reads every file below a directory.
func walk(dir string) (files, size int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for _, e := range entries {
		p := dir + "/" + e.Name()
		if e.IsDir() {
			f, s := walk(p)
			files, size = files+f, size+s
			continue
		}
		if _, err := os.Lstat(p); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		files, size = files+1, size+len(b)
	}
	return files, size
}

// swap exchanges d with evil and f with evilf, by way of a third name, n times in all.
func swap(n int) (done int) {
	for done < n {
		for _, pair := range [][2]string{{"d", "evil"}, {"f", "evilf"}} {
			for _, move := range [][2]string{{pair[0], "third"}, {pair[1], pair[0]}, {"third", pair[1]}} {
				p, m := bytesOf(move[0])
				q, k := bytesOf(move[1])
				pathRename(3, p, m, 3, q, k) // the other guest renames, too
			}
			done++
		}
	}
	return done
}

// race uses the names that another guest exchanges, in every way.
func race(stop string) (rounds, inside, leaked int) {
	for {
		for _, p := range []string{"d/f", "f", "d/../f", "d/./f", "evil/f", "evilf"} {
			switch e, data := read(p); {
			case strings.Contains(data, "canary"):
				leaked++
			case e == 0:
				inside++
			}
		}
		write("d/f", "inside", creat)
		write("f", "inside", 0)
		for _, op := range []string{"mkdir\td/new", "rename\td/new\td/new2", "rmdir\td/new2", "symlink\tx\td/l", "unlink\td/l", "link\td/f\td/g", "unlink\td/g", "utimes\td/f", "trunc\td/none"} {
			verb, rest, _ := strings.Cut(op, "\t")
			path(verb, strings.Split(rest, "\t"))
		}
		rounds++
		if e, _ := read(stop); e == 0 {
			return rounds, inside, leaked
		}
	}
}

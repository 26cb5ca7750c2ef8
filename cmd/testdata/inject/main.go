//go:build amd64

// Command inject runs a program under ptrace(2) and lets chosen system calls of jail's own programs fail, for tests of what happens then:
//
//	inject [-match PATTERN [-n N] [-errno ERRNO | -kill]] [-role ROLE] [-from TEXT] -record FILE -- PROGRAM [ARG...]
//
// Each system call with which jaild, jail-shim and jail-init change something, or pass something on, is a point: "ROLE CALL DETAIL". FILE gets
// one JSON line for each, in order. The Nth point that the pattern matches is not carried out and returns ERRNO; with -n 0 all are.
// With -kill the program is killed there instead. With -role all of its calls are points, also those that only read, and with -from those after the first
// whose detail has TEXT. Nothing in the programs takes part in that.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	child := flag.Bool("child", false, "")
	match := flag.String("match", "", "which points fail")
	nth := flag.Int("n", 1, "which of them, 0 for all")
	errno := flag.String("errno", "EPERM", "with what")
	kill := flag.Bool("kill", false, "kill the program there")
	role := flag.String("role", "", "of whatever program is run")
	from := flag.String("from", "", "what the detail of the call has from which on there are points")
	record := flag.String("record", "", "file for the points")
	flag.Parse()
	runtime.LockOSThread() // a tracer is a thread
	code, err := 0, error(nil)
	if *child {
		err = become(*role != "", flag.Args())
	} else {
		t := &tracer{nth: *nth, kill: *kill, only: *role, from: *from, roles: map[int]string{}, seen: map[string]int{}, started: map[int]bool{}}
		code, err = run(t, *match, *errno, *record, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inject:", err)
		code = 99
	}
	os.Exit(code)
}

// become is what is traced from the start: it lets the kernel stop it at the calls that matter, and at no others, and becomes the program.
func become(every bool, args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err := stopAtCalls(every); err != nil {
		return err
	}
	return unix.Exec(path, args, os.Environ())
}

func run(t *tracer, match, errno, record string, args []string) (int, error) {
	if match != "" {
		t.match = regexp.MustCompile(match)
		t.errno = errnoOf(errno)
		if t.errno == 0 {
			return 0, fmt.Errorf("errno %q: unknown", errno)
		}
	}
	f, err := os.Create(record)
	if err != nil {
		return 0, err
	}
	t.out = json.NewEncoder(f) // unbuffered: a program that hangs is ended together with this one

	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, append([]string{"-child", "-role", t.only, "--"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	code, err := t.trace(cmd.Process.Pid)
	return code, errors.Join(err, f.Close())
}

func errnoOf(name string) unix.Errno {
	for e := unix.Errno(1); e < 134; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}

// A point is one system call.
type point struct {
	Role   string `json:"role"`
	Call   string `json:"call"`
	Detail string `json:"detail"`
	N      int    `json:"n"`                // which of the same role, call and detail
	Ran    bool   `json:"ran,omitempty"`    // the tool may have run by then
	Failed bool   `json:"failed,omitempty"` // by our hand
}

type tracer struct {
	match   *regexp.Regexp
	nth     int
	errno   unix.Errno
	out     *json.Encoder
	roles   map[int]string // by process
	seen    map[string]int
	started map[int]bool // threads that have had their first stop
	kill    bool
	only    string // the role of all
	from    string
	matched int
	invoked bool // the order with the module is on its way to jail-init
	wrote   bool // the tool has written
}

const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE |
	unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

// trace sees the program and everything that it starts to their end, and returns the program's exit code.
func (t *tracer) trace(first int) (int, error) {
	code := 0
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return code, nil
		case err != nil:
			return 0, err
		case ws.Exited() || ws.Signaled():
			delete(t.roles, tid)
			delete(t.started, tid)
			if tid == first {
				code = ws.ExitStatus()
				if ws.Signaled() {
					code = 128 + int(ws.Signal())
				}
			}
			continue
		case !ws.Stopped():
			continue
		}
		signal := 0
		switch cause := ws.TrapCause(); {
		case !t.started[tid]:
			t.started[tid] = true
			if tid == first {
				if err := unix.PtraceSetOptions(tid, options); err != nil {
					return 0, err
				}
			} else if ws.StopSignal() == unix.SIGTRAP && cause == unix.PTRACE_EVENT_SECCOMP {
				t.point(tid)
			}
		case cause == unix.PTRACE_EVENT_SECCOMP:
			t.point(tid)
		case cause == unix.PTRACE_EVENT_EXEC:
			delete(t.roles, tid)
		case cause > 0:
		case ws.StopSignal() != unix.SIGTRAP:
			signal = int(ws.StopSignal())
		}
		if err := unix.PtraceCont(tid, signal); err != nil && err != unix.ESRCH { // it may have been killed meanwhile
			return 0, err
		}
	}
}

// point looks at a call that a thread is about to make.
func (t *tracer) point(tid int) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return // killed
	}
	role := t.only
	var c call
	ok := false
	if role == "" {
		role = t.role(tid)
		c, ok = calls[regs.Orig_rax]
	} else {
		c, ok = everyCall(regs.Orig_rax)
	}
	if !ok || role == "" {
		return
	}
	detail, ok := c.detail(tid, &regs)
	if t.from != "" {
		if strings.Contains(detail, t.from) {
			t.from = ""
		}
		return
	}
	if role == roleInit2 && c.name == "write" && regs.Rdi == 1 {
		t.wrote = true
	}
	if !ok || role == roleInit2 && t.invoked && c.name != "sendmsg" && !(c.name == "write" && regs.Rdi == 3) {
		return // the engine's own from here on
	}
	// The end of jail-init waits for the tool's; jaild goes on meanwhile.
	p := point{Role: role, Call: c.name, Detail: detail, Ran: t.wrote || (role == roleDaemon || role == roleInit2) && t.invoked}
	key := role + " " + c.name + " " + detail
	t.seen[key]++
	p.N = t.seen[key]
	if t.match != nil && t.match.MatchString(key) {
		t.matched++
		p.Failed = t.nth == 0 || t.matched == t.nth
	}
	if p.Failed && t.kill {
		if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid)); err == nil {
			_ = unix.Kill(groupOf(status), unix.SIGKILL)
		}
	} else if p.Failed {
		regs.Orig_rax = ^uint64(0) // no call at all
		regs.Rax = -uint64(t.errno)
		if unix.PtraceSetRegs(tid, &regs) != nil {
			return
		}
	} else if role == roleDaemon && c.name == "sendmsg" && carriesFiles(tid, regs.Rsi) {
		t.invoked = true
	}
	_ = t.out.Encode(p) // a full disk ends the test for want of lines
}

// groupOf is the process of a thread, as /proc/TID/status has it.
func groupOf(status []byte) int {
	_, rest, _ := strings.Cut(string(status), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		panic("no Tgid in a status") // the kernel's own format
	}
	return pid
}

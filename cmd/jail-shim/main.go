// Command jail-shim starts one jail and stays its parent. It is started by jaild with its orders on descriptor 3.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/runc"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// The main goroutine stays on the main thread: libcontainer moves threads between mount namespaces, and the parent-death signal
// of what it starts follows the thread that started it.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) == 2 && os.Args[1] == runc.InitArg {
		debug.SetGCPercent(-1) // it lives for some milliseconds
		runc.Init()
	}
	if len(os.Args) == 2 && os.Args[1] == control.ShimFilterArg {
		os.Exit(compileFilter(os.Stdin, os.Stdout))
	}
	os.Exit(run())
}

// compileFilter compiles a filter for a process of the host: jail-shim alone has the compiler.
func compileFilter(in io.Reader, out io.Writer) int {
	var filter jail.Filter
	err := json.NewDecoder(in).Decode(&filter)
	if err == nil {
		var program []byte
		if program, err = seccomp.Compile(filter); err == nil {
			_, err = out.Write(program)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "jail-shim:", err)
		return 125
	}
	return 0
}

func run() int {
	conn, err := control.Inherit(control.ShimControl)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jail-shim: it is started by jaild and takes its orders from descriptor 3:", err)
		return 125
	}
	defer conn.Close()
	if err := serve(conn); err != nil {
		failed := control.Failed{Layer: "shim", Error: err.Error()}
		var layer *runc.LayerError
		if errors.As(err, &layer) {
			failed = control.Failed{Layer: layer.Layer, Error: layer.Err.Error()}
		}
		if conn.Send(control.FromShim{Failed: &failed}) != nil {
			fmt.Fprintln(os.Stderr, "jail-shim:", err)
		}
		return 125
	}
	return 0
}

func serve(conn *control.Conn) error {
	var order control.Order
	if _, err := conn.Receive(&order); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	filter, err := seccomp.CompileTold(order.Plan.InnerFilter)
	if err != nil {
		return &runc.LayerError{Layer: "seccomp", Err: err}
	}
	var outside []byte
	if order.Plan.Ceiling != nil {
		if outside, err = seccomp.CompileOutside(order.Plan.Ceiling.Filter); err != nil {
			return &runc.LayerError{Layer: "seccomp", Err: err}
		}
	}
	toInit, err := control.Inherit(control.ShimInitHost)
	if err != nil {
		return err
	}
	defer toInit.Close()
	fromInit, listenerEnd, err := control.Pair("listener")
	if err != nil {
		return err
	}
	defer fromInit.Close()
	files := inherited(order)
	files.Listener = listenerEnd
	jail, err := runc.Start(order, files)
	if err != nil {
		return err
	}
	var refusals refusals
	deaf := make(chan error, 1)
	go func() {
		if err := refusals.listen(fromInit, order.Plan.InnerFilter); err != nil {
			deaf <- err
			_ = jail.Kill() // nobody would say what it is refused
		}
	}()
	gone := make(chan struct{})
	asked := make(chan request)
	ended := make(chan struct{})
	go func() { // jaild closing its end, or dying, ends the jail
		defer close(gone)
		for {
			var ask request
			var err error
			if ask.files, err = conn.Receive(&ask.Ask); err != nil {
				_ = jail.Kill() // it may have ended by itself
				return
			}
			select {
			case asked <- ask:
			case <-ended:
				ask.close()
			}
		}
	}()
	first, second := restrictions(order.Plan, filter, outside, order.Later)
	restrict := func() error { return toInit.Send(second) }
	if err = toInit.Send(first); err == nil && !order.Later {
		err = restrict()
	}
	if err == nil {
		err = conn.Send(control.FromShim{Started: &control.Started{PID: jail.PID}})
	}
	if err != nil {
		_ = jail.Kill()
	}
	exited, waitErr := answer(conn, &standing{jail, order, restrict}, asked, ended)
	select {
	case deafErr := <-deaf: // it ended for that and for nothing else
		err = errors.Join(err, &runc.LayerError{Layer: "seccomp", Err: deafErr})
	default:
	}
	if err = errors.Join(err, waitErr); err == nil {
		err = conn.Send(control.FromShim{Exited: &exited, Refused: refusals.list()})
		<-gone // jaild reads the usage before the control group goes
	}
	return errors.Join(err, jail.Remove())
}

// restrictions are the two orders of jail-init. One whose workspace comes later has the first at once, so that all that is left to do then is what names
// the workspace, and what would forbid that.
func restrictions(p jail.Plan, filter, outside []byte, later bool) (control.Restrict, control.Filter) {
	first, second := control.Restrict{Rlimits: p.Rlimits, Later: later}, control.Filter{Program: filter, Ceiling: outside}
	var ceiling *jail.Landlock
	if p.Ceiling != nil {
		ceiling = &p.Ceiling.Landlock
	}
	if !later {
		first.Landlock, first.Ceiling = p.Landlock, ceiling
		return first, second
	}
	if ceiling != nil {
		second.Domains = append(second.Domains, *ceiling)
	}
	second.Domains = append(second.Domains, p.Landlock)
	return first, second
}

func inherited(o control.Order) runc.Files {
	files := runc.Files{
		Control: os.NewFile(control.ShimInitJail, "init control"),
		Lower:   os.NewFile(control.ShimLower, "workspace"),
		Upper:   os.NewFile(control.ShimUpper, "upper layer"),
	}
	fd := uintptr(control.ShimBinds)
	for _, m := range o.Plan.Mounts {
		if m.Kind == jail.MountBind || runc.IsShared(o, m) {
			files.Binds = append(files.Binds, os.NewFile(fd, m.Source))
			fd++
		}
	}
	return files
}

// Command jail-shim starts one jail and stays its parent. jaild starts it with its order on
// descriptor 3.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/runc"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
	"github.com/jail-sandbox/jail/jail/streams"
)

// Keep the main goroutine on the main thread: libcontainer moves threads between mount namespaces,
// and the parent-death signal of a child follows the thread that started it.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) == 2 && os.Args[1] == runc.InitArg {
		// The process lives for some milliseconds.
		debug.SetGCPercent(-1)
		runc.Init()
	}
	if len(os.Args) == 2 && os.Args[1] == control.ShimFilterArg {
		os.Exit(compileFilter(os.Stdin, os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == outer.GateArg {
		fmt.Fprintln(os.Stderr, "jail-shim:", runc.Gate(os.Args[2:]))
		os.Exit(125)
	}
	os.Exit(run())
}

// compileFilter compiles a filter for a process of the host. Only jail-shim has the compiler.
func compileFilter(in io.Reader, out io.Writer) int {
	var filter seccomp.Filter
	err := json.NewDecoder(in).Decode(&filter)
	if err == nil {
		var program []byte
		if program, err = libseccomp.Compile(filter); err == nil {
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
		fmt.Fprintln(os.Stderr,
			"jail-shim: it is started by jaild and takes its orders from descriptor 3:", err)
		return 125
	}
	defer conn.Close()
	if err := serve(conn); err != nil {
		failed := control.FailedOf("shim", err)
		if layer, ok := errors.AsType[*runc.LayerError](err); ok {
			failed = control.FailedOf(layer.Layer, layer.Err)
		}
		if conn.Send(control.FromShim{Failed: failed}) != nil {
			fmt.Fprintln(os.Stderr, "jail-shim:", err)
		}
		return 125
	}
	return 0
}

func serve(conn *control.Conn) error {
	order, received, err := conn.ReceiveOrder()
	if errors.Is(err, io.EOF) {
		// A shim that was started ahead, and not needed.
		return nil
	}
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	toInit, files, proxy, err := sorted(order, received)
	if err != nil {
		return err
	}
	defer toInit.Close()
	compile := libseccomp.CompileTold
	if order.Plan.KernelInside() {
		compile = libseccomp.Compile
	}
	filter, err := compile(order.Plan.InnerFilter)
	if err != nil {
		return &runc.LayerError{Layer: "seccomp", Err: err}
	}
	var outside []byte
	if order.Plan.Ceiling != nil {
		if outside, err = libseccomp.CompileOutside(order.Plan.Ceiling.Filter); err != nil {
			return &runc.LayerError{Layer: "seccomp", Err: err}
		}
	}
	fromInit, listenerEnd, err := control.Pair("listener")
	if err != nil {
		return err
	}
	defer fromInit.Close()
	files.Listener = listenerEnd
	if proxy != nil {
		stream, err := serveStreams(proxy)
		if err != nil {
			return err
		}
		files.Passed = append(files.Passed, stream)
	}
	gone, asked, ended := make(chan struct{}), make(chan request), make(chan struct{})
	// The context ends when jaild closes its end or dies.
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(gone)
		defer cancel()
		receive(conn, asked, ended)
	}()
	jail, err := runc.Start(ctx, order, files)
	if err != nil {
		return err
	}
	// The jail may have ended by itself.
	defer context.AfterFunc(ctx, func() { _ = jail.Kill() })()
	refusals := newRefusals()
	deaf := make(chan error, 2)
	go func() {
		if err := refusals.listen(fromInit, order.Plan.InnerFilter, order.Plan.KernelInside()); err != nil {
			deaf <- &runc.LayerError{Layer: "seccomp", Err: err}
			// Nobody would answer the calls that the filter refuses.
			_ = jail.Kill()
		}
	}()
	first, second := restrictions(order.Plan, filter, outside, len(files.Passed))
	late := time.AfterFunc(order.Patience, func() {
		if !refusals.begun() {
			deaf <- &runc.LayerError{Layer: "jail-init",
				Err: fmt.Errorf("it has not restricted itself within %v", order.Patience)}
			_ = jail.Kill()
		}
	})
	defer late.Stop()
	if order.Plan.HostsAgent() {
		slacken(jail.PID)
	}
	if err = toInit.Send(first); err == nil {
		err = toInit.Send(second)
	}
	if order.Plan.Outer != nil {
		if err != nil {
			_ = jail.Kill()
		}
		// Where the runtime has ended, its own words say more than a broken pipe.
		if failure := awaitOuter(refusals, jail, toInit); failure != nil {
			err = failure
		}
	}
	if err == nil {
		err = conn.Send(control.FromShim{Started: &control.Started{PID: jail.PID}})
	}
	if err != nil {
		_ = jail.Kill()
	}
	// If it fails, the files are not updated any more.
	go func() { _ = jail.Refresh(ended) }()
	exited, waitErr := answer(conn, &standing{jail, order}, asked, ended)
	select {
	// The jail was killed for this reason.
	case deafErr := <-deaf:
		err = errors.Join(err, deafErr)
	default:
	}
	if err = errors.Join(err, waitErr); err == nil {
		err = conn.Send(control.FromShim{Exited: &exited, Refused: refusals.list()})
		// jaild reads the usage before the cgroup is removed.
		<-gone
	}
	return errors.Join(err, jail.Remove())
}

// receive passes requests of jaild on until jaild closes its end.
func receive(conn *control.Conn, asked chan<- request, ended <-chan struct{}) {
	for {
		var ask request
		var err error
		if ask.files, err = conn.Receive(&ask.Ask); err != nil {
			return
		}
		select {
		case asked <- ask:
		case <-ended:
			ask.close()
		}
	}
}

// restrictions returns the two orders of jail-init.
func restrictions(p jail.Plan, filter, outside []byte,
	passed int) (control.Restrict, control.Filter) {
	second := control.Filter{Program: filter, Ceiling: outside, Silent: p.KernelInside()}
	if p.KernelInside() {
		return control.Restrict{KernelInside: true, Passed: passed}, second
	}
	first := control.Restrict{Rlimits: p.Rlimits, Landlock: p.Landlock}
	if p.Ceiling != nil {
		first.Ceiling = &p.Ceiling.Landlock
	}
	return first, second
}

// sorted assigns the descriptors of an order to their uses. proxy is the control socket of the
// fetch proxy if jail-shim keeps it, else nil.
func sorted(o control.Order, all []*os.File) (toInit *control.Conn, files runc.Files, proxy *os.File,
	err error) {
	if len(all) < control.ShimBinds+o.Frozen+o.Passed {
		return nil, files, nil, fmt.Errorf("an order came with %d descriptors", len(all))
	}
	passed := all[len(all)-o.Passed:]
	frozen := all[len(all)-o.Passed-o.Frozen : len(all)-o.Passed]
	if o.Proxy && o.Passed > 0 {
		passed, proxy = passed[:o.Passed-1], passed[o.Passed-1]
	}
	return control.New(all[control.ShimInitHost]), runc.Files{
		In:      all[control.ShimIn],
		Out:     all[control.ShimOut],
		Err:     all[control.ShimErr],
		Control: all[control.ShimInitJail],
		Lower:   all[control.ShimLower],
		Upper:   all[control.ShimUpper],
		Network: all[control.ShimNetwork],
		Binds:   all[control.ShimBinds : len(all)-o.Passed-o.Frozen],
		Frozen:  frozen,
		Passed:  passed,
	}, proxy, nil
}

// agentSlack is the timer slack of an agent's host (PR_SET_TIMERSLACK, prctl(2)); the default is 50
// µs. While a Go program is active, a thread of its runtime sleeps repeatedly for 20 µs, which with
// the default took a third of the CPU time of an event.
const agentSlack = 500 * time.Microsecond

// slacken sets agentSlack on all threads of a process. New threads and executed programs inherit
// it. Errors are ignored, since only CPU time depends on it.
func slacken(pid int) {
	// The pattern is a proper one.
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	for _, task := range tasks {
		_ = os.WriteFile("/proc/"+filepath.Base(task)+"/timerslack_ns",
			[]byte(strconv.FormatInt(agentSlack.Nanoseconds(), 10)), 0)
	}
}

// awaitOuter waits until jail-init has restricted itself, so that the exit code of a failed runtime
// is not taken for the tool's.
func awaitOuter(r *refusals, jail *runc.Jail, toInit *control.Conn) error {
	<-r.settled
	if r.begun() {
		return nil
	}
	var unable control.Unable
	if _, err := toInit.Receive(&unable); err == nil && unable.Failure != "" {
		return &runc.LayerError{Layer: unable.Layer, Err: fmt.Errorf("%s", unable.Failure)}
	}
	return &runc.LayerError{Layer: "outer", Err: fmt.Errorf(
		"the runtime ended before the jail stood%s", jail.Explain())}
}

// serveStreams serves the run's fetch proxy over one multiplexed socket and returns the other end.
// It turns the garbage collector on, since the data of the streams would fill the host's memory.
func serveStreams(proxy *os.File) (*os.File, error) {
	debug.SetGCPercent(100)
	own, inside, err := control.Pair("streams")
	if err != nil {
		return nil, err
	}
	go func() {
		// The jail has ended, or said what is no stream: it has no network then.
		_ = streams.Serve(own.File(), proxy)
	}()
	return inside, nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	native "github.com/jail-sandbox/jail/runners/native/guest"
	shell "github.com/jail-sandbox/jail/runners/shell/guest"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// failureCode is the exit code of jail-init if it could not follow its order; its answer says why.
const failureCode = 125

func carryOut(ctx context.Context, order runners.Order, modules [][]byte,
	ready *wasiguest.Loaded) (int, runners.Answer) {
	errOut := os.Stderr
	if order.Joined {
		errOut = os.Stdout
	}
	if order.Script != nil {
		return answerOf(shell.Run(ctx, order, modules, os.Stdin, os.Stdout, errOut))
	}
	if order.Compile {
		if err := compile(order.Invocation, modules[0], os.Stdout); err != nil {
			return failureCode, runners.Answer{Failure: err.Error()}
		}
		return 0, runners.Answer{Report: &runners.Report{}}
	}
	if ready != nil {
		return answerOf(ready.Run(ctx, order.Invocation, os.Stdin, os.Stdout, errOut))
	}
	return answerOf(wasiguest.Run(ctx, order.Invocation, modules[0], os.Stdin, os.Stdout, errOut))
}

// answerOf returns jail-init's exit code and answer for the results of a run.
func answerOf(report runners.Report, err error) (int, runners.Answer) {
	if err != nil {
		return failureCode, runners.FailureAnswer(&report, err)
	}
	return report.ExitCode, runners.Answer{Report: &report}
}

// compile compiles the module and writes to out a line with the entry's path below the cache
// directory, and the bytes of the entry.
func compile(inv runners.Invocation, module []byte, out io.Writer) error {
	if err := os.Mkdir(inv.CacheDir, 0o700); err != nil {
		return err
	}
	err := wasiguest.Compile(context.Background(), module, inv.Module, inv.CacheDir)
	if err != nil {
		return err
	}
	path, err := wasiguest.Entry(inv.CacheDir)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(inv.CacheDir, path)
	if err != nil {
		return err
	}
	entry, err := os.Open(path)
	if err != nil {
		return err
	}
	defer entry.Close()
	if _, err := fmt.Fprintln(out, name); err != nil {
		return err
	}
	// The structs hide the file types, for which io.Copy would use system calls that the filter
	// refuses.
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{entry})
	return err
}

// prepared holds a module that jail-init loaded before its run, behind all layers of the jail, with
// an instance for that run. No code of the module has run. It is empty if the module could not be
// loaded; the run then reports the error.
type prepared struct{ loaded *wasiguest.Loaded }

func (p *prepared) load(order runners.Order, files []*os.File) {
	if p.loaded != nil || len(files) != 1 {
		return
	}
	module, err := mapModule(files[0])
	if err != nil {
		return
	}
	l, err := wasiguest.Prepare(context.Background(), module, order.Invocation)
	_ = syscall.Munmap(module)
	if err == nil {
		p.loaded = l
		warm()
		tidy()
	}
}

// of returns the module if the order names it.
func (p *prepared) of(order runners.Order) *wasiguest.Loaded {
	if !order.Prepared || order.Script != nil || order.Native != nil || order.Compile {
		return nil
	}
	return p.loaded
}

// runNative runs a host program. Meanwhile the control socket carries only sizes of its terminal.
// host serves the connections of an agent's program and is nil for others.
func runNative(order runners.Order, conn *control.Conn, proxy *wasiguest.Proxy,
	host native.Host) (int, runners.Answer) {
	sizes := func() (size runners.Terminal, err error) {
		files, err := conn.ReceiveMost(&size, maxSize)
		control.CloseAll(files)
		return size, err
	}
	// A nil *Proxy in an interface would not compare equal to nil.
	var opener native.Proxy
	if proxy != nil {
		opener = proxy
	}
	return answerOf(native.Run(order, sizes, opener, host))
}

// maxSize bounds the message with a terminal size, in bytes.
const maxSize = 4 << 10

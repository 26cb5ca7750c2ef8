package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// An engine runs the invocations of one session, each as an instance of its module with its own
// memory, descriptors, file view and thread. A crash of the process ends all of them; the host then
// starts a new one.
type engine struct {
	conn *control.Conn
	// sending is held while a reply is sent.
	sending sync.Mutex

	mu sync.Mutex
	// running maps the ids of running calls to their cancel functions.
	running map[uint64]context.CancelFunc
	// loaded are the modules by their cache directories. The host gives each module a directory of
	// its own, and never gives that directory another one.
	loaded map[string]*loading
}

// A loading is a module that is loaded, or being loaded.
type loading struct {
	once   sync.Once
	module *wasiguest.Loaded
	err    error
}

// serve runs calls until the host closes the socket, and returns the exit code. It does not wait
// for running invocations, since the host ends the process then.
func serve(conn *control.Conn) int {
	// The process lives on after an invocation, so its garbage must not.
	debug.SetGCPercent(100)
	e := &engine{conn: conn, running: map[uint64]context.CancelFunc{},
		loaded: map[string]*loading{}}
	for {
		var call runners.Call
		files, err := conn.Receive(&call)
		if err != nil {
			return 0
		}
		if call.Cancel {
			e.cancel(call.ID)
			control.CloseAll(files)
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		e.mu.Lock()
		e.running[call.ID] = cancel
		e.mu.Unlock()
		go e.carryOut(ctx, call, files)
	}
}

func (e *engine) cancel(id uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cancel := e.running[id]; cancel != nil {
		cancel()
	}
}

// carryOut runs one call and sends the reply. It closes the call's descriptors before, so that the
// host then reads the end of the streams.
func (e *engine) carryOut(ctx context.Context, call runners.Call, files []*os.File) {
	report, err := e.invoke(ctx, call, files)
	control.CloseAll(files)
	e.cancel(call.ID)
	e.mu.Lock()
	delete(e.running, call.ID)
	e.mu.Unlock()
	_, answer := answerOf(report, err)
	e.sending.Lock()
	defer e.sending.Unlock()
	if e.conn.Send(runners.Reply{ID: call.ID, Answer: answer}) != nil {
		// The host has gone, or takes no more: nobody would wait for the next reply either.
		os.Exit(failureCode)
	}
}

// callFiles is the number of descriptors of a call, without the fetch proxy's.
const callFiles = 4

func (e *engine) invoke(ctx context.Context, call runners.Call, files []*os.File) (runners.Report,
	error) {
	want := callFiles
	if call.Fetch {
		want++
	}
	if len(files) != want {
		return runners.Report{}, fmt.Errorf("the call came with %d descriptors, not with %d",
			len(files), want)
	}
	if call.Fetch {
		ctx = wasiguest.WithProxy(ctx, wasiguest.NewProxy(files[callFiles]))
	}
	module, err := e.load(ctx, call.Invocation, files[0])
	if err != nil {
		return runners.Report{}, err
	}
	// The CPU time of the thread is then that of the invocation.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	errOut := files[3]
	if call.Joined {
		errOut = files[2]
	}
	return module.RunMetered(ctx, call.Invocation, call.CPUNanos, files[1], files[2], errOut)
}

// load loads a module once for all calls. An error is not kept: the next call may do better.
func (e *engine) load(ctx context.Context, inv runners.Invocation,
	file *os.File) (*wasiguest.Loaded, error) {
	e.mu.Lock()
	l := e.loaded[inv.CacheDir]
	if l == nil {
		l = &loading{}
		e.loaded[inv.CacheDir] = l
	}
	e.mu.Unlock()
	l.once.Do(func() {
		var module []byte
		if module, l.err = readModule(file); l.err == nil {
			// A caller that goes away must not spoil the module for the others.
			l.module, l.err = wasiguest.Load(context.WithoutCancel(ctx), module, inv.Module,
				inv.CacheDir)
		}
	})
	if l.err != nil {
		e.mu.Lock()
		if e.loaded[inv.CacheDir] == l {
			delete(e.loaded, inv.CacheDir)
		}
		e.mu.Unlock()
	}
	return l.module, l.err
}

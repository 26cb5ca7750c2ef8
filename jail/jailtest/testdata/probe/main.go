// Command probe stands in jail-init's place and attacks the jail from inside, one list of system calls after the other. Nothing of it
// is in what is shipped.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// without is set by the linker: in the binary that makes the control of Landlock's tests, which does not restrict itself by it, and in the one that
// attacks before it restricts itself.
var without string

func main() { os.Exit(run(os.Args[1:], os.Environ())) }

func run(args, env []string) int {
	switch {
	case len(args) == 1 && args[0] == "hello": // executed by an attack that got through
		return 42
	case len(args) == 1 && args[0] == "gained": // executed where a file's mode could give rights
		return gained()
	case len(args) == 1 && args[0] == "int80": // outside of any jail: does this kernel accept int 0x80?
		if int(int32(int80(20))) == os.Getpid() {
			return 42
		}
		return 1
	case len(args) == 1 && args[0] == "unconfined": // inside a sandbox that is not a jail, which has done all the confining
		if err := attackFromInput(); err != nil {
			return fail(err)
		}
		return 0
	case len(args) == 0 && without == "patience":
		return fail(guest.Enter(enterLate(env)))
	case len(args) == 0 && without == "progress":
		for { // it never restricts itself
			time.Sleep(time.Hour)
		}
	case len(args) == 0 && without == "landlock":
		return fail(enterWithoutLandlock(env))
	case len(args) == 0:
		return fail(guest.Enter(env))
	}
	conn, err := guest.Confine()
	if err != nil {
		return fail(err)
	}
	for {
		var calls []victim.Call
		_, err := conn.Receive(&calls)
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err != nil {
			return fail(err)
		}
		if err := conn.Send(attack(calls)); err != nil {
			return fail(err)
		}
	}
}

// attackFromInput makes the calls that its input lists and prints the results.
func attackFromInput() error {
	var calls []victim.Call
	if err := json.NewDecoder(os.Stdin).Decode(&calls); err != nil {
		return err
	}
	runtime.LockOSThread() // now, since it starts a thread, for which an attack may leave no room
	defer giveBack()
	return json.NewEncoder(os.Stdout).Encode(attack(calls))
}

// enterWithoutLandlock is guest.Enter but for one step.
func enterWithoutLandlock(env []string) error {
	runtime.LockOSThread()
	if err := sys.DieWithParent(); err != nil {
		return err
	}
	conn, err := control.Inherit(control.InitControl)
	if err != nil {
		return err
	}
	var order control.Restrict
	if _, err := conn.Receive(&order); err != nil {
		return err
	}
	for _, r := range order.Rlimits {
		if err := sys.SetRlimit(r.Name, r.Value, r.Value); err != nil {
			return err
		}
	}
	if err := guest.CloseOthers(); err != nil {
		return err
	}
	return sys.Exec(guest.Self, []string{guest.Self, guest.Stage2}, env)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "probe:", err)
	return 125
}

// Command jail-init is process 1 of every jail: it restricts itself, then runs the tool's engine in the same process, so that a jail of a
// WebAssembly tool holds one process that can start no other. It is started by jail-shim and by nobody else.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
)

func main() { os.Exit(run(os.Args[1:], os.Environ())) }

func run(args, env []string) int {
	if len(args) == 0 {
		return fail(guest.Enter(env))
	}
	if len(args) != 1 || args[0] != guest.Stage2 {
		return fail(errors.New("takes no arguments; it is started inside a jail"))
	}
	conn, err := guest.Confine()
	if err != nil {
		return fail(err)
	}
	order, module, err := receive(conn)
	if err != nil {
		return fail(err)
	}
	code, answer := carryOut(order, module)
	if err := conn.Send(answer); err != nil {
		return fail(fmt.Errorf("send the report: %w", err))
	}
	return code
}

// receive reads the order and the module that comes with it. Nothing but stdio and the control socket is open afterwards.
func receive(conn *control.Conn) (runners.Order, []byte, error) {
	var order runners.Order
	files, err := conn.Receive(&order)
	if err != nil {
		return order, nil, fmt.Errorf("read the order: %w", err)
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if len(files) != 1 {
		return order, nil, fmt.Errorf("the order came with %d descriptors, not with a module", len(files))
	}
	// The descriptor's offset is shared with whoever opened it.
	info, err := files[0].Stat()
	if err != nil {
		return order, nil, err
	}
	if info.Size() > wasi.MaxModuleBytes {
		return order, nil, fmt.Errorf("the module has %d bytes, more than %d", info.Size(), wasi.MaxModuleBytes)
	}
	module := make([]byte, info.Size())
	if _, err := io.ReadFull(io.NewSectionReader(files[0], 0, info.Size()), module); err != nil {
		return order, nil, fmt.Errorf("read the module: %w", err)
	}
	return order, module, nil
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "jail-init:", err)
	return 125
}

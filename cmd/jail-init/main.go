// Command jail-init is process 1 of every jail. It restricts itself, then runs the engine of a
// WebAssembly tool in the same process, so that such a jail holds one process, which can start no
// other. It starts a program of the host as its child. Only jail-shim starts jail-init.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/runners"
	native "github.com/jail-sandbox/jail/runners/native/guest"
	"github.com/jail-sandbox/jail/runners/wasi"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

func main() { os.Exit(run(os.Args[1:], os.Environ())) }

func run(args, env []string) int {
	if len(args) == 0 {
		return fail(guest.Enter(env))
	}
	if len(args) == 2 && args[0] == guest.ContainerArg {
		code, err := guest.EnterContainer(args[1], env)
		fmt.Fprintln(os.Stderr, "jail-init:", err)
		return code
	}
	if len(args) == 2 && args[0] == guest.ModuleArg {
		return containerModule(args[1], env)
	}
	if len(args) == 1 && args[0] == native.KeepArg {
		return native.Keep()
	}
	if len(args) != 1 || args[0] != guest.Stage2 {
		return fail(errors.New("takes no arguments; it is started inside a jail"))
	}
	var ready prepared
	conn, err := guest.Confine()
	if err != nil {
		return fail(err)
	}
	order, modules, proxy, err := receive(conn, &ready)
	if err != nil {
		return fail(err)
	}
	if order.Serve {
		return serve(conn)
	}
	if err := writeFiles(order.Files); err != nil {
		return fail(err)
	}
	code, answer := 0, runners.Answer{}
	ctx := wasiguest.WithProxy(context.Background(), proxy)
	switch {
	case order.Agent != nil:
		code, answer = hostAgent(ctx, order, conn, modules, ready.of(order), proxy)
	case order.Native != nil:
		code, answer = runNative(order, conn, proxy, nil)
	default:
		code, answer = carryOut(ctx, order, modules, ready.of(order))
	}
	if err := conn.Send(answer); err != nil {
		return fail(fmt.Errorf("send the report: %w", err))
	}
	return code
}

// receive reads the order, its modules and the socket of the fetch proxy. Afterwards only the
// streams, the control socket and that socket are open.
func receive(conn *control.Conn, ready *prepared) (runners.Order, [][]byte, *wasiguest.Proxy,
	error) {
	var order runners.Order
	files, err := conn.Receive(&order)
	for err == nil && order.Prepare {
		ready.load(order, files)
		control.CloseAll(files)
		order = runners.Order{}
		files, err = conn.Receive(&order)
	}
	if err == nil && order.Passed > 0 {
		control.CloseAll(files)
		files, err = control.Passed(order.Passed)
	}
	if err != nil {
		return order, nil, nil, fmt.Errorf("read the order: %w", err)
	}
	defer func() { control.CloseAll(files) }()
	var proxy *wasiguest.Proxy
	if n := len(files) - 1; order.Fetch && n >= 0 {
		if order.Passed == 0 {
			proxy = wasiguest.NewProxy(files[n])
		} else if proxy, err = wasiguest.NewStreams(files[n]); err != nil {
			return order, nil, nil, fmt.Errorf("streams to the fetch proxy: %w", err)
		}
		files = files[:n]
	}
	if order.Serve && len(files) == 0 {
		return order, nil, nil, nil
	}
	if order.Native != nil && len(files) != 0 {
		return order, nil, nil, fmt.Errorf("the order of a program came with %d descriptors",
			len(files))
	}
	if len(files) != 1 && order.Script == nil && order.Native == nil {
		return order, nil, nil, fmt.Errorf("the order came with %d descriptors, not with a module",
			len(files))
	}
	var modules [][]byte
	if ready.of(order) != nil {
		return order, modules, proxy, nil
	}
	read := readModule
	if order.Agent != nil && order.Passed == 0 {
		read = mapModule
	}
	for _, f := range files {
		module, err := read(f)
		if err != nil {
			return order, nil, nil, err
		}
		modules = append(modules, module)
	}
	return order, modules, proxy, nil
}

// writeFiles writes the files of an order to the directory that the tool sees.
func writeFiles(files map[string][]byte) error {
	for name, text := range files {
		to := path.Join(jail.FilesDir, name)
		if err := os.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func readModule(f *os.File) ([]byte, error) {
	size, err := sizeOf(f)
	if err != nil {
		return nil, err
	}
	module := make([]byte, size)
	// The sender of the descriptor shares its offset.
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), module); err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	return module, nil
}

// mapModule maps a module into memory. jaild has sealed the file, so nobody can change or truncate
// it. The caller unmaps it after loading.
func mapModule(f *os.File) ([]byte, error) {
	size, err := sizeOf(f)
	if err != nil || size == 0 {
		return nil, err
	}
	module, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ,
		syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map the module: %w", err)
	}
	return module, nil
}

func sizeOf(module *os.File) (int64, error) {
	info, err := module.Stat()
	if err == nil && info.Size() > wasi.MaxModuleBytes {
		err = fmt.Errorf("the module has %d bytes, more than %d", info.Size(), wasi.MaxModuleBytes)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func fail(err error) int {
	if e := (*guest.Error)(nil); !errors.As(err, &e) || !e.Told {
		fmt.Fprintln(os.Stderr, "jail-init:", err)
	}
	return 125
}

// Command wasmtime runs a module of a bundle under Wasmtime, for the bench to compare with. It is given nothing that a jail would not give: one
// directory, arguments and the standard streams; and there is no jail around it.
//
//	wasmtime CACHE MODULE DIR ARG...
//
// CACHE is the file of the compiled module, which is made where it is not there. ARG begins with the name that the module is called by.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/bytecodealliance/wasmtime-go/v37"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "wasmtime:", err)
		code = 125
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) < 4 {
		return 0, errors.New("usage: wasmtime CACHE MODULE DIR ARG...")
	}
	engine := wasmtime.NewEngine()
	module, err := load(engine, args[0], args[1])
	if err != nil {
		return 0, err
	}
	wasi := wasmtime.NewWasiConfig()
	wasi.SetArgv(args[3:])
	wasi.SetEnv([]string{"PWD", "LANG"}, []string{"/", "C.UTF-8"})
	wasi.InheritStdin()
	wasi.InheritStdout()
	wasi.InheritStderr()
	for _, name := range []string{"/", "."} {
		if err := wasi.PreopenDir(args[2], name, wasmtime.DIR_READ|wasmtime.DIR_WRITE, wasmtime.FILE_READ|wasmtime.FILE_WRITE); err != nil {
			return 0, err
		}
	}
	store := wasmtime.NewStore(engine)
	store.SetWasi(wasi)
	linker := wasmtime.NewLinker(engine)
	if err := linker.DefineWasi(); err != nil {
		return 0, err
	}
	instance, err := linker.Instantiate(store, module)
	if err != nil {
		return 0, err
	}
	_, err = instance.GetFunc(store, "_start").Call(store)
	var failed *wasmtime.Error
	if errors.As(err, &failed) {
		if status, ok := failed.ExitStatus(); ok {
			return int(status), nil
		}
	}
	return 0, err
}

// load reads the compiled module, and compiles it first if it never was.
func load(engine *wasmtime.Engine, cache, path string) (*wasmtime.Module, error) {
	if _, err := os.Stat(cache); err == nil {
		return wasmtime.NewModuleDeserializeFile(engine, cache)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	code, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	module, err := wasmtime.NewModule(engine, code)
	if err != nil {
		return nil, err
	}
	text, err := module.Serialize()
	if err != nil {
		return nil, err
	}
	return module, os.WriteFile(cache, text, 0o644)
}

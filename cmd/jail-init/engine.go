package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi/guest"
)

// failureCode is the exit code of a jail-init that could not do as it was told; the answer says why.
const failureCode = 125

func carryOut(order runners.Order, module []byte) (int, runners.Answer) {
	if order.Compile {
		if err := compile(order.Invocation, module, os.Stdout); err != nil {
			return failureCode, runners.Answer{Failure: err.Error()}
		}
		return 0, runners.Answer{Report: &runners.Report{}}
	}
	report, err := guest.Run(context.Background(), order.Invocation, module, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return failureCode, runners.Answer{Report: &report, Failure: err.Error()}
	}
	return report.ExitCode, runners.Answer{Report: &report}
}

// compile writes the compiled form of the module to out: a line with its path below the cache directory, and its bytes.
func compile(inv runners.Invocation, module []byte, out io.Writer) error {
	if err := os.Mkdir(inv.CacheDir, 0o700); err != nil {
		return err
	}
	if err := guest.Compile(context.Background(), module, inv.Module, inv.CacheDir); err != nil {
		return err
	}
	path, err := guest.Entry(inv.CacheDir)
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
	_, err = io.Copy(out, entry)
	return err
}

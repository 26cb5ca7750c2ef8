package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/runners"
	shell "github.com/jail-sandbox/jail/runners/shell/guest"
	"github.com/jail-sandbox/jail/runners/wasi/guest"
)

// failureCode is the exit code of jail-init if it could not follow its order; its answer says why.
const failureCode = 125

func carryOut(ctx context.Context, order runners.Order, modules [][]byte, ready *guest.Loaded) (int,
	runners.Answer) {
	errOut := os.Stderr
	if order.Joined {
		errOut = os.Stdout
	}
	if order.Script != nil {
		report, err := shell.Run(ctx, order, modules, os.Stdin, os.Stdout, errOut)
		if err != nil {
			return failureCode, runners.FailureAnswer(&report, err)
		}
		return report.ExitCode, runners.Answer{Report: &report}
	}
	if order.Compile {
		if err := compile(order.Invocation, modules[0], os.Stdout); err != nil {
			return failureCode, runners.Answer{Failure: err.Error()}
		}
		return 0, runners.Answer{Report: &runners.Report{}}
	}
	var report runners.Report
	var err error
	if ready != nil {
		report, err = ready.Run(ctx, order.Invocation, os.Stdin, os.Stdout, errOut)
	} else {
		report, err = guest.Run(ctx, order.Invocation, modules[0], os.Stdin, os.Stdout, errOut)
	}
	if err != nil {
		return failureCode, runners.FailureAnswer(&report, err)
	}
	return report.ExitCode, runners.Answer{Report: &report}
}

// compile writes the compiled form of the module to out: a line with its path below the cache
// directory, and its bytes.
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
	// The structs hide the file types, for which io.Copy would use system calls that the filter
	// refuses.
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{entry})
	return err
}

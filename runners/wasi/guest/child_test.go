package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// runChild is what this program does instead of testing where another of its
// tests gave it a module: it runs the module in a process of its own.
func runChild(module string) int {
	code, err := os.ReadFile(module)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	rep, err := Run(context.Background(), runners.Invocation{Args: runners.Texts{"tool"},
		CacheDir: os.Getenv("JAIL_TEST_CACHE")},
		code, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return rep.ExitCode
}

// child is this program as runChild.
func child(t *testing.T, module []byte, env ...string) *exec.Cmd {
	t.Helper()
	p := filepath.Join(t.TempDir(), "module.wasm")
	if err := os.WriteFile(p, module, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "JAIL_TEST_MODULE="+p), env...)
	return cmd
}

// announced is a command that writes one byte, so that it is known to run, and
// then does what the code says.
func announced(code []byte, change func(*Module)) []byte {
	announce := Cat(I32Const(1), I32Const(0), I32Const(1), I32Const(8), op(0x10, 0, 0x1a))
	return with(Cat(announce, code), func(m *Module) {
		m.Types = append(m.Types, Type{Params: []byte{I32, I32, I32, I32}, Results: []byte{I32}})
		m.Imports = []Import{{Module: wasi.Preview1, Name: "fd_write", Type: 1}}
		m.Exports[0].Index = 1
		m.Data = []string{"\x10\x00\x00\x00\x01\x00\x00\x00--------x"}
		if change != nil {
			change(m)
		}
	})
}

// T-112, T-113, T-114: the engine is not asked to be interruptible, so whatever
// a guest does that never ends, its process can be killed from outside.
func TestKilledFromOutside(t *testing.T) {
	loop := op(0x03, 0x40, 0x0c, 0, 0x0b)
	one := uint32(1)
	sleeper := Cat(I32Const(64), I32Const(128), I32Const(1), I32Const(200), op(0x10, 1, 0x1a))
	for name, module := range map[string][]byte{
		"loop":         announced(loop, nil),
		"in the start": announced(loop, func(m *Module) { m.Start = &one }),
		"tail calls":   announced(op(0x12, 1), func(m *Module) {}),
		"mutual tail calls": announced(op(0x12, 2), func(m *Module) {
			m.Funcs = append(m.Funcs, Func{Code: op(0x12, 2)})
		}),
		"reads its input": announced(sleeper, pollsInput),
	} {
		t.Run(name, func(t *testing.T) {
			dies(t, module)
		})
	}
}

// dies starts a module that announces itself, with an input that stays open, and kills its process.
func dies(t *testing.T, module []byte) {
	t.Helper()
	cmd := child(t, module)
	in, inW := pipe(t) // open, and nothing comes
	defer inW.Close()
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(out, one); err != nil || one[0] != 'x' {
		t.Errorf("it does not start: %q %v", one, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Errorf("it ended by itself: %v", err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
}

// pollsInput adds poll_oneoff as the second import, and a subscription to input.
func pollsInput(m *Module) {
	m.Imports = append(m.Imports, Import{Module: wasi.Preview1, Name: "poll_oneoff", Type: 1})
	m.Exports[0].Index = 2
	m.Data[0] += strings.Repeat("\x00", 64+8-len(m.Data[0])) + "\x01" + strings.Repeat("\x00", 39)
}

// A cache on a read-only mount, as every jail has it: a hit needs no writing,
// and a miss is told as one.
func TestReadOnlyCache(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, _ := compiled(t, exits(42))
	run := func(module []byte) (int, string) {
		cmd := child(t, module, "JAIL_TEST_CACHE="+dir)
		cmd.Args = append([]string{"unshare", "-m", "sh", "-c",
			`mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"`, dir},
			cmd.Args...)
		var err error
		if cmd.Path, err = exec.LookPath("unshare"); err != nil {
			t.Skip("no unshare here")
		}
		out, _ := cmd.CombinedOutput() // the code says it
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := run(exits(42)); code != 42 {
		t.Errorf("hit: %d %s", code, out)
	}
	if code, out := run(exits(43)); code != 1 || !strings.Contains(out, errNotCompiled.Error()) {
		t.Errorf("miss: %d %s", code, out)
	}
}

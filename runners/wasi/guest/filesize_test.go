package guest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners"
)

// A write beyond the limit of file sizes is an error of the tool's, not the end
// of the process. The limit is for a process, so a child has it.
func TestFileSize(t *testing.T) {
	// ulimit counts blocks of 512 or 1024 bytes
	const full = 64 * 512
	if dir := os.Getenv("JAIL_TEST_FILE_SIZE"); dir != "" {
		module, err := os.ReadFile(os.Getenv("JAIL_TEST_PROBER"))
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Run(context.Background(), runners.Invocation{
			Args: runners.Texts{"prober", "append\t/workspace/small\tx",
				"append\t/workspace/big\tx"},
			CacheDir: os.Getenv("JAIL_TEST_CACHE"), Layout: runners.LayoutPreopens,
			Mounts: []runners.Mount{{Path: "/workspace", Source: dir, Write: true}}}, module, nil,
			os.Stdout, os.Stderr)
		if err != nil || rep.ExitCode != 0 {
			t.Errorf("%+v %v", rep, err)
		}
		return
	}
	w := newWorld(t)
	w.file("in/small", "x")
	w.file("in/big", strings.Repeat("x", 2*full))
	child := exec.Command("sh", "-c", `ulimit -f 64 && exec "$0" -test.run='^TestFileSize$'`,
		os.Args[0])
	child.Env = append(os.Environ(), "JAIL_TEST_FILE_SIZE="+w.in, "JAIL_TEST_CACHE="+proberCache(),
		"JAIL_TEST_PROBER="+filepath.Join(scratch, "prober.wasm"))
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out),
		"<nil>\nwrite /workspace/big: File too large\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

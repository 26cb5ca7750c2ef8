package store

import (
	"os"
	"os/exec"
	"testing"
)

// again runs this test in another process, which opens the database in dir, and returns the exit
// code.
func again(t *testing.T, dir string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return cmd.ProcessState.ExitCode()
}

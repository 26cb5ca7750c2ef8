package guest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

func mkfifo(p string) error { return exec.Command("mkfifo", p).Run() }

func residentPages(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident
}

package calm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// child is set in a copy of the test's program that becomes calm.
const child = "JAIL_TEST_CALM"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		Self()
		tasks, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			panic(err)
		}
		for _, task := range tasks {
			text, err := os.ReadFile("/proc/" + filepath.Base(task) + "/timerslack_ns")
			if err == nil {
				os.Stdout.Write(text)
			}
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = []string{"JAIL_TEST_SLACK=1"}
		cmd.Stdout = os.Stdout
		if err := Start(cmd); err != nil {
			panic(err)
		}
		if err := cmd.Wait(); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if os.Getenv("JAIL_TEST_SLACK") != "" {
		now, err := get()
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString("started " + now.String() + "\n")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A program of a real-time policy, which may have no slack, goes on as it is.
func TestSelfInRealTime(t *testing.T) {
	if err := exec.Command("chrt", "-r", "1", "true").Run(); err != nil {
		t.Skipf("chrt: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chrt", "-r", "1", os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// All threads of a calm program have the slack, and what it starts has the default.
func TestSelf(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	last := len(lines) - 1
	if last < 1 || lines[last] != "started "+defaultSlack.String() {
		t.Errorf("%q", lines)
	}
	for _, line := range lines[:last] {
		if line != "500000" {
			t.Errorf("%q", lines)
		}
	}
}

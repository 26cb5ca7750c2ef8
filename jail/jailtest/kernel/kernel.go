// Package kernel tells tests which kernel they run on, where what it can decides what they expect.
package kernel

import (
	"fmt"
	"os"
	"testing"
)

// OlderThan looks at the release that the kernel names (uname(2)). A distribution may have given an
// older one what a newer one has: only tests ask this.
func OlderThan(t testing.TB, major, minor int) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(string(text), "%d.%d", &a, &b); err != nil {
		t.Fatalf("the kernel's release is %q: %v", text, err)
	}
	return a < major || a == major && b < minor
}

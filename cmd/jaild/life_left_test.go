package main_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// idRanges counts the ranges of host ids that a process holds.
func idRanges(pid int) int {
	held := map[string]bool{}
	for _, name := range cmdtest.NamesIn(fmt.Sprintf("/proc/%d/fd", pid)) {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, name)); err == nil {
			held[target] = true
		}
	}
	n := 0
	text, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 8 && strings.HasPrefix(f[7], "@jail/ids/") && held["socket:["+f[6]+"]"] {
			n++
		}
	}
	return n
}

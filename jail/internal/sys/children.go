package sys

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillChildren sends SIGKILL to every child of the calling process. It kills none and returns false
// if the kernel was built without lists of children (CONFIG_PROC_CHILDREN; proc_tid_children(5)).
func KillChildren() bool {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		// A thread may have ended meanwhile.
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				killChild(pid)
			}
		}
	}
	return len(lists) > 0
}

// killChild kills a child by its number. The child may have been waited for meanwhile, and its
// number may be another process's: so the parent is compared after the process was opened.
func killChild(pid int) {
	process, err := OpenProcess(pid)
	if err != nil {
		return
	}
	defer process.Close()
	if parent, _, err := ProcStat(pid); err == nil && parent == os.Getpid() {
		_ = Signal(process, unix.SIGKILL)
	}
}

// ReapChildren waits until every child of the calling process has ended, and reaps them.
func ReapChildren() {
	for {
		_, err := unix.Wait4(-1, nil, unix.WALL, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
	}
}

// DieWithParent lets the kernel kill the calling process when the thread that is its parent ends
// (prctl(2), PR_SET_PDEATHSIG). It belongs to the calling thread, which the caller must have
// locked, and lives through its exec.
func DieWithParent() error {
	return callError("prctl PR_SET_PDEATHSIG",
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

package approvals

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
)

// A process tells one process of the host from all others, over restarts of the host.
type process struct {
	PID int `json:"pid"`
	// Start is field 22 of proc_pid_stat(5), in clock ticks since the host was started.
	Start string `json:"start"`
	// Boot is the id of that start of the host.
	Boot string `json:"boot"`
}

var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

// processOf returns the process with a PID, or the zero process if there is none.
func processOf(pid int) process {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil || pid <= 0 {
		return process{}
	}
	// The name of the program, in parentheses, may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return process{}
	}
	return process{PID: pid, Start: fields[start], Boot: bootID()}
}

// is reports whether the process with a PID is this one.
func (p process) is(pid int) bool { return p.PID != 0 && p.PID == pid && processOf(pid) == p }

// lives reports whether the process has not ended.
func (p process) lives() bool { return p.is(p.PID) }

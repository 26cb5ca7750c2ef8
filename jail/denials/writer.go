package denials

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// writer finds the kernel's thread that writes audit records, and returns how to wait until it has
// nothing to write: who was refused something has woken it before that call returned, so once a
// jail's processes have ended and it sleeps, all of their records are with their readers. A thread
// that waits for a slow auditd sleeps, too, a tenth of a second at most: what is behind that is in
// the totals.
func writer() (idle func(time.Duration) bool, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid <= 0 {
			continue
		}
		stat := "/proc/" + e.Name() + "/stat"
		if text, err := os.ReadFile(stat); err == nil && isWriter(text) {
			return func(most time.Duration) bool { return sleeps(stat, most) }, nil
		}
	}
	return nil, errPlace
}

// isWriter reports whether that is the state of the kernel's thread: any process can be called so,
// but only those of the kernel have its parent.
func isWriter(stat []byte) bool {
	// A name may have brackets.
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return false
	}
	fields := bytes.Fields(stat[end+1:])
	return string(stat[begin+1:end]) == "kauditd" && len(fields) > 1 && string(fields[1]) == "2"
}

// sleeps waits until the thread has been seen asleep twice, but no longer than that.
func sleeps(stat string, most time.Duration) bool {
	seen := 0
	for end := time.Now().Add(most); seen < 2 && time.Now().Before(end); {
		text, err := os.ReadFile(stat)
		if err != nil {
			return false
		}
		if _, rest, ok := bytes.Cut(text, []byte(") ")); ok && len(rest) > 0 && (rest[0] == 'S' ||
			rest[0] == 'I') {
			seen++
		} else {
			seen = 0
		}
		if seen < 2 {
			time.Sleep(time.Millisecond)
		}
	}
	return seen == 2
}

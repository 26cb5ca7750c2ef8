package sys

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// MountsBelow returns the mount points beneath the directory path in the caller's mount namespace (proc_pid_mountinfo(5)).
func MountsBelow(path string) ([]string, error) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	prefix := strings.TrimSuffix(path, "/") + "/"
	var below []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if point := unescapeOctal(fields[4]); strings.HasPrefix(point, prefix) {
			below = append(below, point)
		}
	}
	return below, lines.Err()
}

// unescapeOctal undoes the escapes with which the kernel writes spaces, newlines and backslashes, as \040.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

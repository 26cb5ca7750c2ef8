package inherit

import (
	"os"
	"syscall"
)

// nullDevice is the number of /dev/null (major 1, minor 3), by whatever name.
const nullDevice = 1<<8 | 3

// NoInput reports whether a standard input is /dev/null, so that the tool gets /dev/null, too, and
// no pipe: programs such as rg read a pipe where they would search the directory.
func NoInput(in *os.File) bool {
	info, err := in.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Rdev == nullDevice
}

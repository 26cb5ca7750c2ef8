package sys

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ExchangeAt swaps two entries in one step (renameat2(2), RENAME_EXCHANGE). Where the file system
// cannot, the error is syscall.EINVAL.
func ExchangeAt(dir *os.File, name string, otherDir *os.File, other string) error {
	err := unix.Renameat2(int(dir.Fd()), name, int(otherDir.Fd()), other, unix.RENAME_EXCHANGE)
	return pathError("renameat2 exchange", filepath.Join(otherDir.Name(), other), err)
}

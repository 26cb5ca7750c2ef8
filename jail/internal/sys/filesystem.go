package sys

import "golang.org/x/sys/unix"

// HasFilesystem returns nil if the kernel has a file system of that name, or could load it
// (fsopen(2)).
func HasFilesystem(name string) error {
	fd, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return pathError("fsopen", name, err)
	}
	return callError("close", unix.Close(fd))
}

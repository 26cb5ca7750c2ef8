package sys

import "golang.org/x/sys/unix"

// Mkdirat makes the directory name in dirfd. name must be one component, here
// and in every function of this file.
func Mkdirat(dirfd int, name string, mode uint32) error {
	return wrap("mkdirat", name, retry(func() error { return unix.Mkdirat(dirfd, name, mode) }))
}

// Unlinkat removes the file or link name from dirfd.
func Unlinkat(dirfd int, name string) error {
	return wrap("unlinkat", name, retry(func() error { return unix.Unlinkat(dirfd, name, 0) }))
}

// Rmdirat removes the empty directory name from dirfd.
func Rmdirat(dirfd int, name string) error {
	return wrap("rmdir", name, retry(func() error {
		return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
	}))
}

// Renameat moves a name, replacing what the new name stood for.
func Renameat(olddir int, oldname string, newdir int, newname string) error {
	return wrap("renameat", oldname, retry(func() error {
		return unix.Renameat2(olddir, oldname, newdir, newname, 0)
	}))
}

// Linkat makes newname a hard link of oldname; a symbolic link is linked
// itself, never followed.
func Linkat(olddir int, oldname string, newdir int, newname string) error {
	return wrap("linkat", oldname, retry(func() error {
		return unix.Linkat(olddir, oldname, newdir, newname, 0)
	}))
}

// Symlinkat makes name a symbolic link that holds target.
func Symlinkat(target string, dirfd int, name string) error {
	return wrap("symlinkat", name, retry(func() error {
		return unix.Symlinkat(target, dirfd, name)
	}))
}

// Readlinkat reads the link name of dirfd, or, with an empty name, the link
// behind an O_PATH descriptor. It returns the number of bytes put into buf.
func Readlinkat(dirfd int, name string, buf []byte) (int, error) {
	var n int
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(dirfd, name, buf)
		return err
	})
	return n, wrap("readlinkat", name, err)
}

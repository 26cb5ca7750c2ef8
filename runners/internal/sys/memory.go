package sys

import "golang.org/x/sys/unix"

// Reserve takes size bytes of address space that cannot be touched yet and that
// costs no memory. Give it back with Release.
func Reserve(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	return b, wrap("mmap", "", err)
}

// Open makes part of a reservation usable. Its pages are zero and cost memory
// only once they are touched.
func Open(part []byte) error {
	return wrap("mprotect", "", unix.Mprotect(part, unix.PROT_READ|unix.PROT_WRITE))
}

// Release gives a whole reservation back.
func Release(b []byte) error { return wrap("munmap", "", unix.Munmap(b)) }

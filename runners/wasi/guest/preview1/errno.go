package preview1

import "github.com/jail-sandbox/jail/runners/internal/sys"

// Errno is an error number of WASI preview 1; zero is success.
type Errno uint16

// The error numbers that this package gives by itself.
const (
	success        Errno = 0
	errBadf        Errno = 8
	errFault       Errno = 21
	errFbig        Errno = 22
	errInval       Errno = 28
	errIntr        Errno = 27
	errIO          Errno = 29
	errConnRefused Errno = 14
	errIsdir       Errno = 31
	errMfile       Errno = 33
	errNameLong    Errno = 37
	errNospc       Errno = 51
	errNotdir      Errno = 54
	errNotsock     Errno = 57
	errNotsup      Errno = 58
	errNotcap      Errno = 76
)

// fromKernel is indexed by the kernel's error numbers (asm-generic). What has
// no number in WASI is EIO.
var fromKernel = [...]Errno{
	1: 63, 2: 44, 3: 71, 4: 27, 5: 29, 6: 60, 7: 1, 8: 45, 9: 8, 10: 12,
	11: 6, 12: 48, 13: 2, 14: 21, 15: 29, 16: 10, 17: 20, 18: 75, 19: 43, 20: 54,
	21: 31, 22: 28, 23: 41, 24: 33, 25: 59, 26: 74, 27: 22, 28: 51, 29: 70, 30: 69,
	31: 34, 32: 64, 33: 18, 34: 68, 35: 16, 36: 37, 37: 46, 38: 52, 39: 55, 40: 32,
	75: 61, 84: 25, 88: 57, 95: 58, 103: 13, 104: 15, 107: 53, 110: 73, 111: 14, 116: 72, 122: 19,
}

// wasiErrno translates an error number of the kernel.
func wasiErrno(e sys.Errno) Errno {
	if e == 0 {
		return success
	}
	if int(e) < len(fromKernel) && fromKernel[e] != 0 {
		return fromKernel[e]
	}
	return errIO
}

func errnoOf(err error) Errno { return wasiErrno(sys.ErrnoOf(err)) }

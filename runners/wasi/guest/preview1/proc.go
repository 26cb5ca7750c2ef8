package preview1

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// putTexts writes the texts, each with a NUL, from buf on, and their addresses
// into the array at list.
func putTexts(m memory, texts []string, list, buf uint32) Errno {
	addrs, ok := m.at(list, uint32(4*len(texts)))
	if !ok {
		return errFault
	}
	for _, t := range texts {
		b, ok := m.at(buf, uint32(len(t)+1))
		if !ok {
			return errFault
		}
		b[copy(b, t)] = 0
		binary.LittleEndian.PutUint32(addrs, buf)
		addrs = addrs[4:]
		buf += uint32(len(t) + 1)
	}
	return success
}

func putSizes(m memory, texts []string, count, size uint32) Errno {
	total := 0
	for _, t := range texts {
		total += len(t) + 1
	}
	if e := m.putU32(count, uint32(len(texts))); e != success {
		return e
	}
	return m.putU32(size, uint32(total))
}

func argsGet(p *Process, mem []byte, a []uint64) Errno {
	return putTexts(mem, p.args, uint32(a[0]), uint32(a[1]))
}

func argsSizesGet(p *Process, mem []byte, a []uint64) Errno {
	return putSizes(mem, p.args, uint32(a[0]), uint32(a[1]))
}

func environGet(p *Process, mem []byte, a []uint64) Errno {
	return putTexts(mem, p.env, uint32(a[0]), uint32(a[1]))
}

func environSizesGet(p *Process, mem []byte, a []uint64) Errno {
	return putSizes(mem, p.env, uint32(a[0]), uint32(a[1]))
}

// maxClock is the highest clock: real time, monotonic, process and thread CPU
// time have the numbers of the kernel's clocks.
const maxClock = 3

func clockResGet(p *Process, mem []byte, a []uint64) Errno {
	if uint32(a[0]) > maxClock {
		return errInval
	}
	n, err := sys.ClockResolution(int32(a[0]))
	if err != nil {
		return errnoOf(err)
	}
	return memory(mem).putU64(uint32(a[1]), uint64(n))
}

func clockTimeGet(p *Process, mem []byte, a []uint64) Errno {
	if uint32(a[0]) > maxClock {
		return errInval
	}
	n, err := sys.Clock(int32(a[0]))
	if err != nil {
		return errnoOf(err)
	}
	return memory(mem).putU64(uint32(a[2]), uint64(n))
}

// exitMask leaves what a Unix parent sees of an exit code.
const exitMask = 0xff

func procExit(p *Process, _ []byte, a []uint64) Errno {
	p.exit(int(uint32(a[0]) & exitMask))
	return success
}

// procRaise ends the guest as the signal would: there are no handlers in WASI.
func procRaise(p *Process, _ []byte, a []uint64) Errno {
	const last = 31
	n := uint32(a[0])
	if n > last {
		return errInval
	}
	if n != 0 {
		p.exit(128 + int(n))
	}
	return success
}

func randomGet(p *Process, mem []byte, a []uint64) Errno {
	b, ok := memory(mem).at(uint32(a[0]), uint32(a[1]))
	if !ok {
		return errFault
	}
	if _, err := rand.Read(b); err != nil {
		return errIO
	}
	return success
}

func schedYield(*Process, []byte, []uint64) Errno {
	sys.Yield()
	return success
}

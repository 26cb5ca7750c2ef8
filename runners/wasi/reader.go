package wasi

// reader takes values off the front of a section. It never panics: after the
// first fault every read gives zero, and short is set.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) fail() {
	r.short = true
	r.b = nil
}

func (r *reader) u8() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// u32 reads an unsigned LEB128 of at most 32 bits.
func (r *reader) u32() uint32 {
	v := r.leb(5)
	if v > 1<<32-1 {
		r.fail()
		return 0
	}
	return uint32(v)
}

func (r *reader) leb(most int) uint64 {
	var v uint64
	for i := range most {
		c := r.u8()
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v
		}
	}
	r.fail()
	return 0
}

// take returns the next n bytes.
func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) name() string { return string(r.take(r.u32())) }

// count reads the length of a vector whose elements take at least one byte, so
// that a false length cannot make the caller allocate or loop.
func (r *reader) count(what string, limit uint32) (uint32, error) {
	n := r.u32()
	if n > limit {
		return 0, tooLarge(what, uint64(n), uint64(limit))
	}
	if uint64(n) > uint64(len(r.b)) {
		r.fail()
		return 0, nil
	}
	return n, nil
}

// limits is the size of a table or memory.
type limits struct {
	min, max uint64
	hasMax   bool
	flags    byte
}

func (r *reader) limits() limits {
	l := limits{flags: r.u8()}
	size := 5
	if l.flags&4 != 0 {
		size = 10
	}
	l.min = r.leb(size)
	if l.flags&1 != 0 {
		l.max, l.hasMax = r.leb(size), true
	}
	return l
}

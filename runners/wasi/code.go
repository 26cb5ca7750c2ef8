package wasi

// MaxNesting is the maximum depth of nested blocks in a function, and MaxTargets the maximum number
// of targets of all its br_table instructions. The engine's time grows with the square of the
// depth, its memory with the targets.
const (
	MaxNesting = 10_000
	MaxTargets = 65_536
)

// CheckCode returns an error if a function of a module that passed Check would take an engine long
// to compile. It takes a few nanoseconds per byte, so it runs before compiling, not before each
// run. It leaves unknown instructions to the engine.
func CheckCode(module []byte) error {
	r := reader{b: module[8:]}
	for len(r.b) > 0 {
		id := r.u8()
		body := r.take(r.u32())
		if r.short {
			return nil
		}
		if id != 10 {
			continue
		}
		code := reader{b: body}
		for i := range code.u32() {
			f := reader{b: code.take(code.u32())}
			if code.short {
				return nil
			}
			for range f.u32() {
				f.u32()
				if f.u8(); f.short {
					return nil
				}
			}
			if err := checkFunction(i, &f); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFunction(index uint32, r *reader) error {
	depth, targets := 0, uint64(0)
	for !r.short && len(r.b) > 0 {
		switch op := r.u8(); op {
		case 0x02, 0x03, 0x04, 0x1f: // block, loop, if, try_table
			if depth++; depth > MaxNesting {
				return errorfLimit("function %d nests more than %d blocks", index, MaxNesting)
			}
			r.leb(5)
			if op == 0x1f {
				skipCatches(r)
			}
		case 0x0b: // end
			depth--
		case 0x0e: // br_table
			n := r.u32()
			if targets += uint64(n); targets > MaxTargets {
				return errorfLimit("function %d has more than %d targets of br_table", index,
					MaxTargets)
			}
			for range uint64(n) + 1 {
				if r.u32(); r.short {
					break
				}
			}
		default:
			if !skipOperands(op, r) {
				return nil
			}
		}
	}
	return nil
}

func skipCatches(r *reader) {
	for range r.u32() {
		if kind := r.u8(); kind < 2 {
			// The index of the tag.
			r.u32()
		}
		if r.u32(); r.short {
			return
		}
	}
}

// skipOperands skips the operands of an instruction that opens no block. It returns false for an
// unknown one.
func skipOperands(op byte, r *reader) bool {
	switch {
	case op == 0x00, op == 0x01, op == 0x05, op == 0x0a, op == 0x0f, op == 0x1a, op == 0x1b,
		op >= 0x45 && op <= 0xc4, op == 0xd1:
	case op == 0x08, op == 0x0c, op == 0x0d, op == 0x10, op == 0x12, op >= 0x20 && op <= 0x26,
		op == 0x3f, op == 0x40, op == 0xd2:
		r.u32()
	case op == 0x11, op == 0x13:
		r.u32()
		r.u32()
	case op == 0x1c:
		r.take(r.u32())
	case op >= 0x28 && op <= 0x3e:
		skipMemory(r)
	case op == 0x41, op == 0xd0:
		r.leb(5)
	case op == 0x42:
		r.leb(10)
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op == 0xfc:
		return skipMiscellaneous(r.u32(), r)
	case op == 0xfd:
		skipVector(r.u32(), r)
	default:
		return false
	}
	return true
}

func skipMemory(r *reader) {
	// The alignment.
	r.u32()
	r.leb(10)
}

func skipMiscellaneous(op uint32, r *reader) bool {
	switch {
	case op < 8:
	case op == 8, op == 10, op == 12, op == 14:
		r.u32()
		r.u32()
	case op <= 17:
		r.u32()
	default:
		return false
	}
	return true
}

func skipVector(op uint32, r *reader) {
	switch {
	case op <= 11, op == 92, op == 93:
		skipMemory(r)
	case op == 12, op == 13:
		// A constant, or the lanes of a shuffle.
		r.take(16)
	case op >= 21 && op <= 34:
		r.u8()
	case op >= 84 && op <= 91:
		skipMemory(r)
		r.u8()
	}
}

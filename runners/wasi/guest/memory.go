package guest

import (
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/tetratelabs/wazero/experimental"
)

// linear is the guest's linear memory. Address space for its maximum size is reserved once, and
// pages cost memory only when they are touched, so that growing copies nothing.
type linear struct {
	limit    uint64 // bytes
	reserved []byte
	size     uint64
	peak     uint64
	refused  *runners.MemoryRefused
}

// newLinear returns a memory of at most limit bytes; 0 is the maximum of WebAssembly.
func newLinear(limit int64) *linear {
	if limit <= 0 {
		limit = wasi.MaxMemory
	}
	return &linear{limit: min(uint64(limit), wasi.MaxMemory)}
}

// Allocate implements experimental.MemoryAllocator. most is what the module
// declares; the limit may be less.
func (l *linear) Allocate(_, most uint64) experimental.LinearMemory {
	l.size = 0
	most = min(most, l.limit)
	if most == 0 {
		return l
	}
	// Without address space every growth fails, and the guest gets the error.
	if b, err := sys.Reserve(int(most)); err == nil {
		l.reserved = b
	}
	return l
}

// Reallocate implements experimental.LinearMemory. It returns nil for a size that is refused.
func (l *linear) Reallocate(size uint64) []byte {
	if size > l.limit {
		if l.refused == nil {
			l.refused = &runners.MemoryRefused{Limit: int64(l.limit)}
		}
		l.refused.Wanted = max(l.refused.Wanted, int64(size))
		return nil
	}
	if size > uint64(len(l.reserved)) {
		return nil
	}
	if size > l.size {
		if err := sys.Open(l.reserved[l.size:size]); err != nil {
			return nil
		}
		l.size = size
		l.peak = max(l.peak, size)
	}
	return l.reserved[:size:size]
}

// Free implements experimental.LinearMemory.
func (l *linear) Free() {
	if l.reserved != nil {
		// Nothing can be done about it.
		_ = sys.Release(l.reserved)
		l.reserved = nil
	}
}

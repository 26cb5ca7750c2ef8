package config

import (
	"testing"
)

func TestDefaultBounds(t *testing.T) {
	for _, c := range []struct {
		memory      int64
		descriptors uint64
		runs        int
	}{{1 << 30, 256, 5}, {24 << 30, 65536, 1024}, {0, 16, 1}} {
		b := DefaultBounds(c.memory, c.descriptors)
		if b.Runs != c.runs || b.Memory < 4<<30 || b.Waiting < 1 || b.Wait <= 0 ||
			b.Connections < b.Runs {
			t.Errorf("%d bytes and %d descriptors: %+v", c.memory, c.descriptors, b)
		}
	}
}

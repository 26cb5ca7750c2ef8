package config

import (
	"strings"
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

// How many sessions a user may have open is a setting, within what the daemon takes.
func TestSessionsSetting(t *testing.T) {
	for text, want := range map[string]int{"": 0, "[sessions]\nuser = 100\n": 100} {
		var s Settings
		err := s.parse("jaild.toml", []byte(text))
		if b, _ := s.Bounds(); err != nil || b.Sessions != want {
			t.Errorf("%q: %d sessions, %v", text, b.Sessions, err)
		}
	}
	for _, text := range []string{"[sessions]\nuser = 0\n", "[sessions]\nuser = 257\n"} {
		if err := new(Settings).parse("jaild.toml", []byte(text)); err == nil ||
			!strings.Contains(err.Error(), "sessions.user") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

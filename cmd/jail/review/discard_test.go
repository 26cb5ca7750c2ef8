package review

import (
	"testing"
	"time"
)

func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "90m": 90 * time.Minute,
		"3d": 72 * time.Hour, "2w": 14 * 24 * time.Hour, "0d": 0} {
		if got, err := parseAge(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "d", "-3d", "-1h", "1.5d", "9999999d", "3 d", "1d2h"} {
		if got, err := parseAge(text); err == nil {
			t.Errorf("%q: %v, and no error", text, got)
		}
	}
}

package audit

import (
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "0s": now,
		"2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"2026-01-02":           time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
	} {
		if got, ok := audit.ParseTime(text, now); !ok || !got.Equal(want) {
			t.Errorf("%q is %v, %t, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"yesterday", "-1h", "90", "2026-13-01"} {
		if got, ok := audit.ParseTime(text, now); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

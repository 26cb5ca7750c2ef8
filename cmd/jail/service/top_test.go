package service

import (
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// Invocations of a session are shown with its name.
func TestTopSessions(t *testing.T) {
	var l look
	for _, r := range []struct{ id, global, session string }{{"task-7-abc", "3w5e", "3w5e"},
		{"4x6f", "", "3w5e"}, {"5y7g", "", "elsewhere"}, {"6z8h", "", ""}} {
		one := topRun{}
		one.ID, one.GlobalID, one.Session = r.id, r.global, r.session
		l.Runs = append(l.Runs, one)
	}
	for n, want := range []string{"SESSION", "-", "task-7-abc", "elsewhere", "-"} {
		if got := topRows(l)[n][1]; got != want {
			t.Errorf("row %d: %q, want %q", n, got, want)
		}
	}
}

// What a tool is called with does not reach the terminal as it is, and the screen is never larger
// than the terminal.
func TestTopScreen(t *testing.T) {
	l := look{Time: time.Unix(0, 0).UTC()}
	for range 50 {
		r := topRun{CPU: 12.34}
		r.ID, r.Tool, r.Args = "an-id", "cat", []string{"\x1b]0;title\x07",
			strings.Repeat("ü", 300)}
		r.Usage = &message.Usage{MemoryPeak: 1 << 20, PIDsPeak: 3, FetchRequests: 2}
		l.Runs = append(l.Runs, r)
	}
	var text strings.Builder
	output.Table(&text, topRows(l))
	for _, c := range []struct{ columns, lines int }{{80, 24}, {20, 5}, {300, 100}} {
		screen := topScreen(text.String(), len(l.Runs), l.Time, c.columns, c.lines, false)
		body, ok := strings.CutPrefix(screen, "\x1b[H\x1b[2J")
		if !ok || strings.ContainsAny(body, "\x1b\x07") {
			t.Fatalf("%d by %d: %q", c.columns, c.lines, screen)
		}
		lines := strings.Split(strings.TrimSuffix(body, "\r\n"), "\r\n")
		if len(lines) >= c.lines {
			t.Errorf("%d by %d: %d lines", c.columns, c.lines, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); n >= c.columns {
				t.Errorf("%d by %d: a line of %d: %q", c.columns, c.lines, n, line)
			}
		}
	}
	if screen := topScreen(text.String(), 50, l.Time, 200, 24, true); !strings.Contains(screen,
		"12.3%") || !strings.Contains(screen, "\x1b[36mID") {
		t.Errorf("%q", screen)
	}
}

package output

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/jail-sandbox/jail/jail/workspace"
)

// hostile are texts that a tool may choose to harm who reads them.
var hostile = []string{"\x1b[2J", "a\rb", "a\nb", "\x00", "\x7f", "\u009b31m", "\u202eevil",
	"zero\u200bwidth", "\xff\xfe", "a\tb\x07", "tag\U000E0041"}

func TestPrintable(t *testing.T) {
	for _, s := range []string{"", "plain", "größe", "日本語", `back\slash`, "a\tb", "emoji 🙂"} {
		if got := Printable(s); got != s {
			t.Errorf("%q shown as %q", s, got)
		}
	}
	for _, s := range hostile {
		got := Printable(s)
		if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q shown as %q", s, got)
		}
		if back, err := workspace.ParseName(got); err != nil || string(back) != s {
			t.Errorf("%q shown as %q, which is read back as %q, %v", s, got, back, err)
		}
	}
}

func TestEscapeJSON(t *testing.T) {
	for _, s := range hostile {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got := escapeJSON(want)
		if strings.ContainsFunc(string(got), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q written as %q", s, got)
		}
		var a, b string
		if json.Unmarshal(want, &a) != nil || json.Unmarshal(got, &b) != nil || a != b {
			t.Errorf("%q written as %s, which is read back as %q", s, got, b)
		}
	}
}

func TestTableKeepsItsLines(t *testing.T) {
	for _, s := range hostile {
		var b strings.Builder
		Table(&b, [][]string{{"A", "B"}, {s, "end"}})
		if lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"); len(lines) != 2 ||
			!strings.HasSuffix(lines[1], "  end") {
			t.Errorf("%q makes %q", s, b.String())
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB",
		1536: "1.5 KiB", 256 << 20: "256 MiB", 1 << 50: "1 PiB", 1 << 62: "4096 PiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int64
		want string
	}{{"memory", 256 << 20, "256 MiB"}, {"wall", 30000, "30s"}, {"cpu_time", 20500, "20.5s"},
		{"pids", 32, "32"}, {"output", 1 << 20, "1 MiB"}, {"nosuch", 7, "7"}} {
		if got := Quantity(c.name, c.n); got != c.want {
			t.Errorf("%s %d is %q, want %q", c.name, c.n, got, c.want)
		}
	}
}

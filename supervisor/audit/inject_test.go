package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// nasty is what tools put in names to forge lines, drive terminals or break parsers (T-536).
func nasty() map[string]string {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return map[string]string{
		"every byte":       string(all),
		"newline":          "a\nb\r\nc",
		"a whole record":   "x\"}\n{\"seq\":99,\"type\":\"denied\",\"prev\":\"sha256:00\"}\n",
		"colour and title": "\x1b[31mred\x1b]0;owned\x07\x1b[2J\x9b2J",
		"C1 as text":       "\u0080\u009b2J\u0085",
		"NUL and DEL":      "a\x00b\x7fc\x08\x08",
		"bidi":             "user\u202etxt.exe\u2066a\u2069\u200f\u061c",
		"zero width":       "a\u200b\u200c\u200d\ufeff\u2060b\u00ad\u034f\u3164",
		"separators":       "a\u2028b\u2029c\u00a0d",
		"tags":             "a\U000e0041\U000e007f\U000e0100",
		"private use":      "\ue000\U0010fffd",
		"broken UTF-8":     "a\xffb\xc3\x28c\xe2\x82d\xf0\x9f\x98\xed\xa0\x80\xc0\xafe",
		"replacement":      "\ufffd\ufffd\xffff\ufffdff",
		"looks escaped":    `\x1b \u001b \\ \n "q" ` + "\ufffdff",
		"emoji and han":    "🙂 漢字 é ﷽",
		"json":             `{"a":[1,null,"x"]}`,
		"empty":            "",
		"spaces":           " ",
	}
}

func (p place) one(t *testing.T, e Entry) (Record, []byte) {
	t.Helper()
	l := p.open(t)
	mustAppend(t, l, e)
	p.mustVerify(t, 1)
	text, err := os.ReadFile(p.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	p.mustVerify(t, 2)
	for r, err := range Scan(p.log, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		return r, text
	}
	t.Fatal("no record")
	return Record{}, nil
}

// harmless says whether b is one line that no terminal obeys any part of.
func harmless(b []byte) bool {
	if !utf8.Valid(b) || bytes.Count(b, []byte("\n")) != 1 || b[len(b)-1] != '\n' {
		return false
	}
	return !strings.ContainsFunc(strings.TrimSuffix(string(b), "\n"), hidden)
}

func TestHostileText(t *testing.T) {
	for name, text := range nasty() {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			e := Entry{Run: text, Session: text, Policy: text, Actor: Actor{Exe: text},
				Event: Exec{Program: text, Argv: []string{text, text}, Cwd: text}}
			r, line := p.one(t, e)
			if !harmless(line) {
				t.Errorf("stored line: %q", line)
			}
			if !json.Valid(line) {
				t.Errorf("not JSON: %q", line)
			}
			for what, got := range map[string]string{"run": r.Run, "session": r.Session,
				"exe": r.Actor.Exe, "policy": r.Policy} {
				if Original(got) != text {
					t.Errorf("%s is %q, want %q", what, Original(got), text)
				}
			}
			var argv []string
			for _, f := range r.Fields {
				if f.Name == "argv" {
					json.Unmarshal(f.Value, &argv)
				}
			}
			if len(argv) != 2 || Original(argv[0]) != text {
				t.Errorf("argv is %q, want %q", argv, text)
			}
			var shown, raw bytes.Buffer
			if err := Render(&shown, r); err != nil || !harmless(shown.Bytes()) {
				t.Errorf("rendered: %q, %v", shown.Bytes(), err)
			}
			if err := RenderJSON(&raw, r); err != nil || !bytes.Equal(raw.Bytes(), line) {
				t.Errorf("JSON: %q, %v", raw.Bytes(), err)
			}
		})
	}
}

// What the table shows can be turned back.
func TestWordReversible(t *testing.T) {
	for name, text := range nasty() {
		var stored string
		if err := json.Unmarshal(appendString(nil, text), &stored); err != nil {
			t.Fatal(err)
		}
		shown := word(stored)
		back := shown
		if strings.HasPrefix(shown, `"`) {
			var err error
			if back, err = strconv.Unquote(shown); err != nil {
				t.Errorf("%s: %q: %v", name, shown, err)
			}
		}
		if back != text {
			t.Errorf("%s: %q shows as %s, which is %q", name, text, shown, back)
		}
	}
}

// The control: what an unescaped log would have done.
func TestHarmlessSeesHarm(t *testing.T) {
	for _, name := range []string{"newline", "colour and title", "C1 as text", "bidi", "zero width",
		"tags", "broken UTF-8", "NUL and DEL"} {
		if harmless([]byte(nasty()[name] + "\n")) {
			t.Errorf("%s passes for harmless", name)
		}
	}
}

// A line that did not come from our writer can hold characters raw that ours would escape.
func TestRenderForged(t *testing.T) {
	body := `{"seq":1,"time":"2026-01-02T03:04:05Z","type":"a` + "\u202e" + `b","run":"` +
		"\u009b2J\u200b" + `","prev":"` + noLine().String() + `"}`
	r, err := ParseRecord([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var table, raw bytes.Buffer
	Render(&table, r)
	RenderJSON(&raw, r)
	if !harmless(table.Bytes()) || !harmless(raw.Bytes()) || !json.Valid(raw.Bytes()) {
		t.Errorf("%q\n%q", table.Bytes(), raw.Bytes())
	}
}

func TestLongText(t *testing.T) {
	huge := strings.Repeat("\xff\x1b\U000e0041", 10<<20/6)
	many := make([]string, 5000)
	for i := range many {
		many[i] = huge[:i%600]
	}
	p := newPlace(t)
	r, line := p.one(t, Entry{Run: huge, Session: huge,
		Event: RunStarted{Tool: huge, Argv: many, Env: many, Warnings: many}})
	if len(line) > maxLine || !harmless(line) {
		t.Fatalf("%d bytes in the line, want at most %d", len(line), maxLine)
	}
	var cuts []struct {
		Field, SHA256 string
		Items, Bytes  int
	}
	for _, f := range r.Fields {
		if f.Name == "cut" {
			if err := json.Unmarshal(f.Value, &cuts); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := sha256.Sum256([]byte(huge))
	list := sha256.New()
	for _, s := range many {
		list.Write(append([]byte(s), 0))
	}
	found := map[string]bool{}
	for _, c := range cuts {
		found[c.Field] = true
		if c.Field == "run" && (c.Bytes != len(huge) || c.SHA256 != hex.EncodeToString(whole[:])) {
			t.Errorf("run: %+v", c)
		}
		if c.Field == "argv" && (c.Items != 5000 || c.SHA256 != hex.EncodeToString(list.Sum(nil))) {
			t.Errorf("argv: %+v", c)
		}
	}
	for _, want := range []string{"run", "session", "tool", "argv", "env", "warnings",
		"warnings.255"} {
		if !found[want] {
			t.Errorf("nothing says that %s was cut", want)
		}
	}
	if got := Original(r.Run); !strings.HasPrefix(huge, got) || len(got) < maxText-4 {
		t.Errorf("run keeps %d bytes", len(got))
	}
}

func TestClip(t *testing.T) {
	tests := []struct {
		s    string
		n    int
		want string
	}{{"abc", 5, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"🙂", 3, ""}, {"a\x80\x80\x80\x80\x80",
		3, "a\x80\x80"}, {"x", 0, ""}}
	for _, tt := range tests {
		if got := clip(tt.s, tt.n); got != tt.want {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.s, tt.n, got, tt.want)
		}
	}
}

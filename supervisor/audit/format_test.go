package audit

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

var update = flag.Bool("update", false, "write the examples of docs/audit-format.md anew")

// TestFormatExample: the example of the documentation is a log as it is written, and verifies.
func TestFormatExample(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(p.keys, 0o700); err != nil {
		t.Fatal(err)
	}
	private, public, err := note.GenerateKey(zeros{}, "jail-audit/3f9a51c07d2e")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.keys, keyFile), []byte(private+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	opt := p.options()
	opt.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	opt.Actor = Actor{UID: 0, PID: 41, Exe: "/usr/bin/jaild"}
	l, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{
		{Actor: Actor{UID: 1000, PID: 42, Exe: "/usr/bin/jail"}, Run: "r1",
			Policy: "sha256:5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
			Event: Denied{Layer: "wasi", What: "read /etc/shadow", Rule: "not in the tool's view",
				Count: 1}},
		{Event: DaemonStopped{}, Actor: opt.Actor},
	} {
		if _, err := l.Append(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	p.mustVerify(t, 3)
	records, err := os.ReadFile(p.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(p.log, headFile))
	if err != nil {
		t.Fatal(err)
	}
	const path = "../../docs/audit-format.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, block := range map[string]string{"records": string(records), "head": string(head),
		"key": public + "\n"} {
		re := regexp.MustCompile("(?s)(<!-- " + name + " -->\n```[a-z]*\n).*?(```\n)")
		if !re.MatchString(want) {
			t.Fatalf("%s has no block of %s", path, name)
		}
		want = re.ReplaceAllString(want, "${1}"+strings.ReplaceAll(block, "$", "$$")+"${2}")
	}
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s shows another log; go test ./supervisor/audit -run FormatExample -update "+
			"writes it anew", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

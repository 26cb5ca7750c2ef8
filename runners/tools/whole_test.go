package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every command of the bundle starts, and says what it does. The few that POSIX
// wants to be silent are run plainly. With what code a command leaves after its
// help is its own affair.
func TestEveryCommandStarts(t *testing.T) {
	b := tools(t)
	silent := []string{"true", "false", "test"}
	for _, name := range b.core {
		args := []string{name, "--help"}
		switch {
		case name == "awk":
			args[1] = "--version"
		case slices.Contains(silent, name):
			args = args[:1]
		}
		got := b.inJail(t, t.TempDir(), "", args...)
		if got.stdout == "" && !slices.Contains(silent, name) {
			t.Errorf("%s: %d %q", name, got.code, got.stderr)
		}
	}
}

// What cannot work says so, and does not stop half-way in silence.
func TestOtherProgramsAreRefused(t *testing.T) {
	b := tools(t)
	for _, args := range [][]string{
		{"find", ".", "-exec", "rm", "{}", ";"},
		{"find", ".", "-name", "fruit", "-ok", "rm", "{}", "+"},
		{"awk", `BEGIN { system("rm fruit") }`},
		{"awk", `BEGIN { print "x" | "cat" }`},
		{"awk", `BEGIN { "date" | getline d }`},
		{"env", "sh", "-c", "rm fruit"},
		{"tar", "-I", "gzip", "-tf", "fruit"},
		{"tar", "-cJf", "x.tar.xz", "fruit"},
		{"sed", "1e rm fruit", "fruit"},
		{"mlr", "--icsv", "--ojson", "put", `$x = system("rm fruit")`, "table.csv"},
		{"mlr", "--icsv", "--ojson", "put", `$x = exec("rm", ["fruit"])`, "table.csv"},
		{"mlr", "--csv", "put", "-q", `tee | "cat", $*`, "table.csv"},
		{"mlr", "--csv", "--prepipe", "cat", "cat", "table.csv"},
	} {
		dir := fixture(t)
		before := tree(t, dir)
		got := b.inJail(t, dir, "", args...)
		if got.code == 0 || got.stderr == "" {
			t.Errorf("%q: %d %q %q", args, got.code, got.stdout, got.stderr)
		}
		if args[0] != "tar" && got.tree != before {
			t.Errorf("%q changed:\n%s", args, got.tree)
		}
	}
}

// Archives that one side writes, the other reads.
func TestArchives(t *testing.T) {
	b := tools(t)
	run := func(side string, dir string, args ...string) outcome {
		t.Helper()
		do := onHost
		if side == "jail" {
			do = b.inJail
		}
		got := do(t, dir, "", args...)
		if got.code != 0 {
			t.Fatalf("%s %q: %d %q", side, args, got.code, got.stderr)
		}
		return got
	}
	kinds := []struct{ flag, name, by string }{
		{"", "x.tar", "jail"}, {"z", "x.tgz", "jail"},
		{"", "x.tar", "host"}, {"z", "x.tar.gz", "host"}, {"j", "x.tar.bz2", "host"}, {"J",
			"x.tar.xz", "host"},
	}
	for _, k := range kinds {
		t.Run(k.by+" "+k.name, func(t *testing.T) {
			other := map[string]string{"jail": "host", "host": "jail"}[k.by]
			dir := fixture(t)
			long := filepath.Join(dir, "d", strings.Repeat("long-name-", 12))
			must(t, os.WriteFile(long, []byte(strings.Repeat("0123456789", 50000)), 0o644))
			run(k.by, dir, "tar", "-c"+k.flag+"f", k.name, "d", "fruit", "link", "empty")
			list := run(other, dir, "tar", "-tf", k.name).stdout
			if !strings.Contains(list, "d/deep/er/text\n") || !strings.Contains(list, "link\n") {
				t.Errorf("listed %q", list)
			}
			out := filepath.Join(dir, "out")
			must(t, os.Mkdir(out, 0o755))
			run(other, dir, "tar", "-x"+k.flag+"f", k.name, "-C", "out")
			for _, name := range []string{"d/deep/er/text", "d/" + filepath.Base(long), "fruit",
				"empty"} {
				want, err := os.ReadFile(filepath.Join(dir, name))
				must(t, err)
				if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != string(want) {
					t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
				}
			}
			if to, err := os.Readlink(filepath.Join(out, "link")); to != "fruit" {
				t.Errorf("link: %q, %v", to, err)
			}
		})
	}

	dir := fixture(t)
	run("jail", dir, "gzip", "-9", "fruit")
	if got := run("host", dir, "gzip", "-dc", "fruit.gz"); !strings.HasPrefix(got.stdout,
		"banana 3\n") {
		t.Errorf("gzip by jail: %q", got.stdout)
	}
	run("host", dir, "gzip", "sorted")
	if got := run("jail", dir, "zcat", "sorted.gz", "fruit.gz"); got.stdout != "apple\nbanana\n"+
		"cherry\nbanana 3\napple 10\ncherry 2\napple 10\nDate 7\n" {
		t.Errorf("zcat: %q", got.stdout)
	}
	run("jail", dir, "gunzip", "sorted.gz")
	run("host", dir, "bzip2", "fruit2")
	run("host", dir, "xz", "tabs")
	if got := run("jail", dir, "bzcat", "fruit2.bz2"); !strings.HasPrefix(got.stdout,
		"banana 3\napple 11\n") {
		t.Errorf("bzcat: %q", got.stdout)
	}
	if got := run("jail", dir, "xzcat", "tabs.xz"); got.stdout != "a\tb\tc\n1\t2\t3\n" {
		t.Errorf("xzcat: %q", got.stdout)
	}
	must(t, os.WriteFile(filepath.Join(dir, "bad.gz"), []byte(
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03KJ\xcc"), 0o644))
	if got := b.inJail(t, dir, "", "zcat", "bad.gz"); got.code == 0 {
		t.Errorf("a cut gzip file: %q", got.stdout)
	}
}

// grep leaves out lines that cannot match before it looks closely (lines.c):
// whatever the pattern, the answer has to be that of a grep that does not.
func TestGrepAsDebian(t *testing.T) {
	b := tools(t)
	dir := t.TempDir()
	var text strings.Builder
	words := []string{"alpha", "Beta", "gamma{2}", "delta.go", "a*b", "x(y)z", "[set]", "p|q",
		"ends$", "^starts", `back\slash`, "naïve", "foo_bar", "foo bar", "", "aaab", "tab\there"}
	for i := range 300 {
		fmt.Fprintf(&text, "%s %d %s\n", words[i%len(words)], i*7919%1000, words[i*31%len(words)])
	}
	text.WriteString("no end of line: beta")
	must(t, os.WriteFile(filepath.Join(dir, "text"), []byte(text.String()), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "nothing"), nil, 0o644))
	// Lines across the ends of the buffer, and one that is longer than it.
	wide := strings.Repeat(text.String()+"\n", 20) + strings.Repeat("-----", 30000) + "alpha\n" + text.String()
	must(t, os.WriteFile(filepath.Join(dir, "wide"), []byte(wide), 0o644))

	patterns := []string{
		"alpha", "^alpha", "beta$", "a.pha", "al*pha", "alphx*a", `a\*b`, "a*b", "[A-C]eta",
		"[[:upper:]]eta", "[]x]", "[^]a]b",
		`\(foo\)_bar`, `\(fo*\)\1`, `gam\{2\}a`, "gamma{2}", `gamma\{1,\}`, "x(y)z", `x\(y\)z`,
		"p|q", `p\|q`, `alpha\|Beta`, "ends$", `ends\$`, "^^starts", `\^starts`,
		`back\\slash`, "naïve", "na.ve", "naï*ve", `\bfoo\b`, `\<bar\>`, `foo\wbar`, `foo\Wbar`, "",
		".", "^$", "^", "$", "--alpha", "no end", `fo\+_`, `fo\?o`,
		`delta\.go`, "delta.go 1", "1[0-9]*9 ", "xyzzy", "a",
	}
	extended := []string{
		"alpha|Beta", "(alpha|Beta) 1", "al+pha", "al?pha", "(al)?pha", "(al|be)*ta", "gam{2}a",
		"gamma.2.", `gamma\{2\}`, `x\(y\)z`, "[(]y[)]", "a{1,3}b",
		"(foo)_(bar)", "(a(b|c)?)+ ", "^(alpha|foo).*9", "foo( |_)bar", `p\|q`, "(^| )foo",
		"(naïve|foo)$", "x*", "()alpha", "a|", `(foo) .*\1`,
	}
	flags := []string{"-c", "-i", "-v", "-w", "-x", "-o", "-nb"}
	for i, p := range append(patterns, extended...) {
		kind := "-G"
		if i >= len(patterns) {
			kind = "-E"
		}
		for _, f := range flags {
			if (f == "-w" || f == "-o") && slices.Contains(canBeEmpty, p) {
				continue
			}
			host := []string{"grep", kind, f, "--", p, "text", "nothing"}
			if f == "-c" {
				host = append(host, "wide")
			}
			args := append([]string{}, host...)
			if kind == "-G" { // the default, for which toybox has no flag
				args = slices.Delete(args, 1, 2)
			}
			want := onHost(t, dir, "", host...)
			got := b.inJail(t, dir, "", args...)
			if got.stdout != want.stdout || got.code != want.code {
				t.Errorf("grep %s %s %q: %d, %.200q\nDebian's: %d, %.200q\nstderr %q", kind, f, p, got.code, got.stdout, want.code, want.stdout, got.stderr)
			}
		}
	}
}

// canBeEmpty are patterns that match nothing at all as well; what -w and -o make
// of that is in DIFFERENCES.md.
var canBeEmpty = []string{"", "^", "$", "x*", "a|", "."}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

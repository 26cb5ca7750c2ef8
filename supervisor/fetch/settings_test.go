package fetch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// TestSources: a secret is read from where it is said to be, and from nowhere that others could
// have put it (T-268).
func TestSources(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", canary+"\n", 0o640)
	theirs := file("theirs", canary, 0o600)
	if err := os.Chown(theirs, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	t.Setenv("A_SECRET", canary)
	for name, c := range map[string]struct {
		from Credential
		// Of the error; none is wanted where it is empty.
		says string
	}{
		"a file":                   {Credential{File: good}, ""},
		"a file of root alone":     {Credential{File: file("own", canary, 0o400)}, ""},
		"systemd":                  {Credential{Systemd: "good"}, ""},
		"a variable":               {Credential{Env: "A_SECRET"}, ""},
		"a command":                {Credential{Command: []string{"/bin/echo", canary}}, ""},
		"a file of others":         {Credential{File: theirs}, "not root's"},
		"a file that all can read": {Credential{File: file("open", canary, 0o644)}, "0644"},
		"a file that others write": {Credential{File: file("written", canary, 0o660)}, "0660"},
		"a link":                   {Credential{File: link}, "cannot be opened"},
		"a pipe":                   {Credential{File: fifo}, "no regular file"},
		"a directory":              {Credential{File: dir}, "no regular file"},
		"a device":                 {Credential{File: "/dev/zero"}, "no regular file"},
		"a file that is too large": {Credential{File: file("large",
			strings.Repeat("x", maxSecret+1), 0o600)}, "larger"},
		"no file":     {Credential{File: filepath.Join(dir, "none")}, "cannot be opened"},
		"a short one": {Credential{File: file("short", "short", 0o600)}, "shorter"},
		"two lines": {Credential{File: file("lines", canary+"\r\nX-Evil: 1", 0o600)},
			"line end"},
		"bytes of no text":     {Credential{File: file("bytes", canary+"\xff", 0o600)}, "plain text"},
		"no variable":          {Credential{Env: "NO_SECRET"}, "NO_SECRET"},
		"a command that fails": {Credential{Command: []string{"/bin/false"}}, "failed"},
		"a command that floods": {Credential{Command: []string{"/bin/sh", "-c",
			"head -c 100000 /dev/zero"}}, "more than"},
	} {
		c.from.Name, c.from.Kind = "c", secretBearer
		s := Settings{Credentials: []Credential{c.from}}
		setup, err := s.SetupFor(context.Background(), withCredential(t))
		switch {
		case c.says == "" && (err != nil || setup.Secrets["c"].Value != canary):
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), canary)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	// What no rule names is not even read.
	s := Settings{Credentials: []Credential{{Name: "other", Kind: secretBearer, File: theirs},
		{Name: "c", Kind: secretBearer, File: good}}}
	if setup, err := s.SetupFor(context.Background(), withCredential(t)); err != nil ||
		len(setup.Secrets) != 1 {
		t.Errorf("%d secrets, %v", len(setup.Secrets), err)
	}
}

func withCredential(t *testing.T) policy.Effective {
	t.Helper()
	var layers []policy.Layer
	for _, l := range setupOf(t, anyTo+"credential = \"c\"\n").Layers {
		layers = append(layers,
			policy.Layer{Name: l.Name, Source: l.Source, Policy: policy.Policy{Fetch: l.Fetch}})
	}
	eff, err := policy.Resolve(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return eff
}

// TestBadSettings: what is not understood is refused, with what it is.
func TestBadSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fetch.toml")
	credential := "[[credential]]\nname = \"c\"\n"
	for text, says := range map[string]string{
		"resolver = [\"1.1.1.1\"]\n":      "resolver",
		"resolvers = [\"dns.example\"]\n": "dns.example",
		"resolvers = \"1.1.1.1\"\n":       "resolvers is a string",
		"nat64 = [\"64:ff9b::/64\"]\n":    "nat64",
		"nat64 = [\"::ffff:0:0/96\"]\n":   "nat64",
		"queries = 1\n":                   "queries is a number",
		credential +
			"kind = \"bearer\"\n": "one of file",
		credential +
			"kind = \"bearer\"\nfile = \"/a\"\nenv = \"B\"\n": "one of file",
		credential +
			"kind = \"bearer\"\nfile = \"a\"\n": "absolute",
		credential +
			"kind = \"bearer\"\ncommand = [\"a\"]\n": "absolute",
		credential +
			"kind = \"bearer\"\nsystemd = \"../a\"\n": "plain name",
		credential +
			"kind = \"cookie\"\nfile = \"/a\"\n": "cookie",
		credential +
			"kind = \"header\"\nfile = \"/a\"\n": "name of a header",
		credential +
			"kind = \"header\"\nheader = \"Host\"\nfile = \"/a\"\n": "Host",
		credential +
			"kind = \"header\"\nheader = \"A: b\"\nfile = \"/a\"\n": "name of a header",
		credential +
			"kind = \"query\"\nfile = \"/a\"\n": "parameter",
		credential +
			"kind = \"basic\"\nfile = \"/a\"\n": "user",
		credential +
			"kind = \"sigv4\"\nfile = \"/a\"\n": "region",
		credential +
			"kind = \"bearer\"\nvalue = \"in the file itself\"\nfile = \"/a\"\n": "value",
		strings.Repeat(credential+"kind = \"bearer\"\nfile = \"/a\"\n", 2):                        "twice",
		"[[credential]]\nname = \"*\"\nkind = \"bearer\"\nfile = \"/a\"\n":                        "",
		fmt.Sprintf("[[credential]]\nname = %q\nkind = \"bearer\"\nfile = \"/a\"\n", "a\tb"):      "",
		"[[credential]]\nname = \"\"\nkind = \"bearer\"\nfile = \"/a\"\nallow_cleartext = true\n": "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSettings(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if err := os.WriteFile(path, []byte("queries = true\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSettings(path); err == nil {
		t.Error("a file that everybody can write is taken")
	}
	if _, err := ReadSettings(filepath.Join(t.TempDir(), "none.toml")); err != nil {
		t.Errorf("no file: %v", err)
	}
}

// TestTally: of refusals alike the first is told at once, and the others as a number, so that a
// flood of them costs the log nothing.
func TestTally(t *testing.T) {
	w := newWorld(t, anyTo)
	for range 50 {
		if status, _ := w.get("http://other.example.org/"); status != 403 {
			t.Fatal(status)
		}
	}
	_, _, refused := w.notes.take()
	if len(refused) != 1 || refused[0].Count != 1 {
		t.Errorf("%+v", refused)
	}
	w.proxy.refused.settle()
	w.proxy.refused.settle()
	if _, _, refused = w.notes.take(); len(refused) != 1 || refused[0].Count != 49 {
		t.Errorf("%+v", refused)
	}
	for i := range 2 * maxRefused {
		w.get(fmt.Sprintf("http://n%d.example.org/", i))
	}
	w.proxy.refused.settle()
	total, kinds := int64(0), 0
	_, _, refused = w.notes.take()
	for _, r := range refused {
		total += r.Count
		kinds++
	}
	if total != 2*maxRefused || kinds > maxRefused+2 {
		t.Errorf("%d refusals in %d records", total, kinds)
	}
}

package view

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var secrets = map[string]string{
	".env": "secret", "d/.env": "secret", "d/f": "f", "keys/a.pem": "secret",
	"private/x/y": "secret", "plain": "plain",
	"lenv": "-> .env", "ldir": "-> private", "chain": "-> lenv", "abs": "-> /w/.env",
	"d/up": "-> ../.env", "lplain": "-> plain", "ld": "-> d",
}

func hiding(t *testing.T, hide ...string) (*Dir, *log, string) {
	t.Helper()
	dir := files(t, secrets)
	v, l := newView(t, mountAt(t, "/w", dir, true, hide...))
	return sub(t, root(t, v), "w"), l, dir
}

// reaches lists the paths at which a secret can be read.
func reaches(d *Dir) []string {
	var out []string
	for _, p := range []string{".env", "./.env", "d/.env", "d/../.env", "d/./../.env", "keys/a.pem",
		"private/x/y", "private/./x/y", "lenv", "chain",
		"ldir/x/y", "abs", "d/up", "ld/.env", "ld/../.env", "private/../.env", ".env/"} {
		if s, e := text(d, p); e == 0 && s == "secret" {
			out = append(out, p)
		} else if _, e := d.Stat(p, true); e == 0 {
			out = append(out, "stat "+p)
		}
	}
	return out
}

func TestHidden(t *testing.T) {
	control, _, _ := hiding(t)
	if got := reaches(control); len(got) < 14 {
		t.Errorf("with nothing hidden only %q are reached", got)
	}
	d, l, dir := hiding(t, ".env", "**/*.pem", "/private")
	if got := reaches(d); got != nil {
		t.Errorf("reached: %q", got)
	}
	if !slices.Contains(*l, "read /w/.env: "+ruleHidden) {
		t.Errorf("records: %q", *l)
	}
	for p, want := range map[string]string{"plain": "plain", "lplain": "plain", "ld/f": "f",
		"d/../plain": "plain"} {
		if got, e := text(d, p); got != want || e != 0 {
			t.Errorf("%s: %q %v", p, got, e)
		}
	}
	if got := names(t, d); got != ". .. abs chain d keys ld ldir lenv lplain plain" {
		t.Errorf("lists %s", got)
	}
	if got := names(t, sub(t, d, "d")); got != ". .. f up" {
		t.Errorf("d lists %s", got)
	}
	if got := names(t, sub(t, d, "keys")); got != ". .." {
		t.Errorf("keys lists %s", got)
	}
	create := How{Write: true, Create: true, Truncate: true, Follow: true}
	through := func(p string) Errno { _, e := d.Open(p, create); return e }
	for name, got := range map[string][2]Errno{
		"create":             {through(".env"), syscall.EPERM},
		"create new":         {through("d/new.pem"), syscall.EPERM},
		"create by link":     {through("lenv"), syscall.EPERM},
		"create below":       {through("private/new"), syscall.EPERM},
		"create below link":  {through("ldir/new"), syscall.EPERM},
		"mkdir":              {d.Mkdir("new.pem"), syscall.EPERM},
		"symlink":            {d.Symlink("plain", "x/../.env"), syscall.ENOENT},
		"symlink at":         {d.Symlink("plain", "other.pem"), syscall.EPERM},
		"rename onto":        {d.Rename("plain", d, ".env"), syscall.EPERM},
		"rename to new":      {d.Rename("plain", d, "d/p.pem"), syscall.EPERM},
		"rename from":        {d.Rename(".env", d, "seen"), syscall.ENOENT},
		"rename by link":     {d.Rename("ldir/x", d, "seen"), syscall.ENOENT},
		"link from":          {d.Link(".env", d, "seen"), syscall.ENOENT},
		"link onto":          {d.Link("plain", d, "q.pem"), syscall.EPERM},
		"unlink":             {d.Unlink(".env"), syscall.ENOENT},
		"rmdir":              {d.Rmdir("private"), syscall.ENOENT},
		"move a hidden root": {d.Rename("private", d, "seen"), syscall.ENOENT},
		"hide by moving":     {d.Rename("d", d, "private/d"), syscall.EPERM},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v, want %v", name, got[0], got[1])
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, ".env")); err != nil || string(b) != "secret" {
		t.Errorf("the hidden file is now %q, %v", b, err)
	}
}

// Moving a directory must not show what a pattern with a path hides.
func TestHiddenMoves(t *testing.T) {
	d, l, _ := hiding(t, "/d/f", "*.pem")
	if e := d.Rename("d", d, "moved"); e != syscall.EPERM {
		t.Errorf("moving the directory of a hidden file: %v", e)
	}
	if !slices.ContainsFunc(*l, func(s string) bool {
		return strings.HasPrefix(s, "write /w/d: ")
	}) {
		t.Errorf("records: %q", *l)
	}
	// A name that is hidden wherever it is may move.
	open := sub(t, d, "keys")
	if e := d.Rename("keys", d, "other"); e != 0 {
		t.Errorf("moving a directory that stays as hidden as it is: %v", e)
	}
	if _, e := text(open, "a.pem"); e != syscall.ENOENT {
		t.Errorf("through the open directory: %v", e)
	}
	if e := d.Rename("other", d, "d/other"); e != 0 {
		t.Error(e)
	}
	// Making the hidden name out of parts.
	if e := d.Mkdir("new"); e != 0 {
		t.Error(e)
	}
	if _, e := d.Open("new/f", How{Write: true, Create: true}); e != 0 {
		t.Error(e)
	}
	if e := d.Rename("d", d, "d2"); e != syscall.EPERM {
		t.Errorf("moving it away: %v", e)
	}
	if e := d.Rename("new", d, "d/new"); e != 0 {
		t.Errorf("moving beside it: %v", e)
	}
}

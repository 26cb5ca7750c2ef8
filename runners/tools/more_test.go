package tools

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A moreUse is one ordinary use of a tool of the bundles besides core-utils. Where the host has
// Debian's tool of the same name it is asked as well, and has to say the same; ours says that it is
// not asked, for one of the differences that DIFFERENCES.md lists.
type moreUse struct {
	argv  []string
	stdin string
	want  string
	code  int
	ours  bool
}

// What is there for more than one tool: files beside those of fixture.
func moreFixture(t *testing.T) string {
	t.Helper()
	dir := fixture(t)
	files := maps.Clone(dataFiles)
	maps.Copy(files, map[string]string{
		"json": `{"x":1}`, "program": "# of jq\n.x\n",
		"ignored/.ignore": "build/\n*.log\n", "ignored/build/x": "only here\n", "ignored/notes.log": "only here\n",
		"ignored/shown": "only here\n", "ignored/.hidden": "only here\n",
	})
	for name, text := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func TestMoreAsDebian(t *testing.T) {
	b := tools(t)
	for _, uses := range [][]moreUse{jqUses, yqUses, gojqUses, mlrUses, sqliteUses, rgUses} {
		name := uses[0].argv[0]
		_, err := exec.LookPath(name)
		onDebian := err == nil
		for _, u := range uses {
			t.Run(strings.Join(u.argv, " "), func(t *testing.T) {
				b.has(t, name)
				dir := moreFixture(t)
				got := b.inJail(t, dir, u.stdin, u.argv...)
				if got.stdout != u.want && u.want != "*" || got.code != u.code {
					t.Errorf("%d %q, want %d %q; stderr %q", got.code, got.stdout, u.code, u.want, got.stderr)
				}
				if !onDebian || u.ours {
					return
				}
				host := onHost(t, moreFixture(t), u.stdin, u.argv...)
				if host.stdout != u.want || host.code != u.code {
					t.Errorf("Debian's: %d %q, want %d %q; stderr %q", host.code, host.stdout, u.code, u.want, host.stderr)
				}
				if host.tree != got.tree {
					t.Errorf("files:\n%.2000s\nDebian's:\n%.2000s", got.tree, host.tree)
				}
			})
		}
	}
}

// A database that one side writes, the other reads, and neither is hurt.
func TestDatabases(t *testing.T) {
	b := tools(t)
	b.has(t, "sqlite3")
	dir := t.TempDir()
	if got := b.inJail(t, dir, "create table t(a);\ninsert into t values(1);\n", "sqlite3", "x.db"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := b.inJail(t, dir, "", "sqlite3", "x.db", "select a+1 from t"); got.stdout != "2\n" {
		t.Errorf("what was written is read as %+v", got)
	}
	if _, err := exec.LookPath("sqlite3"); err == nil {
		if host := onHost(t, dir, "", "sqlite3", "x.db", "pragma integrity_check; insert into t "+
			"values(5)"); host.stdout != "ok\n" {
			t.Errorf("the host's sqlite3 says %+v", host)
		}
		if got := b.inJail(t, dir, "", "sqlite3", "x.db", "select sum(a) from t"); got.stdout != "6\n" {
			t.Errorf("what the host wrote is read as %+v", got)
		}
	}
	for _, command := range []string{".system ls", ".shell ls", ".load x"} {
		if got := b.inJail(t, dir, command+"\n", "sqlite3", ":memory:"); got.stdout != "" || got.stderr == "" {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

package inherit

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The identity is what git itself finds, with and without a start of git.
func TestIdentity(t *testing.T) {
	if _, err := os.Stat(gitPrograms[0]); err != nil {
		t.Skip("this host has no git")
	}
	home := t.TempDir()
	systemConfig = filepath.Join(home, "gitconfig")
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"HOME=" + home, "PATH=/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM=1"}
	for _, dir := range []string{"plain", "own", "linked"} {
		cmd := exec.Command(gitPrograms[0], "init", "-q", filepath.Join(home, dir))
		cmd.Env = environ
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	write("own/sub/x", "")
	write("own/.git/config", "[core]\n\tbare = false\n[User]\n\tEmail = me@own.example\n"+
		"[committer]\n\tname=Committer\n")
	write("included", "[user]\n\temail = me@work.example\n")
	write(".config/git/config", "[user]\n\tname = Ex Dee Gee\n\temail = xdg@example.com\n")
	const plain = "# mine\n[user]\n\tname = Ada Lovelace\n[alias]\n\tname = log\n"
	for _, c := range []struct {
		text string
		// fast says that no git was needed.
		fast                     bool
		dir                      string
		author, mail, by, byMail string
		environ                  []string
	}{
		{plain, true, "plain", "Ada Lovelace", "xdg@example.com", "Ada Lovelace",
			"xdg@example.com", nil},
		{plain, true, "own/sub", "Ada Lovelace", "me@own.example", "Committer",
			"me@own.example", nil},
		{plain, true, "", "Ada Lovelace", "xdg@example.com", "Ada Lovelace",
			"xdg@example.com", nil},
		{plain + "[user] email = \"q\\\"u@example.com\" ; quoted\n", false, "plain",
			"Ada Lovelace", `q"u@example.com`, "Ada Lovelace", `q"u@example.com`, nil},
		{plain + "[includeIf \"gitdir:~/plain/\"]\n\tpath = included\n", false, "plain",
			"Ada Lovelace", "me@work.example", "Ada Lovelace", "me@work.example", nil},
		{plain + "[core]\n\tx = a\\\n[user]\n\temail = no\n", false, "plain",
			"Ada Lovelace", "xdg@example.com", "Ada Lovelace", "xdg@example.com", nil},
		{plain, false, "plain", "Ada Lovelace", "env@example.com", "Ada Lovelace",
			"env@example.com", []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=user.email",
				"GIT_CONFIG_VALUE_0=env@example.com"}},
	} {
		write(".gitconfig", c.text)
		dir, all := filepath.Join(home, c.dir), slices.Concat(environ[:2], c.environ)
		have := func(name string) (string, bool) {
			if name == "HOME" {
				return home, true
			}
			return "", false
		}
		if _, fast := readSettings(have, all, dir); fast != c.fast {
			t.Errorf("%q in %q: fast %v", c.text, c.dir, fast)
		}
		want := []string{"GIT_AUTHOR_NAME=" + c.author, "GIT_AUTHOR_EMAIL=" + c.mail,
			"GIT_COMMITTER_NAME=" + c.by, "GIT_COMMITTER_EMAIL=" + c.byMail}
		if got := identity(all, dir); !slices.Equal(got, want) {
			t.Errorf("%q in %q: %q, want %q", c.text, c.dir, got, want)
		}
	}
	// What the caller has in the environment stays, also an empty value.
	mine := append(slices.Clone(environ[:2]), "GIT_AUTHOR_NAME=", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@d")
	if got := identity(mine, home); got != nil {
		t.Errorf("with an identity: %q", got)
	}
	// Without a configuration the address is that of the environment, and nothing is made up.
	write("empty/x", "")
	none := []string{"HOME=" + filepath.Join(home, "empty"), "EMAIL=e@example.com",
		"GIT_CONFIG_NOSYSTEM=1"}
	want := []string{"GIT_AUTHOR_EMAIL=e@example.com", "GIT_COMMITTER_EMAIL=e@example.com"}
	if got := identity(none, filepath.Join(home, "empty")); !slices.Equal(got, want) {
		t.Errorf("without a configuration: %q", got)
	}
}

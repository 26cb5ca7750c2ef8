package cmd_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A package is the scripts of the Debian package, and a systemctl that notes what it is told. Units
// are enabled, active or masked where a file beside it says so.
type packageScripts struct {
	t   *testing.T
	dir string
}

const fakeSystemctl = `#!/bin/sh
dir=${0%/*}/..
case "$*" in
*is-active*|*is-enabled*) [ -e "$dir/${*##* is-}" ]; exit ;;
esac
echo "$*" >>"$dir/told"
case "$1" in enable|start|try-restart) [ ! -e "$dir/masked" ] ;; esac
`

func newPackageScripts(t *testing.T) *packageScripts {
	t.Helper()
	p := &packageScripts{t, t.TempDir()}
	for _, dir := range []string{"bin", "run/systemd/system", "var/lib/jail"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"systemctl": fakeSystemctl,
		"systemd-sysusers": "#!/bin/sh\n", "systemd-tmpfiles": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, "bin", name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// say makes things so for systemctl: "active jaild.service", "enabled jaild.socket", "masked".
func (p *packageScripts) say(all ...string) {
	p.t.Helper()
	for _, name := range all {
		if err := os.WriteFile(filepath.Join(p.dir, name), nil, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
}

// run does what dpkg does, and returns what systemctl was told to change.
func (p *packageScripts) run(script string, args ...string) string {
	p.t.Helper()
	told, _ := p.runSays(script, args...)
	return told
}

// runSays is run, and returns also what the script said.
func (p *packageScripts) runSays(script string, args ...string) (did, said string) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", ".packaging", "deb", script))
	if err != nil {
		p.t.Fatal(err)
	}
	here := strings.NewReplacer("/run/systemd", p.dir+"/run/systemd", "/var/lib/jail",
		p.dir+"/var/lib/jail",
		"/var/log/jail", p.dir+"/var/log/jail", "/etc/jail",
		p.dir+"/etc/jail").Replace(string(text))
	cmd := exec.Command("sh", append([]string{"-c", here, script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("%s %q: %v\n%s", script, args, err, out)
	}
	told := filepath.Join(p.dir, "told")
	all, err := os.ReadFile(told)
	if err := errors.Join(err, os.Remove(told)); err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(string(all), "\n", "; "),
		"daemon-reload; ", "")), string(out)
}

// The package enables the socket once. An upgrade leaves what an operator says of the units, lets
// the new daemon take over, and the journal have its new program.
func TestPackageScripts(t *testing.T) {
	const (
		enable   = "enable jaild.socket; start jaild.socket;"
		takeOver = "kill --signal=USR2 --kill-whom=main jaild.service; "
		journal  = "try-restart jail-journal.service;"
	)
	for name, c := range map[string]struct {
		is      []string
		version string // that was configured before
		want    string
	}{
		"first":         {nil, "", enable},
		"first, masked": {[]string{"masked"}, "", "enable jaild.socket;"},
		"upgrade": {[]string{"active jaild.service", "enabled jaild.socket"},
			"0.6.0-1", takeOver + journal},
		"upgrade, inactive": {[]string{"enabled jaild.socket"}, "0.6.0-1", journal},
		"upgrade, disabled": {nil, "0.6.0-1", journal},
		"upgrade, disabled, runs": {[]string{"active jaild.service"}, "0.6.0-1",
			takeOver + journal},
		"upgrade, masked": {[]string{"masked"}, "0.6.0-1", journal},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPackageScripts(t)
			p.say(c.is...)
			if got := p.run("postinst", "configure", c.version); got != c.want {
				t.Errorf("systemctl was told\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// What is installed again after a removal is as it was before.
func TestPackageReturns(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		p := newPackageScripts(t)
		want := "try-restart jail-journal.service;"
		if enabled {
			p.say("enabled jaild.socket")
			want = "enable jaild.socket; start jaild.socket;"
		}
		if got := p.run("prerm",
			"remove"); got != "disable --now jail-journal.service jaild.socket jaild.service;" {
			t.Error(got)
		}
		if got := p.run("postinst", "configure", "0.6.0-1"); got != want {
			t.Errorf("enabled %v: %s, want %s", enabled, got, want)
		}
		if got := p.run("postinst", "configure",
			"0.7.0-1"); got != "try-restart jail-journal.service;" {
			t.Errorf("then upgraded: %s", got)
		}
	}
}

// A purge keeps the audit log, with the key without which nothing can be added to it, and says so.
// Where there is no log, nothing is kept.
func TestPackagePurge(t *testing.T) {
	for _, logged := range []bool{true, false} {
		p := newPackageScripts(t)
		files := []string{"var/lib/jail/keys/audit.key", "var/lib/jail/runs/x",
			"var/lib/jail/.hidden", "var/lib/jail-tools/x", "var/lib/jail-journal/cursor",
			"etc/jail/profiles/x.toml"}
		if logged {
			files = append(files, "var/log/jail/audit/head")
		}
		for _, file := range files {
			path := filepath.Join(p.dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		_, said := p.runSays("postrm", "remove")
		if _, err := os.Stat(filepath.Join(p.dir, "var/lib/jail/runs/x")); err != nil ||
			said != "" {
			t.Errorf("a removal took state away, or said something: %v, %q", err, said)
		}
		_, said = p.runSays("postrm", "purge")
		var left []string
		for _, file := range files {
			if _, err := os.Stat(filepath.Join(p.dir, file)); err == nil {
				left = append(left, file)
			}
		}
		want := ""
		if logged {
			want = "var/lib/jail/keys/audit.key var/log/jail/audit/head"
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("with a log %v: left is %q, want %q", logged, got, want)
		}
		if logged != strings.Contains(said, "kept are the audit log in "+p.dir+
			"/var/log/jail and its key in") {
			t.Errorf("with a log %v: said %q", logged, said)
		}
	}
}

var pageLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// Every link of a page that is installed leads to a file that is installed.
func TestInstalledPages(t *testing.T) {
	root := t.TempDir()
	cmd := exec.Command("make", "-s", "-C", "..", "install-docs", "DESTDIR="+root, "PREFIX=/usr")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	top := filepath.Join(root, "usr/share/doc/jail")
	links := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range pageLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				rel, _ := filepath.Rel(top, path)
				t.Errorf("%s links to %s, which is not installed", rel, m[1])
			}
		}
		return err
	})
	if err != nil || links < 100 {
		t.Errorf("%d links: %v", links, err)
	}
}

// The package is of the version that the programs have.
func TestPackageVersion(t *testing.T) {
	cmd := exec.Command("sh", ".packaging/dist", "--version")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != wire.Version+"\n" {
		t.Errorf("%v: %q, want %s", err, out, wire.Version)
	}
}

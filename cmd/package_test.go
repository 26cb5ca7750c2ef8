package cmd_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A package is the scripts of the Debian package, and a systemctl that notes what it is told. Units are enabled, active or masked where a file beside it says so.
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
	for name, text := range map[string]string{"systemctl": fakeSystemctl, "systemd-sysusers": "#!/bin/sh\n", "systemd-tmpfiles": "#!/bin/sh\n"} {
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
	text, err := os.ReadFile(filepath.Join("..", ".packaging", "deb", script))
	if err != nil {
		p.t.Fatal(err)
	}
	here := strings.NewReplacer("/run/systemd", p.dir+"/run/systemd", "/var/lib/jail", p.dir+"/var/lib/jail").Replace(string(text))
	cmd := exec.Command("sh", append([]string{"-c", here, script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Errorf("%s %q: %v\n%s", script, args, err, out)
	}
	told := filepath.Join(p.dir, "told")
	all, err := os.ReadFile(told)
	if err := errors.Join(err, os.Remove(told)); err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(string(all), "\n", "; "), "daemon-reload; ", ""))
}

// The package enables the socket once. An upgrade leaves what an operator says of the units, lets the new daemon take over, and the journal have its new program.
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
		"first":                   {nil, "", enable},
		"first, masked":           {[]string{"masked"}, "", "enable jaild.socket;"},
		"upgrade":                 {[]string{"active jaild.service", "enabled jaild.socket"}, "0.6.0-1", takeOver + journal},
		"upgrade, inactive":       {[]string{"enabled jaild.socket"}, "0.6.0-1", journal},
		"upgrade, disabled":       {nil, "0.6.0-1", journal},
		"upgrade, disabled, runs": {[]string{"active jaild.service"}, "0.6.0-1", takeOver + journal},
		"upgrade, masked":         {[]string{"masked"}, "0.6.0-1", journal},
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
		if got := p.run("prerm", "remove"); got != "disable --now jail-journal.service jaild.socket jaild.service;" {
			t.Error(got)
		}
		if got := p.run("postinst", "configure", "0.6.0-1"); got != want {
			t.Errorf("enabled %v: %s, want %s", enabled, got, want)
		}
		if got := p.run("postinst", "configure", "0.7.0-1"); got != "try-restart jail-journal.service;" {
			t.Errorf("then upgraded: %s", got)
		}
	}
}

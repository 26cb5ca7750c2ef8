package service_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Commands of the page that need systemd, a package manager or the users of the host: the machine
// with systemd (make vm-test) does what they do.
var onlyWithSystemd = []string{"apt ", "systemd-sysusers ", "systemd-tmpfiles ", "systemctl ",
	"journalctl ", "systemd-cgls "}

// ofMachine is where an installed jail has its files. A command that still names one when the
// places of this host were put in would change the jail of the machine that runs the test.
var ofMachine = regexp.MustCompile(`/(etc|usr|var/lib|var/log|run)\b|/(audit|state|jaild\.toml)\b`)

// Every other command of the operations guide does what the guide says, with the places of this
// host.
func TestOperations(t *testing.T) {
	page, err := os.ReadFile(cmdtest.Tree("docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	h := cmdtest.New(t)
	h.Daemon()
	live := h.Live("guide")
	here := strings.NewReplacer("/run/jail/jail.sock", h.State+"/jail.sock", "-C /", "-C "+h.State,
		"etc/jail", "jaild.toml", "var/lib/jail/", "state/", "var/log/jail", "audit", " ID",
		" guide")
	for _, command := range []string{"rm -r /var/lib/jail", "rm -r /audit", "tar -C / etc"} {
		if refused := ofMachine.MatchString(here.Replace(command)); refused != strings.HasPrefix(
			command, "rm") {
			t.Fatalf("%s: refused %v", command, refused)
		}
	}
	ran, fenced := 0, false
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			continue
		case !fenced:
			continue
		}
		elsewhere := false
		for _, prefix := range onlyWithSystemd {
			elsewhere = elsewhere || strings.HasPrefix(line, prefix)
		}
		if elsewhere {
			continue
		}
		command := here.Replace(line)
		if own := ofMachine.FindString(strings.ReplaceAll(command, h.Root, "")); own != "" {
			t.Errorf("%s: names %s of this machine, so it is not run", command, own)
			continue
		}
		ran++
		cmd := h.Program("/bin/sh", "-c", command)
		if o := h.Run(cmd); o.Code != 0 || o.Out == "" && !strings.Contains(line, "true") &&
			!strings.HasPrefix(line, "tar ") {
			t.Errorf("%s: %+v", line, o)
		}
	}
	if ran < 8 {
		t.Errorf("the page has %d commands that can be run here", ran)
	}
	backup, err := exec.Command("tar", "-tzf",
		filepath.Join(h.Work, "jail-backup.tar.gz")).CombinedOutput()
	for _, name := range []string{"state/keys/", "audit/audit.pub", "audit/head"} {
		if err != nil || !strings.Contains(string(backup), name) {
			t.Errorf("no %s in the backup: %v\n%s", name, err, backup)
		}
	}
	if err := os.Remove(filepath.Join(h.Work, "jail-backup.tar.gz")); err != nil {
		t.Error(err)
	}
	live.In.Close()
	h.Wants(live.Wait(), 0, "")
}

package run_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// The profile build shows what programs look for in /etc, as far as the host has it, and nothing
// else of there.
func TestNativeSettings(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for _, name := range []string{"services", "protocols", "ssl/certs", "ssl/openssl.cnf",
		"os-release", "fonts"} {
		_, err := os.Stat("/etc/" + name)
		want := "no\n"
		if err == nil {
			want = "yes\n"
		}
		r := runNative(h, "build", "--", "sh", "-c", "test -e /etc/"+name+" && echo yes || echo no")
		if r.Stdout != want {
			t.Errorf("/etc/%s: %+v, and the host says %v", name, r, err)
		}
	}
	r := runNative(h, "build", "--", "sh", "-c",
		"cat /etc/hosts /proc/self/mounts; ls /etc/shadow /etc/machine-id /etc/ssl/private /etc/apt")
	if !strings.Contains(r.Stdout, "127.0.0.1 localhost") || !strings.Contains(r.Stdout, " / ") ||
		r.ExitCode == 0 || strings.Count(r.Stderr, "No such file") != 4 {
		t.Errorf("%+v", r)
	}
}

// A read-only mount of a name in /etc that the host lacks is left out. Any other fails the run.
func TestMountThatIsAbsent(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for mount, code := range map[string]int{
		"source = \"/etc/no-such-name\"\naccess = \"read\"":      0,
		"source = \"/var/lib/no-such-name\"\naccess = \"read\"":  0,
		"source = \"/etc/no-such-name\"\naccess = \"read+exec\"": 127,
		"source = \"/etc/no-such-name\"\naccess = \"write\"":     127,
		"source = \"/etc/no-such/name\"\naccess = \"read\"":      127,
		"source = \"/opt/no-such-name\"\naccess = \"read\"":      127,
	} {
		h.Write(map[string]string{"p.toml": "policy = 1\nname = \"p\"\ninclude = [\"build\"]\n" +
			"[[mount]]\ntarget = \"/data\"\n" + mount + "\n"})
		pattern := ""
		if code != 0 {
			pattern = "mount /data: .*no such file"
		}
		h.Wants(h.Jail("run", "--discard", "--policy", "p.toml", "--", "true"), code, pattern)
	}
}

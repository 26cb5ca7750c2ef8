package fetch_test

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch"
)

// said returns what a client of the host says of its configuration, or skips the test.
func said(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Skipf("%s %q: %v", name, args, err)
	}
	return strings.TrimSpace(string(out))
}

// TestInternalRegistries: npm, go and apt-get install from the registries that this host's own
// clients are configured with, each by an [[internal]] entry with the addresses that its name has
// here. Without the entry a registry at a private address is not reached. TestInternalClients has
// the same with servers of the test's own; this one needs a network, and runs with JAIL_TEST_LONG.
func TestInternalRegistries(t *testing.T) {
	if os.Getenv("JAIL_TEST_LONG") == "" {
		t.Skip("JAIL_TEST_LONG is not set: it installs from the registries that this host uses")
	}
	cmdtest.NeedBuilt(t)
	h := cmdtest.New(t)
	h.Foreign["fetch.toml"] = true
	w := &nativeWorld{h: h}
	for _, c := range []struct {
		name, script, shows string
		// where returns the URL of the client's registry, variables that name it to the client, and
		// the text that replaces REGISTRY in the script.
		where func(t *testing.T) (registry string, env []string, text string)
	}{
		{"npm", "mkdir /tmp/p && cd /tmp/p && npm install is-number && " +
			"node -e 'console.log(\"seven\", require(\"is-number\")(7))'", "seven true",
			func(t *testing.T) (string, []string, string) {
				registry := said(t, "npm", "config", "get", "registry")
				return registry, []string{"npm_config_offline=false", "npm_config_audit=false",
					"npm_config_registry=" + registry}, ""
			}},
		{"go", "mkdir /tmp/m && cd /tmp/m && go mod init x && " +
			"go mod download -json github.com/google/go-cmp@v0.6.0", `"Version": "v0.6.0"`,
			func(t *testing.T) (string, []string, string) {
				all := strings.FieldsFunc(said(t, "go", "env", "GOPROXY"),
					func(r rune) bool { return r == ',' || r == '|' })
				if len(all) == 0 || !strings.Contains(all[0], "://") {
					t.Skipf("go has no proxy: %q", all)
				}
				return all[0], []string{"GOPROXY=" + all[0], "GONOSUMDB=*", "GOFLAGS=-mod=mod"}, ""
			}},
		{"apt", strings.NewReplacer("https://up.example.com/granted/apt stable", "REGISTRY",
			"download demo", "download hostname", "cat demo_1.0_all.deb",
			"ls hostname_*.deb").Replace(aptScript), "hostname_",
			func(t *testing.T) (string, []string, string) {
				first, _, _ := strings.Cut(said(t, "apt-get", "indextargets", "--format",
					"$(REPO_URI) $(CODENAME)", "Created-By: Packages", "Component: main"), "\n")
				registry, _, _ := strings.Cut(first, " ")
				return registry, nil, first
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry, env, text := c.where(t)
			u, err := url.Parse(registry)
			if err != nil || u.Hostname() == "" {
				t.Skipf("%q is no URL of a registry", registry)
			}
			addresses, err := net.DefaultResolver.LookupHost(t.Context(), u.Hostname())
			if err != nil {
				t.Skip(err)
			}
			port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
			policy := fmt.Sprintf("policy = 1\nname = %q\ninclude = [\"build\"]\n[[fetch.allow]]\n"+
				"host = %q\nports = [%s]\nmethods = [\"GET\", \"HEAD\"]\npaths = [\"/**\"]\n"+
				"[fetch.limits]\nrequests = 500\nbytes_in = \"200MiB\"\nbytes_out = \"1MiB\"\n"+
				"concurrent = 16\ntimeout = \"1m\"\n", c.name, u.Hostname(), port)
			entry := fmt.Sprintf("[[internal]]\nhost = %q\nports = [%s]\naddresses = [\"%s\"]\n",
				u.Hostname(), port, strings.Join(addresses, `", "`))
			settings := filepath.Join(h.State, "fetch.toml")
			write := func(path, text string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(filepath.Join(h.Root, c.name+".toml"), policy)
			install := func() fetchResult {
				var flags []string
				for _, v := range env {
					flags = append(flags, "--env", v)
				}
				return w.net(t, c.name, append(flags, "--", "sh", "-c",
					strings.ReplaceAll(c.script, "REGISTRY", text))...)
			}
			a, err := netip.ParseAddr(addresses[0])
			if err != nil {
				t.Fatal(err)
			}
			if why := fetch.Forbidden(a, nil); why != "" {
				write(settings, "")
				r := w.net(t, c.name, "--", "curl", "-fsS", registry)
				if r.ExitCode == 0 || r.Usage.In != 0 {
					t.Errorf("%s (%s) without an entry: %+v", a, why, r)
				}
			}
			write(settings, entry)
			if r := install(); r.ExitCode != 0 || !strings.Contains(r.Stdout, c.shows) ||
				r.Usage.Requests == 0 {
				t.Errorf("%+v", r)
			}
			if records := h.Jail("audit", "query", "--type", "fetch", "--json").Out; !strings.Contains(
				records, `"internal":true`) {
				t.Errorf("records: %s", records)
			}
		})
	}
}

package fetch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// decideFetches are the policies whose proxies are asked: the rules of the shipped profiles, and
// some of every kind. Each is for programs of the host.
var decideFetches = map[string]string{
	"fetch":  `include = ["build", "fetch"]`,
	"python": `include = ["build", "python"]`,
	"build":  `include = ["build"]`,
	"mixed": `include = ["build"]
[[fetch.allow]]
host = "*.example.com"
ports = [443]
methods = ["GET", "POST"]
paths = ["/granted/**"]
[[fetch.allow]]
host = "**.example.org"
ports = ["80-8080"]
methods = ["GET", "HEAD"]
[[fetch.allow]]
host = "example.net"
ports = ["*"]
methods = ["*"]
tls = "opaque"
[[fetch.allow]]
host = "half.example.net"
ports = [443]
methods = ["GET"]
tls = "opaque"
[[fetch.deny]]
host = "secret.example.org"
[[fetch.deny]]
host = "part.example.org"
paths = ["/granted/**"]
[[fetch.deny]]
host = "example.net"
ports = [8443]
methods = ["DELETE"]`,
}

// T-524: what Decide says of hosts, ports, methods and paths is what the proxy does: a program of
// the host asks through it, in the clear and inside a CONNECT, and both it and the other side tell
// what came through. JAIL_TEST_LONG asks every question, and one of seven is asked without.
func TestDecideIsWhatTheProxyDoes(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	w := newDecideWorld(t)
	total, yes := 0, 0
	for _, name := range []string{"fetch", "python", "build", "mixed"} {
		batch := w.questions(t, name)
		answers := w.ask(t, name, batch)
		for i, q := range batch {
			if q.Want {
				yes++
			}
			if answers[i] != q.Want || q.Op == "request" && w.came(i) != q.Want {
				t.Errorf("%s: %s %s: the policy says %v, the tool was let through: %v, "+
					"the other side was asked: %v", name, q.Op, q.What, q.Want, answers[i], w.came(i))
			}
		}
		total += len(batch)
	}
	t.Logf("%d questions through the proxy, %d of them answered with yes", total, yes)
	if total < 500 || yes < total/20 || yes > total*19/20 {
		t.Errorf("%d questions, %d of them answered with yes: want at least 500, and some of each",
			total, yes)
	}
	// The control: a proxy of another policy than the one that was asked is found out.
	batch, differ := w.questions(t, "python"), 0
	for i, answer := range w.ask(t, "build", batch) {
		if answer != batch[i].Want {
			differ++
		}
	}
	if differ == 0 {
		t.Error("a proxy of another policy is not told from the one that was asked about")
	}
}

// A decideWorld is an internet in which every name is answered, and tells which questions came.
type decideWorld struct {
	h   *cmdtest.Host
	mu  sync.Mutex
	got map[int]bool
}

// decideHosts are asked of every policy, beside those that its rules name.
var decideHosts = []string{"other.test", "pypi.org", "example.com", "a.example.com",
	"b.a.example.com", "a.example.com.evil.test", "evil-example.com", "example.org",
	"a.example.org",
	"b.a.example.org", "secret.example.org", "sub.secret.example.org", "part.example.org",
	"example.net", "half.example.net", "metadata.google.internal", "files.pythonhosted.org",
	"www.pypi.org", "PyPI.org"}

func newDecideWorld(t *testing.T) *decideWorld {
	w := &decideWorld{h: cmdtest.New(t), got: map[int]bool{}}
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	var all []string
	for _, name := range decideHosts {
		all = append(all, strings.ToLower(name))
		names.Set(strings.ToLower(name), []string{"93.184.216.34"})
	}
	serve := fetchtest.HTTP(t, func(rw http.ResponseWriter, r *http.Request) {
		asked := r.Header.Get("X-Question")
		if n, err := strconv.Atoi(asked); err == nil {
			w.mu.Lock()
			w.got[n] = true
			w.mu.Unlock()
		}
		rw.Header().Set("X-World", asked)
	})
	for _, port := range []string{"80", "8080"} {
		fetchtest.StartHost(t, "93.184.216.34:"+port, nil, serve)
	}
	for _, port := range []string{"443", "8443"} {
		fetchtest.StartHost(t, "93.184.216.34:"+port,
			ca.Config(t, time.Now().Add(time.Hour), all...), serve)
	}
	fetchSettings(w.h, names, ca)
	for name := range decideFetches {
		path := filepath.Join(w.h.Root, name+".toml")
		if err := os.WriteFile(path, []byte(decideText(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", cmdtest.Must(cmdtest.DecidesProgram())(t),
		filepath.Join(w.h.Work, "decides")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

func decideText(name string) string {
	first, rest, _ := strings.Cut(decideFetches[name], "\n")
	return "policy = 1\n" + first +
		"\n[fetch.limits]\nrequests = 100000\nbytes_in = \"1GiB\"\nbytes_out = \"1GiB\"\nconcurrent = 8\ntimeout = \"30s\"\n" + rest + "\n"
}

// questions are those about one policy, each with what the policy says.
func (w *decideWorld) questions(t *testing.T, name string) (batch []cmdtest.Asked) {
	t.Helper()
	set, err := profiles.Load("")
	if err != nil {
		t.Fatal(err)
	}
	file, err := set.Parse(syntax.Profile, name+".toml", []byte(decideText(name)))
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(file.Layer("profile", name+".toml"))
	if err != nil {
		t.Fatal(err)
	}
	n, every := 0, 7
	switch {
	case os.Getenv("JAIL_TEST_LONG") != "":
		every = 1
	case len(eff.Policy().Fetch.Allow) == 0:
		// There is no proxy to ask.
		every = 49
	}
	for _, host := range slices.Concat(decideHosts, []string{"93.184.216.34"}) {
		for _, at := range []struct {
			scheme string
			port   uint16
		}{{"http", 80}, {"http", 8080}, {"https", 443}, {"https", 8443}} {
			for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
				for _, path := range []string{"/", "/granted/x", "/granted", "/x/granted/y"} {
					if n++; n%every != 0 {
						continue
					}
					want := eff.Decide(policy.Connect{Host: host, Port: at.port, Method: method,
						Path: path}).Allowed
					batch = append(batch, cmdtest.Asked{Op: "request", What: fmt.Sprintf("%d %s %s://%s:%d%s",
						len(batch), method, at.scheme, host, at.port, path), Want: want})
				}
			}
			if at.scheme == "https" {
				batch = append(batch, cmdtest.Asked{Op: "tunnel", What: fmt.Sprintf("%s:%d", host, at.port),
					Want: eff.Decide(policy.Connect{Host: host, Port: at.port, Tunnel: true}).Allowed})
			}
		}
	}
	return batch
}

func (w *decideWorld) came(question int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got[question]
}

// ask asks a batch inside a jail of a policy.
func (w *decideWorld) ask(t *testing.T, name string, batch []cmdtest.Asked) []bool {
	t.Helper()
	w.mu.Lock()
	clear(w.got)
	w.mu.Unlock()
	in, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.h.Work, "questions.json"), in, 0o644); err != nil {
		t.Fatal(err)
	}
	o := w.h.Jail("run", "--json", "--discard", "--policy", filepath.Join(w.h.Root, name+".toml"),
		"--", "/bin/sh", "-c", "./decides < questions.json")
	var r fetchResult
	var answers []bool
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		t.Fatalf("%v: %.500s%.500s", err, o.Out, o.Err)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &answers); err != nil || len(answers) != len(batch) {
		t.Fatalf("exit code %d, %+v: %v, %.500s%.500s", r.ExitCode, r.Error, err, r.Stdout,
			r.Stderr)
	}
	return answers
}

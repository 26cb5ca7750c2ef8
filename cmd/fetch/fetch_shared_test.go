package fetch_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestFetchShared: invocations in one shared engine fetch by proxies of their own. Each fetch is on
// record as that of its invocation, and the policy refuses what it does not grant.
func TestFetchShared(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	h := cmdtest.New(t)
	guest := cmdtest.Must(fetcherModule())(t)
	if err := cmdtest.CompiledForEngines(h.State, guest); err != nil {
		t.Fatal(err)
	}
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	names.Set("up.example.com", []string{"93.184.216.34"})
	names.Set("other.example.com", []string{"93.184.216.34"})
	// The responses come when both of the first requests have: their invocations run at one time.
	var both sync.WaitGroup
	both.Add(2)
	up := fetchtest.StartHost(t, "93.184.216.34:443",
		ca.Config(t, time.Now().Add(time.Hour), "up.example.com", "other.example.com"),
		fetchtest.HTTP(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" || r.URL.Path == "/second" {
				both.Done()
				waited := make(chan struct{})
				go func() { both.Wait(); close(waited) }()
				select {
				case <-waited:
				case <-time.After(cmdtest.Bound):
				}
			}
			fmt.Fprintf(w, "this is %s", r.URL.Path)
		}))
	fetchSettings(h, names, ca)
	h.Daemon()
	id := h.Session("--profile", "fetch", "--fetch", "up.example.com", "--shared-engine")
	fetch := func(name, url string) fetchResult {
		o := h.Exec(id, "--json", "--id", name, "--", guest, url)
		var r fetchResult
		if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
			t.Errorf("%s: %v: %+v", name, err, o)
		}
		return r
	}
	const granted, refused = "http://up.example.com:443/", "http://other.example.com:443/"
	second := make(chan fetchResult)
	go func() { second <- fetch("second", granted+"second") }()
	results := map[string]fetchResult{"first": fetch("first", granted+"first")}
	results["second"] = <-second
	up.Took()
	results["other"] = fetch("other", refused+"other")
	if got, _, conns := up.Took(); conns > 0 {
		t.Errorf("the host that is not granted was sent %q", got)
	}
	// The control: a refusal is no end of the fetches of others.
	results["third"] = fetch("third", granted+"third")
	engines := map[string]bool{}
	for name, r := range results {
		engines[h.EngineOf(name)] = true
		decision, requests := "allowed", int64(1)
		if name == "other" {
			decision, requests = "denied", 0
		}
		if r.ExitCode != 0 || strings.Contains(r.Stdout, "this is /"+name) != (name != "other") ||
			strings.Contains(r.Stdout, "403") != (name == "other") ||
			r.Usage.Requests != requests || (len(r.Denied) == 1) != (name == "other") ||
			r.Error != nil {
			t.Errorf("%s: %+v", name, r)
		}
		begun, decided := 0, 0
		for line := range strings.Lines(h.Jail("audit", "query", "--json", "--run", name, "--type",
			"fetch").Out) {
			var f struct {
				Run, Decision, Path string
				Begun               bool
			}
			if err := json.Unmarshal([]byte(line), &f); err != nil || f.Run != name ||
				f.Path != "/"+name || f.Decision != decision {
				t.Errorf("%s: %v: record %s", name, err, line)
			}
			if f.Begun {
				begun++
			} else {
				decided++
			}
		}
		if begun != int(requests) || decided != 1 {
			t.Errorf("%s: %d fetches on record have begun, %d were decided or ended", name, begun,
				decided)
		}
	}
	if len(engines) != 1 || engines[""] {
		t.Errorf("engines %v", engines)
	}
	h.StopSession(id, 0)
	// Nothing is fetched where the policy grants no fetch.
	id = h.Session("--shared-engine")
	if o := h.Exec(id, "--id", "none", "--", guest, granted); o.Code != 1 ||
		!strings.Contains(o.Err, "there is no fetch proxy") || h.EngineOf("none") == "" {
		t.Errorf("%+v", o)
	}
	h.StopSession(id, 0)
}

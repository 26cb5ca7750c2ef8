package meters

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func TestOutcomes(t *testing.T) {
	signal := "SIGTERM"
	for want, res := range map[string]message.Result{
		outcomeExited: {}, outcomeFailed: {ExitCode: 1}, outcomeSignal: {ExitCode: 143,
			Signal: &signal},
		outcomeLimit:   {ExitCode: 124, Signal: &signal, Limit: &message.LimitHit{Name: "wall"}},
		outcomeBusy:    {Error: &problem.Error{Code: problem.Busy}},
		outcomeError:   {Error: &problem.Error{Code: problem.Failed}},
		outcomeRefused: {Error: &problem.Error{Code: problem.Layer}},
	} {
		if got := outcomeOf(&res); got != want {
			t.Errorf("%+v is %s, want %s", res, got, want)
		}
	}
	if got := outcomeOf(&message.Result{Error: &problem.Error{Code: problem.Ending}}); got !=
		outcomeBusy {
		t.Errorf("a run that an ending daemon did not begin is %s", got)
	}
}

// What is counted of runs is what their results say; and a dashboard asks for nothing that is not
// there.
func TestMeters(t *testing.T) {
	none := func() int { return 0 }
	m := New(Sources{Version: "test", Waiting: none, Active: none, Prewarmed: none,
		Queue: admission.New(config.Bounds{Runs: 8, Memory: 100, Waiting: 16,
			Wait: time.Second}),
		Policies: func() hostpolicy.Status { return hostpolicy.Status{} }})
	m.Ended(&message.Result{Denied: []runners.Denial{{Layer: "wasi", Count: 3}},
		Limit: &message.LimitHit{Name: "memory"},
		Usage: message.Usage{FetchRequests: 2, FetchBytesIn: 10, CPUMS: 1500}},
		70*time.Millisecond)
	m.Ended(&message.Result{Error: &problem.Error{Code: problem.Refused}}, 0)
	var b strings.Builder
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, line := range []string{`jail_runs_total{outcome="limit"} 1`,
		`jail_runs_total{outcome="refused"} 1`, `jail_runs_total{outcome="exited"} 0`,
		`jail_denied_total{layer="wasi"} 3`,
		`jail_limit_hits_total{limit="memory"} 1`, `jail_fetch_requests_total 2`,
		`jail_fetch_bytes_total{direction="in"} 10`, `jail_cpu_seconds_total 1.5`,
		`jail_run_seconds_bucket{le="0.05"} 0`, `jail_run_seconds_bucket{le="0.1"} 1`,
		`jail_run_seconds_count 1`, `jail_admission_running_max 8`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	file, err := os.ReadFile("../../docs/grafana.json")
	if err == nil {
		err = json.Unmarshal(file, &dashboard)
	}
	if err != nil || len(dashboard.Panels) == 0 {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			names := regexp.MustCompile(`\b(jail|process|go)_[a-z_]+`).FindAllString(target.Expr,
				-1)
			if len(names) == 0 {
				t.Errorf("%s asks for nothing of ours", target.Expr)
			}
			for _, name := range names {
				if !strings.Contains(text, "\n"+name+" ") && !strings.Contains(text,
					"\n"+name+"{") {
					t.Errorf("the dashboard asks for %s, which is not there", name)
				}
			}
		}
	}
}

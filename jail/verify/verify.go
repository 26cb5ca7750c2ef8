// Package verify asks the kernel whether a live jail is what its plan says. It reads what /proc and the control groups show of the jail's
// processes, from outside: it enters no namespace, traces nothing and stops nothing.
package verify

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// An Answer is what the kernel says about one thing.
type Answer string

// The answers. What the kernel shows to nobody who does not trace the process is Unreadable, and never OK.
const (
	OK         Answer = "ok"
	Differs    Answer = "differs"
	Unreadable Answer = "not readable"
)

// A Finding is one thing that the plan says, and what the kernel says of it.
type Finding struct {
	Layer  string `json:"layer"`
	What   string `json:"what"`
	Answer Answer `json:"answer"`
	Want   string `json:"want"`          // by the plan
	Got    string `json:"got,omitempty"` // from the kernel, where it differs
}

// A Jail says which process is the jail's first, and what it is to be.
type Jail struct {
	Plan  jail.Plan `json:"plan"`
	PID   int       `json:"pid"`
	Start uint64    `json:"start"` // in clock ticks since the host started: with the number it names the process for good
}

// ErrGone says that the process is not there any more. Another one may have its number by now.
var ErrGone = errors.New("its first process has ended")

// settle is how long a jail that has just been started may take to restrict itself; each look takes a few milliseconds.
var settle = time.Second

const pause = 20 * time.Millisecond

// Look compares a live jail with its plan. others are the first processes of other jails, which it must share no namespace with. A difference
// is one that stays: a thread that is just starting, or a jail that is, is looked at again for up to a second.
func Look(j Jail, others []int) ([]Finding, error) {
	process, err := sys.OpenProcess(j.PID)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrGone, err)
	}
	defer process.Close()
	for deadline := time.Now().Add(settle); ; time.Sleep(pause) {
		findings, err := look(j, others)
		// Only after the last answer is it known that all of them were this process's.
		if _, start, statErr := sys.ProcStat(j.PID); statErr != nil || start != j.Start {
			return nil, ErrGone
		}
		if ended, pollErr := sys.HasEnded(process); pollErr != nil || ended {
			return nil, errors.Join(ErrGone, pollErr)
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Answer == Differs }) || time.Now().After(deadline) {
			return findings, nil
		}
	}
}

// A viewer collects findings about one jail.
type viewer struct {
	Jail
	others   []int
	findings []Finding
}

func look(j Jail, others []int) ([]Finding, error) {
	v := &viewer{Jail: j, others: others}
	for _, check := range []func() error{v.controlGroup, v.namespaces, v.ids, v.root, v.mounts, v.network, v.descriptors, v.rlimits, v.threads} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	v.unreadable()
	return v.findings, nil
}

// is notes what the kernel says of one thing.
func (v *viewer) is(layer, what, want, got string) {
	f := Finding{Layer: layer, What: what, Answer: OK, Want: want}
	if got != want {
		f.Answer, f.Got = Differs, got
	}
	v.findings = append(v.findings, f)
}

// differs notes something that should not be.
func (v *viewer) differs(layer, what, want, got string) {
	v.findings = append(v.findings, Finding{Layer: layer, What: what, Answer: Differs, Want: want, Got: got})
}

func (v *viewer) unreadable() {
	if c := v.Plan.Ceiling; c != nil {
		v.findings = append(v.findings, Finding{Layer: "ceiling", What: "domain", Answer: Unreadable, Want: strconv.Itoa(len(c.Landlock.Rules)) + " rules"},
			Finding{Layer: "ceiling", What: "filter", Answer: Unreadable, Want: strconv.Itoa(len(c.Filter.Allow)) + " calls"})
	}
	for _, f := range []Finding{
		{Layer: "landlock", What: "domain", Want: strconv.Itoa(len(v.Plan.Landlock.Rules)) + " rules"},
		{Layer: "seccomp", What: "outer filter", Want: strconv.Itoa(len(v.Plan.OuterFilter.Allow)) + " calls"},
		{Layer: "seccomp", What: "inner filter", Want: strconv.Itoa(len(v.Plan.InnerFilter.Allow)) + " calls"},
		{Layer: "namespaces", What: "host name", Want: v.Plan.Hostname},
	} {
		f.Answer = Unreadable
		v.findings = append(v.findings, f)
	}
}

func proc(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

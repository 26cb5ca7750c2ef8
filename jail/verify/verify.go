// Package verify compares a live jail with its plan. It reads what /proc and the cgroups show of
// the jail's processes, from outside: it enters no namespace, traces nothing and stops nothing.
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

// Answer is the kernel's answer to one check.
type Answer string

// The answers. State that the kernel shows to tracers only is Unreadable, never OK.
const (
	OK         Answer = "ok"
	Differs    Answer = "differs"
	Unreadable Answer = "not readable"
)

// Finding is one property of the plan with the kernel's answer.
type Finding struct {
	Layer string `json:"layer"`
	What  string `json:"what"`
	// State that the kernel shows only to a tracer is reported as not readable, never as ok.
	Answer Answer `json:"answer"`
	// Want is the value in the plan.
	Want string `json:"want"`
	// Got is the kernel's value, if it differs.
	Got string `json:"got,omitempty"`
}

// Jail identifies the first process of a jail, with its plan.
type Jail struct {
	Plan jail.Plan `json:"plan"`
	PID  int       `json:"pid"`
	// Start is in clock ticks since boot. PID and Start identify a process for good.
	Start uint64 `json:"start"`
}

// ErrGone is returned if the jail's first process has ended. Its PID may belong to another process.
var ErrGone = errors.New("its first process has ended")

// settle bounds the time in which a jail that was just started restricts itself. One look takes a
// few milliseconds.
var settle = time.Second

const pause = 20 * time.Millisecond

// Look compares a live jail with its plan. others are the first processes of other jails, with
// which it must share no namespace, and peers those with which it shares the network namespace
// alone. For a thread or a jail that is just starting Look repeats the
// checks for up to a second, and reports only differences that stay.
func Look(j Jail, others, peers []int) ([]Finding, error) {
	process, err := sys.OpenProcess(j.PID)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrGone, err)
	}
	defer process.Close()
	for deadline := time.Now().Add(settle); ; time.Sleep(pause) {
		findings, err := look(j, others, peers)
		// Checked last, so that all answers before are of this process.
		if _, start, statErr := sys.ProcStat(j.PID); statErr != nil || start != j.Start {
			return nil, ErrGone
		}
		if ended, pollErr := sys.HasEnded(process); pollErr != nil || ended {
			return nil, errors.Join(ErrGone, pollErr)
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Answer == Differs }) ||
			time.Now().After(deadline) {
			return findings, nil
		}
	}
}

// viewer collects findings about one jail.
type viewer struct {
	Jail
	others   []int
	peers    []int
	findings []Finding
}

func look(j Jail, others, peers []int) ([]Finding, error) {
	v := &viewer{Jail: j, others: others, peers: peers}
	if j.Plan.KernelInside() {
		if err := v.controlGroup(); err != nil {
			return nil, err
		}
		for _, layer := range []string{"namespaces", "ids", "mounts", "rlimits", "capabilities",
			"seccomp"} {
			v.findings = append(v.findings, Finding{Layer: layer, What: "inside",
				Answer: Unreadable, Want: "held by the kernel of " + j.Plan.Outer.Layer})
		}
		return v.findings, nil
	}
	for _, check := range []func() error{v.controlGroup, v.namespaces, v.ids, v.root, v.mounts,
		v.procs, v.network, v.descriptors, v.rlimits, v.threads} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	v.unreadable()
	return v.findings, nil
}

// is records a finding: OK if got equals want.
func (v *viewer) is(layer, what, want, got string) {
	f := Finding{Layer: layer, What: what, Answer: OK, Want: want}
	if got != want {
		f.Answer, f.Got = Differs, got
	}
	v.findings = append(v.findings, f)
}

// differs records a difference.
func (v *viewer) differs(layer, what, want, got string) {
	v.findings = append(v.findings,
		Finding{Layer: layer, What: what, Answer: Differs, Want: want, Got: got})
}

func (v *viewer) unreadable() {
	if c := v.Plan.Ceiling; c != nil {
		v.findings = append(v.findings, Finding{Layer: "ceiling", What: "domain",
			Answer: Unreadable, Want: strconv.Itoa(len(c.Landlock.Rules)) + " rules"},
			Finding{Layer: "ceiling", What: "filter", Answer: Unreadable,
				Want: strconv.Itoa(len(c.Filter.Allow)) + " calls"})
	}
	for _, f := range []Finding{
		{Layer: "landlock", What: "domain", Want: strconv.Itoa(len(v.Plan.Landlock.Rules)) +
			" rules"},
		{Layer: "seccomp", What: "outer filter", Want: strconv.Itoa(len(v.Plan.OuterFilter.Allow)) +
			" calls"},
		{Layer: "seccomp", What: "inner filter", Want: strconv.Itoa(len(v.Plan.InnerFilter.Allow)) +
			" calls"},
		{Layer: "namespaces", What: "host name", Want: v.Plan.Hostname},
		{Layer: "namespaces", What: "counts of the user namespace",
			Want: strconv.Itoa(len(v.Plan.UserCounts)) + " bounds"},
	} {
		f.Answer = Unreadable
		v.findings = append(v.findings, f)
	}
}

func proc(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

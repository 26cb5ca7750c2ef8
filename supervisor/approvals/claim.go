package approvals

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A Claim says which process carries out or undoes an external action.
type Claim struct {
	UID uint32 `json:"uid"`
	PID int    `json:"pid"`
	Exe string `json:"exe,omitempty"`
	// The time of the claim.
	Time time.Time `json:"time"`
	// The process has ended without a report, so whether the action was carried out is unknown. It
	// is not carried out again: a person settles it.
	Lost bool `json:"lost,omitempty"`
}

// shown returns the action for callers, with Claim.Lost set if the claimant has ended.
func (s *stored) shown() Action {
	a := s.Action
	if a.Claim != nil && a.State.claimable() && !s.Claimant.lives() {
		c := *a.Claim
		c.Lost = true
		a.Claim = &c
	}
	return a
}

// A ProposeRequest proposes an action.
type ProposeRequest struct {
	// workspace.commit, gate, git.push, pr.create or policy.grant.
	Type string `json:"type"`
	// The run or session that it is about. Without one, which a commit needs, a person is asked
	// unless the ceiling forbids the action; else the policy of the run says so.
	Run string `json:"run,omitempty"`
	// What to commit, for the type workspace.commit.
	Commit *shadows.CommitRequest `json:"commit,omitempty"`
	External
	// For a git.push the names that the push changes, below the root of the repository. If the
	// policy of the run protects one of them, a person is asked, whatever else it says.
	Changed []string `json:"changed,omitempty"`
	// The agent of the caller on whose behalf it is proposed: agent:USER:NAME.
	Agent string `json:"agent,omitempty"`
	// A secret of 20 to 128 bytes with which the proposer claims and reports the action. The same
	// proposal with the same key returns the same action. Not for workspace.commit.
	Key string `json:"key,omitempty"`
	// A person is asked, also where the policy of the run would approve it at once. Not for
	// workspace.commit.
	Ask bool `json:"ask,omitempty"`
	// A description by the proposer, at most 2 KiB. It is shown apart from the daemon's.
	Words string `json:"words,omitempty"`
}

// A Rule is the decision of a run's policy on an action.
type Rule struct {
	Mode policy.ApproveMode
	// UID owns the run, and Policy is the digest of its policy.
	UID    uint32
	Policy string
	// Protected reports whether a change of this name needs a person. If nil, no name does.
	Protected func(name string) bool
}

// Bounds in bytes of a key, and of an outcome or error in a report.
const (
	minKey     = 20
	maxKey     = 128
	maxOutcome = 1 << 10
)

func checkKey(key string) error {
	if len(key) < minKey || len(key) > maxKey {
		return problem.New(problem.Usage, "the key has %d bytes: it is a secret of %d to %d", len(key),
			minKey, maxKey).WithHint("draw it at random for each action, and keep it")
	}
	return nil
}

func keySum(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

func (s *stored) hasKey(key string) bool {
	return s.Key != "" && subtle.ConstantTimeCompare([]byte(s.Key), []byte(keySum(key))) == 1
}

// check returns an error if the proposal is malformed or the caller is in a jail or container.
func (p ProposeRequest) check(c caller.Caller) error {
	if err := errors.Join(outside(c), checkKey(p.Key)); err != nil {
		return err
	}
	if err := p.External.check(p.Type); err != nil {
		return problem.New(problem.Usage, "%w", err)
	}
	if p.Agent != "" && !c.OwnsAgent(p.Agent) {
		return problem.New(problem.Usage, "agent: %.80q is no agent of uid %d, as in agent:%d:NAME",
			p.Agent, c.UID, c.UID)
	}
	return nil
}

// Programs is the interface of a queue for programs outside of jails that act on behalf of agents.
type Programs struct{ q *Queue }

// Programs returns the interface of the queue for programs outside of jails.
func (q *Queue) Programs() Programs { return Programs{q} }

// Propose adds an external action. rule is the decision of the policy: the policy or a grant may
// approve the action at once. It is idempotent for the same proposal with the same key.
func (p Programs) Propose(c caller.Caller, of ProposeRequest, rule Rule) (Action, error) {
	if err := of.check(c); err != nil {
		return Action{}, err
	}
	a := Action{Type: of.Type, UID: rule.UID, Run: of.Run, Policy: rule.Policy, Words: of.Words,
		Agent: of.Agent, External: of.External,
		Reversible: of.Gate != nil && of.Gate.Reversible || of.PolicyGrant != nil}
	if of.Push != nil {
		push := *of.Push
		push.Protected = protected(of.Changed, rule)
		if a.Push = &push; len(push.Protected) > 0 {
			rule.Mode = min(rule.Mode, policy.ApproveAsk)
		}
	}
	if of.PolicyGrant != nil || of.Ask {
		// A policy must not widen itself.
		rule.Mode = min(rule.Mode, policy.ApproveAsk)
	}
	key, from := keySum(of.Key), processOf(c.PID)
	return one(p.q, func(l *line, now time.Time) (*stored, error) {
		if s, err := p.again(a, key); s != nil || err != nil {
			return s, err
		}
		if rule.Mode == policy.ApproveNever {
			return nil, problem.New(problem.Refused, "%s: the policy lets nobody approve it ([[approve]])",
				a.Type).WithHint("do without it; jail policy show NAME shows the rules of a profile")
		}
		if err := p.roomFor(a); err != nil {
			return nil, err
		}
		s, err := p.q.add(l, stored{Action: a, Key: key, Process: from}, c, now)
		if err == nil && s.State == Pending && rule.Mode == policy.ApproveAuto {
			l.Actions = nil
			s = l.approve(s, Decision{UID: c.UID, PID: c.PID, Exe: c.Exe, Via: "policy", Time: now})
		}
		return s, err
	})
}

// maxProtected bounds Push.Protected.
const maxProtected = 20

// protected returns the names that a rule protects, at most maxProtected.
func protected(names []string, rule Rule) (out []string) {
	for _, name := range names {
		if rule.Protected != nil && rule.Protected(name) {
			if out = append(out, runners.Printable(name, 200)); len(out) == maxProtected {
				break
			}
		}
	}
	return out
}

// again returns the action with this key sum or nil. If it differs from a, that is an error.
func (p Programs) again(a Action, key string) (*stored, error) {
	for _, s := range p.q.actions {
		if s.UID != a.UID || s.Key != key {
			continue
		}
		if s.Trimmed {
			// The digest of a trimmed action covers removed text, so it cannot be compared.
			return s, nil
		}
		same := a
		same.ID, same.Proposed, same.Expires, same.Summary = s.ID, s.Proposed, s.Expires, s.Summary
		if same.digest() != s.SHA256 {
			return nil, problem.New(problem.Conflict, "the key is that of action %s, which is another one",
				s.ID).WithHint("draw another key for another action")
		}
		return s, nil
	}
	return nil, nil
}

// roomFor returns an error if maxOfRun external actions of the same agent and its facets are not
// over. Without an agent it counts those of the same run.
func (p Programs) roomFor(a Action) error {
	n, agent := 0, withoutFacet(a.Agent)
	of := cmp.Or(agent, a.Run)
	for _, s := range p.q.actions {
		if s.UID == a.UID && s.task() != nil && !s.State.Over() && withoutFacet(s.Agent) == agent &&
			(agent != "" || s.Run == a.Run) {
			n++
		}
	}
	if n < maxOfRun {
		return nil
	}
	of = cmp.Or(of, fmt.Sprintf("uid %d", a.UID))
	return problem.New(problem.Busy, "%d actions of %s are not over", n, of).
		WithHint("jail approvals lists them; decide on some")
}

// withoutFacet returns the id of the agent for the id of an agent or of its facet.
func withoutFacet(id string) string {
	id, _, _ = strings.Cut(id, "/")
	return id
}

// proposed returns the external action with this id. It returns an error if the key is not the
// action's or the caller may not control the action.
func (p Programs) proposed(c caller.Caller, id, key string) (*stored, error) {
	s, err := p.q.find(c, id)
	switch {
	case err != nil:
		return nil, err
	case !s.carried():
		return nil, problem.New(problem.Usage, "action %s is of the type %s, which jail itself applies",
			id, s.Type)
	case !c.MayControl(s.UID) || !s.hasKey(key):
		return nil, problem.New(problem.Refused, "the key is not that of action %s", id).
			WithHint("only its proposer carries an action out")
	}
	return s, outside(c)
}

// Claim lets the proposer carry out an approved external action, or undo one that is Reverting.
// When Claim returns nil, the claim is durable and in the audit log, and no second claim succeeds.
// allowed returns an error if the policy no longer permits the action.
func (p Programs) Claim(c caller.Caller, id, key string, allowed func(Action) error) (Action, error) {
	return one(p.q, func(l *line, now time.Time) (*stored, error) {
		s, err := p.proposed(c, id, key)
		if err != nil {
			return nil, err
		}
		switch {
		case s.State.claimable() && s.Claim != nil:
			return nil, problem.New(problem.Conflict, "action %s is %s: process %d claimed it at %s", id,
				s.State, s.Claim.PID, s.Claim.Time.Format(time.RFC3339)).
				WithHint("report how it ended; never do it again")
		case s.State == Pending:
			return nil, Waits(s.Action)
		case s.State.Over():
			return nil, problem.New(problem.Conflict, "action %s is %s, and cannot be carried out", id,
				s.State)
		}
		next := *s
		next.Claim = &Claim{UID: c.UID, PID: c.PID, Exe: c.Exe, Time: now}
		next.Claimant = processOf(c.PID)
		if s.State == Approved {
			if err := allowed(s.Action); err != nil {
				return nil, err
			}
			return l.move(&next, Applying, now, c.Actor()), nil
		}
		// The audit log already has a record of the request to undo it.
		l.Actions = append(l.Actions, &next)
		return &next, nil
	})
}

// A ReportRequest reports how a claimed external action ended.
type ReportRequest struct {
	// The key of the proposal.
	Key string `json:"key"`
	// applied, failed, or stale if what it is about has changed and nothing was done. Of an action
	// that was to be undone: reverted, or failed.
	State State `json:"state"`
	// What it made, the URL of a pull request for example, at most 1 KiB.
	Outcome string `json:"outcome,omitempty"`
	// Why it failed or is stale, at most 1 KiB.
	Error string `json:"error,omitempty"`
}

// Report stores how a claimed external action ended. It is idempotent.
func (p Programs) Report(c caller.Caller, id string, r ReportRequest) (Action, error) {
	if err := errors.Join(checkLine("outcome", r.Outcome, maxOutcome, false),
		checkText("error", r.Error, maxOutcome)); err != nil {
		return Action{}, problem.New(problem.Usage, "%w", err)
	}
	return one(p.q, func(l *line, now time.Time) (*stored, error) {
		s, err := p.proposed(c, id, r.Key)
		if err != nil {
			return nil, err
		}
		was := s.State
		if was == Applied && s.Undo != nil {
			// A failed reversal leaves the action Applied.
			was = Failed
		}
		if s.Claim != nil && was == r.State && s.Error == r.Error &&
			(was != Applied || s.Outcome == r.Outcome) {
			return s, nil
		}
		if s.Claim == nil || !s.State.claimable() {
			return nil, problem.New(problem.Conflict, "action %s is %s: nobody carries it out", id, s.State).
				WithHint("claim it first")
		}
		return l.end(s, r.State, r.Outcome, r.Error, now, c)
	})
}

// end ends a claimed external action. After a failed reversal it is Applied again.
func (l *line) end(s *stored, to State, outcome, why string, now time.Time,
	c caller.Caller) (*stored, error) {
	next := *s
	switch {
	case s.State == Applying && (to == Applied || to == Failed || to == Stale):
		next.Outcome, next.Error = outcome, why
	case s.State == Reverting && to == Reverted:
		next.Error = why
	case s.State == Reverting && to == Failed:
		// The action stays applied.
		to, next.Error = Applied, why
	default:
		return nil, problem.New(problem.Usage, "state: action %s is %s and cannot become %.40q", s.ID,
			s.State, to).WithHint("say applied, failed or stale; reverted or failed where it is reverting")
	}
	return l.move(&next, to, now, c.Actor()), nil
}

// askUndo moves an applied external action to Reverting, so that its proposer undoes it.
func (p Programs) askUndo(c caller.Caller, id string) (Action, error) {
	return one(p.q, func(l *line, now time.Time) (*stored, error) {
		s, err := p.q.known(id)
		switch {
		case err != nil:
			return nil, err
		case s.State != Applied:
			return nil, problem.New(problem.Conflict, "action %s is %s, and cannot be reverted", id, s.State)
		case !s.Reversible:
			return nil, problem.New(problem.Conflict,
				"action %s cannot be reverted: %s has no way back that jail knows", id, s.Type).
				WithHint("undo it where it was done")
		case s.Process.is(c.PID):
			return nil, problem.New(problem.Refused,
				"action %s was proposed by this process, which cannot decide on it", id).
				WithHint("use jail approvals revert")
		}
		next := *s
		next.Claim, next.Claimant, next.Error = nil, process{}, ""
		next.Undo = &Decision{UID: c.UID, PID: c.PID, Exe: c.Exe, Time: now}
		return l.move(&next, Reverting, now, c.Actor()), nil
	})
}

// A SettleRequest is a person's statement how an external action ended that was not reported.
type SettleRequest struct {
	// The digest of the action, as it was shown to who settles it.
	SHA256 string `json:"sha256"`
	// applied or failed; of an action that was to be undone reverted or failed.
	State State `json:"state"`
	// How the statement came: cli, api (or empty) or console.
	Via string `json:"via,omitempty"`
}

// Settle stores a person's statement how an external action ended whose claimant has ended, or that
// nobody undoes. It changes only the state of the action. It fails while the claimant lives.
func (p Programs) Settle(c caller.Caller, id string, r SettleRequest) (Action, error) {
	if r.Via != "" && r.Via != "cli" && r.Via != "api" && r.Via != "console" {
		return Action{}, problem.New(problem.Usage, "via %q is none of cli, api and console", r.Via)
	}
	return one(p.q, func(l *line, now time.Time) (*stored, error) {
		s, err := p.q.find(c, id)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(outside(c), p.q.o.Permissions(c).Approve(s.UID)); err != nil {
			return nil, err
		}
		switch {
		case !s.State.claimable() || r.State == Stale:
			return nil, problem.New(problem.Conflict, "action %s is %s: there is nothing to settle as %.40q",
				id, s.State, r.State)
		case r.SHA256 != s.SHA256:
			return nil, problem.New(problem.Conflict, "the digest %.64q is not that of action %s", r.SHA256,
				id).WithHint("jail approvals show " + id + " shows the action as it is")
		case s.Claim != nil && s.Claimant.lives():
			return nil, problem.New(problem.Conflict,
				"process %d carries action %s out since %s and lives: it says how that ends",
				s.Claim.PID, id, s.Claim.Time.Format(time.RFC3339)).
				WithHint("end that process first if it hangs")
		}
		why := fmt.Sprintf("settled by uid %d; its proposer has not said how it ended", c.UID)
		return l.end(s, r.State, "", why, now, c)
	})
}

// settled reports whether the action is neither pending nor a commit that the daemon has yet to
// apply.
func (a Action) settled() bool { return a.State.Over() || a.State == Approved && a.Commit == nil }

// A process identifies a process uniquely, even after its PID is reused or the host is rebooted.
type process struct {
	PID int `json:"pid"`
	// Start is the start time, field 22 of proc_pid_stat(5), in clock ticks since boot.
	Start string `json:"start"`
	// Boot is the boot id of the host.
	Boot string `json:"boot"`
}

var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

// processOf returns the process with this PID, or the zero process if it has ended.
func processOf(pid int) process {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil || pid <= 0 {
		return process{}
	}
	// The name of the program, in parentheses, may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return process{}
	}
	return process{PID: pid, Start: fields[start], Boot: bootID()}
}

// is reports whether pid is the PID of this process and it is alive.
func (p process) is(pid int) bool { return p.PID != 0 && p.PID == pid && processOf(pid) == p }

// lives reports whether the process is still alive.
func (p process) lives() bool { return p.is(p.PID) }

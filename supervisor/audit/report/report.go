// Package report summarizes one run, or all runs of a session, from the records of the log: the
// request, the programs, the files and fetches, the refusals, and the approvals. Findings for a
// reviewer come first.
package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// ErrNothing is returned by Make if no record belongs to the run or session.
var ErrNothing = errors.New("no record")

// Report summarizes a run or session. Its texts are the recorded bytes, which the caller must
// escape before printing.
type Report struct {
	// ID is the id of the run or session.
	ID string `json:"id"`
	// Session: the report is about a session.
	Session bool   `json:"session"`
	First   uint64 `json:"first"` // record
	Last    uint64 `json:"last"`
	// Findings are sorted by importance, the gravest first.
	Findings []Finding `json:"findings"`
	Runs     []*Run    `json:"runs"`
}

// Finding is a point that a reviewer should look at.
type Finding struct {
	Grave  bool   `json:"grave"`
	Text   string `json:"text"`
	Record uint64 `json:"record"`
	// secret: the finding is about a possible secret, and precedes all others.
	secret bool
}

// rank returns the position of a finding's class: lower ones come first.
func (f Finding) rank() int {
	switch {
	case f.secret:
		return 0
	case f.Grave:
		return 1
	}
	return 2
}

// Run summarizes one run.
type Run struct {
	ID        string        `json:"id"`
	UID       uint32        `json:"uid"`
	Caller    string        `json:"caller"` // the program that requested the run
	Started   time.Time     `json:"started"`
	Tool      string        `json:"tool"`
	Digest    string        `json:"digest"`
	Argv      []string      `json:"argv"`
	Cwd       string        `json:"cwd"`
	Workspace string        `json:"workspace"`
	Profile   string        `json:"profile"`
	Policy    string        `json:"policy"`
	Warnings  []string      `json:"warnings"`
	Programs  []Program     `json:"programs"`
	Fetches   []Fetch       `json:"fetches"`
	Refused   []Refusal     `json:"refused"`
	Limits    []audit.Limit `json:"limits"`
	// Files lists kind, digest and path of each change in the change set.
	Files []string `json:"files"`
	// Touched lists the files that were used, in order of first use, if the policy records them; at
	// most maxTouched.
	Touched []Touched `json:"touched"`
	// Untold counts the uses of files beyond Touched.
	Untold    int64          `json:"untold,omitempty"`
	Changes   *audit.Changes `json:"changes,omitempty"`
	Decisions []Verdict      `json:"decisions"` // on the change set
	End       *End           `json:"end,omitempty"`
	first     uint64
	// touched maps kind and path to the index in Touched.
	touched map[[2]string]int
}

// Touched is a file that was opened, executed or written.
type Touched struct {
	Record  uint64 `json:"record"` // the first
	Kind    string `json:"kind"`
	Path    string `json:"path"`              // in the jail
	Program string `json:"program,omitempty"` // that used it first
	Count   int64  `json:"count"`
}

// maxTouched bounds the files in a report.
const maxTouched = 100_000

// Program is a program that ran in the jail.
type Program struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Count  int64  `json:"count"`
}

// Fetch is one network request.
type Fetch struct {
	Record   uint64 `json:"record"`
	Decision string `json:"decision"`
	What     string `json:"what"` // method, host and path
	Rule     string `json:"rule"`
	Status   int64  `json:"status,omitempty"`
	In       int64  `json:"bytes_in"`
	Out      int64  `json:"bytes_out"`
	Error    string `json:"error,omitempty"`
}

// Refusal is an operation that was refused.
type Refusal struct {
	Record uint64 `json:"record"`
	Layer  string `json:"layer"`
	What   string `json:"what"`
	Rule   string `json:"rule"`
	Count  int64  `json:"count"`
}

// Verdict is a person's decision on a change set.
type Verdict struct {
	Record  uint64        `json:"record"`
	Time    time.Time     `json:"time"`
	UID     uint32        `json:"uid"`
	What    string        `json:"what"` // committed, discarded, reverted
	Digest  string        `json:"digest"`
	Changes audit.Changes `json:"changes"`
	Held    []string      `json:"held,omitempty"`
	// Protected: protected paths were committed by --include-protected.
	Protected bool   `json:"protected,omitempty"`
	Error     string `json:"error,omitempty"`
}

// End is the end of a run.
type End struct {
	Time     time.Time        `json:"time"`
	ExitCode int64            `json:"exit_code"`
	Signal   string           `json:"signal,omitempty"`
	Limit    string           `json:"limit,omitempty"`
	Error    string           `json:"error,omitempty"` // of jail itself
	Usage    map[string]int64 `json:"usage"`
}

// Make builds the report of a run, or of a session, from its records. An unreadable record is an
// error, and so is none at all: ErrNothing.
func Make(records iter.Seq2[audit.Record, error], id string, session bool) (*Report, error) {
	rep := &Report{ID: id, Session: session, Findings: []Finding{}, Runs: []*Run{}}
	runs := map[string]*Run{}
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		rep.First = cmp.Or(rep.First, r.Seq)
		rep.Last = r.Seq
		if r.Run == "" {
			continue
		}
		run := runs[r.ID()]
		if run == nil {
			run = &Run{ID: r.Run, UID: r.Actor.UID, Caller: r.Actor.Exe, Started: r.Time,
				Policy: r.Policy,
				Argv:   []string{}, Warnings: []string{}, Programs: []Program{},
				Fetches: []Fetch{}, Refused: []Refusal{}, Limits: []audit.Limit{}, Files: []string{},
				Touched: []Touched{}, touched: map[[2]string]int{}, Decisions: []Verdict{},
				first: r.Seq}
			runs[r.ID()] = run
			rep.Runs = append(rep.Runs, run)
		}
		run.take(r)
	}
	if len(rep.Runs) == 0 {
		return nil, ErrNothing
	}
	for _, run := range rep.Runs {
		rep.Findings = append(rep.Findings, run.findings()...)
	}
	slices.SortStableFunc(rep.Findings, func(a, b Finding) int { return a.rank() - b.rank() })
	return rep, nil
}

func (run *Run) take(r audit.Record) {
	switch r.Type {
	case audit.TypeRunStarted:
		run.Started, run.Tool, run.Digest, run.Argv, run.Cwd = r.Time, r.Text("tool"),
			r.Text("digest"), r.Texts("argv"), r.Text("cwd")
		run.Workspace, run.Profile, run.Warnings = r.Text("workspace"), r.Text("profile"),
			r.Texts("warnings")
	case audit.TypeExec:
		run.Programs = append(run.Programs,
			Program{r.Text("program"), r.Text("digest"), max(r.Int("count"), 1)})
	case audit.TypeFile:
		run.touch(r)
	case audit.TypeFetch:
		run.fetch(r)
	case audit.TypeDenied:
		run.Refused = append(run.Refused,
			Refusal{r.Seq, r.Text("layer"), r.Text("what"), r.Text("rule"), max(r.Int("count"), 1)})
	case audit.TypeLimit:
		run.Limits = append(run.Limits,
			audit.Limit{Name: r.Text("name"), Limit: r.Int("limit"), Peak: r.Int("peak"),
				Action: r.Text("action")})
	case audit.TypeWorkspaceChanged:
		c := changes(r)
		run.Changes, run.Files = &c, r.Texts("files")
	case audit.TypeWorkspaceCommitted, audit.TypeWorkspaceDiscarded, audit.TypeWorkspaceReverted:
		run.decide(r)
	case audit.TypeRunFinished:
		e := &End{Time: r.Time, ExitCode: r.Int("exit_code"), Signal: r.Text("signal"),
			Limit: r.Text("limit"), Error: r.Text("error"), Usage: map[string]int64{}}
		// A record without usage leaves it empty.
		_ = json.Unmarshal(r.Field("usage"), &e.Usage)
		run.End = e
	}
}

// touch adds the use of a file to Touched, or to the count of an equal use.
func (run *Run) touch(r audit.Record) {
	key, n := [2]string{r.Text("kind"), r.Text("path")}, max(r.Int("count"), 1)
	if i, known := run.touched[key]; known {
		run.Touched[i].Count += n
		return
	}
	if len(run.Touched) == maxTouched {
		run.Untold += n
		return
	}
	run.touched[key] = len(run.Touched)
	run.Touched = append(run.Touched, Touched{r.Seq, key[0], key[1], r.Text("program"), n})
}

// fetch adds a request to Fetches. The second record of a request replaces the first.
func (run *Run) fetch(r audit.Record) {
	what := strings.TrimSpace(fmt.Sprintf("%s %s://%s:%d%s", r.Text("method"), r.Text("scheme"),
		r.Text("host"), r.Int("port"), r.Text("path")))
	f := Fetch{r.Seq, r.Text("decision"), what, r.Text("rule"), r.Int("status"), r.Int("bytes_in"),
		r.Int("bytes_out"), r.Text("error")}
	for i := range run.Fetches {
		if run.Fetches[i].Record == r.Cause && r.Cause != 0 && string(r.Field("begun")) != "true" {
			f.Record = r.Cause
			run.Fetches[i] = f
			return
		}
	}
	run.Fetches = append(run.Fetches, f)
}

// decide adds a decision. The second record of a commit or revert replaces the first, which remains
// only if the action was interrupted.
func (run *Run) decide(r audit.Record) {
	_, what, _ := strings.Cut(string(r.Type), ".")
	v := Verdict{r.Seq, r.Time, r.Actor.UID, what, r.Text("digest"), changes(r), r.Texts("held"),
		string(r.Field("protected")) == "true", r.Text("error")}
	begun := string(r.Field("begun")) == "true"
	if n := len(run.Decisions); !begun && n > 0 && run.Decisions[n-1].What == what+" (begun)" {
		run.Decisions = run.Decisions[:n-1]
	}
	if begun {
		v.What += " (begun)"
	}
	run.Decisions = append(run.Decisions, v)
}

func changes(r audit.Record) (c audit.Changes) {
	// A record without changes leaves them zero.
	_ = json.Unmarshal(r.Field("changes"), &c)
	return c
}

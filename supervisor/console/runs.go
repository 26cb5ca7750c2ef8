package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/report"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

const (
	liveEvery = 5 // seconds, while something runs
	// recent runs that are listed from the log
	maxRecent = 20
	// rows of a table with the daemon's answers
	maxRows = 200
	// records of a run on one page
	maxTimeline = 300
	maxFindings = 100
)

// A run is one row of a table of runs.
type run struct {
	ID, Tool  string
	Argv      []string
	Profile   string
	Workspace string
	UID       uint32
	Started   time.Time
	Usage     *message.Usage
	Session   string
	// How it ended; nil if it has not, or the log does not say.
	Outcome []mark
}

type shadow struct {
	ID, Tool string
	Path     string
	State    string
	Disk     int64
	UID      uint32
	Prepared time.Time
	Commit   string
	// There is something to review.
	Open bool
	// Its run was interrupted.
	Cut bool
	// Family says that it is a branch or has branches.
	Family bool
}

type home struct {
	Version api.Version
	Runs    []run
	Shadows []shadow
	Recent  []run
	// The number of rows that are not listed.
	Skipped int
	// Why the log cannot be read, or "".
	NoLog string
	Log   verified
	// The page reloads by itself.
	Live   bool
	Paused bool
}

func (c *Console) home(r *http.Request, s *session) (answer, error) {
	ctx := r.Context()
	h := home{Log: c.verify.known(), Paused: r.URL.Query().Get("live") == "no"}
	var err error
	if h.Version, err = c.Daemon.Version(ctx); err != nil {
		return answer{}, err
	}
	live, err := c.Daemon.Runs(ctx)
	if err == nil {
		h.Shadows, err = c.shadows(ctx)
	}
	if err != nil {
		return answer{}, err
	}
	for _, i := range live {
		h.Runs = append(h.Runs, liveRun(i))
	}
	h.Runs, h.Skipped = clip(h.Runs, maxRows)
	var more int
	h.Shadows, more = clip(h.Shadows, maxRows)
	h.Skipped += more
	recent, err := c.Log.Page(ctx, audit.Filter{Types: []audit.Type{audit.TypeRunStarted}}, 0,
		maxRecent)
	if err != nil {
		if h.NoLog = text(err.Error()); errors.Is(err, fs.ErrPermission) {
			// Asking the daemon reads the whole log, which is too slow for a page that reloads.
			h.NoLog += ". The page Log has what the daemon tells you of it."
		}
	}
	var outcomes [][]mark
	if err == nil {
		if outcomes, err = c.outcomes(ctx, recent.Records); err != nil {
			h.NoLog, recent.Records = text(err.Error()), nil
		}
	}
	alive := map[string]bool{}
	for _, i := range live {
		alive[i.ID] = true
	}
	for i, rec := range recent.Records {
		outcome := outcomes[i]
		if outcome == nil && alive[rec.Run] {
			outcome = []mark{{"wait", "running"}}
		}
		h.Recent = append(h.Recent, run{ID: audit.Original(rec.Run), Tool: raw(rec.Text("tool")),
			Argv: rec.Texts("argv"), Profile: raw(rec.Text("profile")), UID: rec.Actor.UID,
			Workspace: raw(rec.Text("workspace")), Started: rec.Time, Outcome: outcome})
	}
	p := s.page("Runs", "runs", nil)
	if h.Live = len(h.Runs) > 0 || h.Log.Running; h.Live && !h.Paused {
		p.Again = liveEvery
	}
	p.Body = h
	return answer{http.StatusOK, "home.html", p}, nil
}

func liveRun(i message.RunInfo) run {
	return run{ID: i.ID, Tool: text(i.Tool), Argv: append([]string{i.Tool}, i.Args...),
		Profile: text(i.Profile), Workspace: text(i.Workspace), UID: i.UID, Started: i.Started,
		Usage: i.Usage, Session: i.Session}
}

// shadows returns the kept shadows: those to review first, then newest first.
func (c *Console) shadows(ctx context.Context) ([]shadow, error) {
	all, err := c.Daemon.Workspaces(ctx)
	if err != nil {
		return nil, err
	}
	var list []shadow
	family := map[string]bool{}
	for _, i := range all {
		family[i.ID] = family[i.ID] || i.Parent != ""
		family[i.Parent] = true
	}
	for _, i := range all {
		shown := shownShadow(i)
		shown.Family = family[i.ID]
		list = append(list, shown)
	}
	slices.SortStableFunc(list, func(a, b shadow) int {
		if a.Open != b.Open {
			if a.Open {
				return -1
			}
			return 1
		}
		return b.Prepared.Compare(a.Prepared)
	})
	return list, nil
}

func shownShadow(i shadows.WorkspaceInfo) shadow {
	return shadow{ID: i.ID, Tool: text(i.Tool), Path: path(i.Path), State: text(string(i.State)),
		Disk: i.Disk, UID: i.Caller.UID, Prepared: i.Prepared, Commit: text(i.Commit),
		Open: i.State == workspace.Frozen || i.State == workspace.Committing, Cut: i.Unfinished}
}

// A story is the body of the page of one run.
type story struct {
	ID     string
	Live   *run
	Shadow *shadow
	Commit *standing // that can be undone
	Report *report.Run
	Found  []report.Finding
	// Uncommitted changes that contain secrets or lead out of the workspace.
	Waiting []string
	// The number of findings that are not listed.
	Skipped int
	Records []record
	// Records up to this number are on earlier pages.
	After uint64
	// query of the next page
	More  string
	NoLog string
	// The number of lines that are no records.
	Bad int
	Log verified
}

func (c *Console) run(r *http.Request, s *session) (answer, error) {
	ctx, id := r.Context(), r.PathValue("id")
	st := story{ID: id, Log: c.verify.known()}
	known, err := c.Daemon.Inspect(ctx, id)
	if err != nil {
		return answer{}, err
	}
	if shadows, err := c.Daemon.Workspaces(ctx); err == nil {
		for _, i := range shadows {
			if i.ID == id {
				st.Commit = lastCommit(i, c.now())
				shown := shownShadow(i)
				st.Shadow = &shown
			}
		}
	}
	records := recordsOf(known)
	if known.Live != nil {
		l := liveRun(*known.Live)
		st.Live = &l
	}
	if known.Live != nil || known.Truncated {
		// The daemon returns records only for runs that have ended, and a bounded number.
		records = c.Log.Run(ctx, id)
	}
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 63)
	if err != nil {
		after = 0
	}
	st.After = after
	if err := st.take(records); err != nil && !errors.Is(err, report.ErrNothing) {
		st.NoLog = text(err.Error())
	}
	if st.Shadow != nil && st.Shadow.Open {
		st.Waiting = c.waiting(ctx, id)
	}
	p := s.page("Run "+text(id), "runs", st)
	if st.Live != nil {
		p.Again = liveEvery
	}
	return answer{http.StatusOK, "run.html", p}, nil
}

// waiting returns the changes of a shadow that seem to contain a secret, or are links out of the
// workspace.
func (c *Console) waiting(ctx context.Context, id string) (found []string) {
	for l, err := range c.Daemon.Changes(ctx, id, "") {
		if err != nil {
			return append(found, "The changes cannot be read: "+text(err.Error()))
		}
		if l.Change == nil {
			continue
		}
		outward := l.Change.Outside
		for _, r := range l.Change.Risks {
			if r.Class == workspace.Secret || r.Class == workspace.Outward {
				found = append(found, fmt.Sprintf("%s: %s: %s", text(string(r.Class)),
					path(l.Change.Path), text(r.Why)))
				outward = outward && r.Class != workspace.Outward
			}
		}
		if outward {
			found = append(found, "link: "+path(l.Change.Path)+": it leads out of the workspace")
		}
		if len(found) >= maxFindings {
			return append(found, "and perhaps more: review its changes")
		}
	}
	return found
}

// recordsOf parses the records in the daemon's answer.
func recordsOf(known api.Records) func(yield func(audit.Record, error) bool) {
	return func(yield func(audit.Record, error) bool) {
		for _, line := range known.Records {
			if !yield(audit.ParseRecord(line)) {
				return
			}
		}
	}
}

// take fills in the report and one page of records, in one pass.
func (st *story) take(records func(yield func(audit.Record, error) bool)) error {
	one := func(yield func(audit.Record, error) bool) {
		for r, err := range records {
			if _, ok := errors.AsType[*fs.PathError](err); ok || errors.Is(err, context.Canceled) {
				yield(r, err)
				return
			} else if err != nil {
				st.Bad++
				continue
			}
			switch {
			case r.Seq <= st.After || st.More != "":
			case len(st.Records) == maxTimeline:
				st.More = "?after=" + strconv.FormatUint(st.Records[maxTimeline-1].Seq, 10)
			default:
				st.Records = append(st.Records, shownRecord(r))
			}
			if !yield(r, nil) {
				return
			}
		}
	}
	rep, err := report.Make(one, st.ID, false)
	if err != nil {
		return err
	}
	st.Report = rep.Runs[0]
	st.Found, st.Skipped = clip(rep.Findings, maxFindings)
	return nil
}

// maxEnds and maxRefused bound how many records are searched for the outcomes of the listed runs.
const (
	maxEnds    = 200
	maxRefused = 2000
)

// A mark is a word about a state, with its CSS class.
type mark struct{ Class, Text string }

// outcomes returns how the runs ended whose start records are given, newest first: exit code,
// limit, number of refusals and changes. If an id was reused, the records up to the next start
// belong to the earlier run.
func (c *Console) outcomes(ctx context.Context, starts []audit.Record) ([][]mark, error) {
	ended, err := c.Log.Page(ctx, audit.Filter{Types: []audit.Type{audit.TypeRunFinished}}, 0,
		maxEnds)
	if err != nil {
		return nil, err
	}
	refused, err := c.Log.Page(ctx, audit.Filter{Types: []audit.Type{audit.TypeDenied}}, 0,
		maxRefused)
	if err != nil {
		return nil, err
	}
	all, again := make([][]mark, len(starts)), map[string]uint64{}
	for i, start := range starts {
		of := func(r audit.Record) bool {
			return r.Run == start.Run && r.Seq > start.Seq && (again[start.Run] == 0 ||
				r.Seq < again[start.Run])
		}
		var denied int64
		for _, r := range refused.Records {
			if of(r) {
				denied += max(r.Int("count"), 1)
			}
		}
		if n := slices.IndexFunc(ended.Records, of); n >= 0 {
			all[i] = marksOf(ended.Records[n], denied)
		}
		again[start.Run] = start.Seq
	}
	return all, nil
}

func marksOf(end audit.Record, denied int64) []mark {
	exit := mark{"good", "exit 0"}
	if code := end.Int("exit_code"); code != 0 {
		exit = mark{"bad", fmt.Sprintf("exit %d", code)}
	}
	if end.Text("error") != "" {
		exit = mark{"bad", "failed"}
	}
	limit := end.Text("limit")
	if limit == "idle" {
		// An idle session, or one put to sleep for a fork or merge: no tool has failed.
		exit, limit = mark{"", "idle"}, ""
	}
	marks := []mark{exit}
	if limit != "" {
		marks = append(marks, mark{"bad", "limit " + text(limit)})
	}
	if denied > 0 {
		marks = append(marks, mark{"wait", fmt.Sprintf("denied %d", denied)})
	}
	var n struct{ Added, Modified, Deleted int64 }
	if json.Unmarshal(end.Field("changes"), &n) == nil && cmp.Or(n.Added, n.Modified,
		n.Deleted) != 0 {
		marks = append(marks,
			mark{"", fmt.Sprintf("changed +%d ~%d -%d", n.Added, n.Modified, n.Deleted)})
	}
	return marks
}

package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Signals that a run can be ended with here; jail kill knows more.
var signals = map[string]int{"term": 15, "kill": 9}

// standing is the last commit of a shadow that was not reverted, for a page that offers to undo it.
type standing struct {
	ID, Path string
	Commit   string
	Time     time.Time
	UID      uint32
	Paths    int
	Until    time.Time
	// Why it cannot be undone.
	NotKept string
}

// lastCommit returns the commit that a revert would undo, or nil if there is none.
func lastCommit(i shadows.WorkspaceInfo, now time.Time) *standing {
	for n := len(i.Commits) - 1; n >= 0; n-- {
		c := i.Commits[n]
		if !c.Reverted.IsZero() {
			continue
		}
		s := &standing{ID: i.ID, Path: path(i.Path), Commit: c.ID, Time: c.Time, UID: c.Caller.UID,
			Paths: c.Paths - c.Back, Until: c.Until, NotKept: text(c.NotKept)}
		if s.NotKept == "" && now.After(c.Until) {
			s.NotKept = "what it replaced was kept until " + c.Until.UTC().Format(time.RFC3339)
		}
		// The id is put into a form unescaped.
		if s.NotKept == "" && text(c.ID) != c.ID {
			s.NotKept = "its id is none: " + text(c.ID)
		}
		return s
	}
	return nil
}

// askKill answers with the page that asks whether to end a live run. The page does not refresh, so
// that nothing moves under the pointer.
func (c *Console) askKill(r *http.Request, s *session) (answer, error) {
	id := r.PathValue("id")
	known, err := c.Daemon.Inspect(r.Context(), id)
	if err != nil {
		return answer{}, err
	}
	if known.Live == nil {
		return s.said(http.StatusConflict, notice{Title: "It has ended",
			Text: "The run " + text(id) + " runs no more.", Next: s.runPath(id), NextText: "The run"}), nil
	}
	return answer{http.StatusOK, "kill.html",
		s.page("End run "+text(id), "runs", liveRun(*known.Live))}, nil
}

// kill ends a live run. Its shadow is kept.
func (c *Console) kill(r *http.Request, s *session) (answer, error) {
	id := r.PathValue("id")
	back := s.runPath(id)
	signal, ok := signals[r.PostForm.Get("signal")]
	if !ok || r.PostForm.Get("sure") != "yes" {
		return s.undone("To end the run, say how, and tick that you mean it.", back+"/kill", "Back")
	}
	if err := c.Daemon.Kill(r.Context(), id, signal); err != nil {
		return answer{}, err
	}
	return s.said(http.StatusOK, notice{Title: "Signalled", Text: "The run " + text(id) +
		" was told to end. What it has written by then waits for a review.", Next: back,
		NextText: "The run"}), nil
}

// askRevert answers with the page that shows what a revert of a run's shadow would undo, or why it
// cannot.
func (c *Console) askRevert(r *http.Request, s *session) (answer, error) {
	id := r.PathValue("id")
	all, err := c.Daemon.Workspaces(r.Context())
	if err != nil {
		return answer{}, err
	}
	why := "No shadow is kept for the run " + text(id) + "."
	status := http.StatusNotFound
	for _, i := range all {
		if i.ID != id {
			continue
		}
		if last := lastCommit(i, c.now()); last != nil && last.NotKept == "" {
			return answer{http.StatusOK, "revert.html",
				s.page("Undo the commit of run "+text(last.ID), "runs", last)}, nil
		} else if last != nil {
			why, status = "The last commit of the run "+text(id)+" cannot be undone: "+last.NotKept+
				".", http.StatusConflict
		} else {
			why, status = "No commit of the run "+text(id)+" stands.", http.StatusConflict
		}
	}
	return s.said(status, notice{Title: "Nothing to undo", Text: why, Next: s.runPath(id),
		NextText: "The run"}), nil
}

// revert undoes the commit that the form names, if it is still the last one.
func (c *Console) revert(r *http.Request, s *session) (answer, error) {
	id := r.PathValue("id")
	req := shadows.RevertRequest{Commit: r.PostForm.Get("commit")}
	if req.Commit == "" || r.PostForm.Get("sure") != "yes" {
		return s.undone("To undo the commit, tick that you mean it.", s.runPath(id)+"/revert", "Back")
	}
	result, err := c.Daemon.Revert(r.Context(), id, req)
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusOK, "reverted.html", s.page("Undone", "runs",
		doneTo(id, result.Changes, result.Left, result.State))}, nil
}

// A done is the body of the page after a commit or a revert.
type done struct {
	ID      string
	Changes []change
	// The number of changes that are not listed.
	Skipped int
	Held    []conflict
	Left    []string
	NotKept string
	// The shadow still has changes.
	More bool
}

func doneTo(id string, changes []workspace.Change, left []string, state workspace.State) done {
	d := done{ID: id, More: state == workspace.Frozen}
	changes, d.Skipped = clip(changes, maxDone)
	for _, k := range changes {
		d.Changes = append(d.Changes, change{Path: path(k.Path), Kind: k.Kind, Detail: detail(k)})
	}
	for _, l := range left {
		d.Left = append(d.Left, text(l))
	}
	return d
}

const maxDone = 500 // changes that are listed

// commit commits the marked changes, or all. If the changes are no longer those with the digest in
// the form, nothing is written.
func (c *Console) commit(r *http.Request, s *session) (answer, error) {
	id := r.PathValue("id")
	again := s.runPath(id) + "/review"
	req, why := chosen(r.PostForm)
	if why != "" {
		return s.undone(why, again, "Back to the review")
	}
	result, err := c.Daemon.Commit(r.Context(), id, req)
	if err != nil {
		return answer{}, err
	}
	d := doneTo(id, result.Committed, result.Left, result.State)
	d.NotKept = text(result.NotKept)
	for _, h := range result.Held {
		d.Held = append(d.Held, conflict{Path: path(h.Path), Why: text(h.Why)})
	}
	return answer{http.StatusOK, "done.html", s.page("Committed", "runs", d)}, nil
}

// chosen returns the commit request for a form, like that of jail commit --patch, or why the form
// is invalid. A mark on a protected name includes it explicitly.
func chosen(f url.Values) (req shadows.CommitRequest, why string) {
	req.Digest = f.Get("digest")
	if req.Digest == "" {
		return req, "The form does not say which change set was shown."
	}
	if f.Get("what") == "all" {
		if f.Get("pages") != "1" && f.Get("sure") != "yes" {
			return req, "Some of the changes stand on other pages, or not in full on this one. " +
				"To commit all of them, tick that you mean those, too."
		}
		return req, ""
	}
	req.Exact, req.IncludeProtected = true, true
	req.Paths = f["take"]
	hunks := map[string][]int{}
	for _, mark := range f["hunk"] {
		number, path, ok := strings.Cut(mark, ":")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 {
			return req, "The form has a mark that is none."
		}
		if !slices.Contains(req.Paths, path) && !slices.Contains(hunks[path], n) {
			hunks[path] = append(hunks[path], n)
		}
	}
	// If all hunks of a change are marked, the whole change is.
	for _, of := range f["of"] {
		number, path, ok := strings.Cut(of, ":")
		n, err := strconv.Atoi(number)
		if ok && err == nil && n > 0 && len(hunks[path]) == n {
			req.Paths = append(req.Paths, path)
			delete(hunks, path)
		}
	}
	if len(hunks) > 0 {
		req.Hunks = hunks
	}
	if len(req.Paths)+len(hunks) == 0 {
		return req, "Nothing was marked."
	}
	return req, ""
}

// discard deletes a shadow if its changes are still those that were shown.
func (c *Console) discard(r *http.Request, s *session) (answer, error) {
	id := r.PathValue("id")
	again := s.runPath(id) + "/review"
	if r.PostForm.Get("sure") != "yes" {
		return s.undone("To throw the changes away, tick that you mean it: it cannot be taken back.",
			again, "Back to the review")
	}
	digest := ""
	for l, err := range c.Daemon.Changes(r.Context(), id, "") {
		if err != nil {
			return answer{}, err
		}
		if l.Summary != nil {
			digest = l.Summary.Digest
		}
	}
	if digest == "" || digest != r.PostForm.Get("digest") {
		return s.said(http.StatusConflict, notice{Title: "Nothing was done",
			Text: "The changes are not those that were shown: something changed meanwhile.",
			Next: again, NextText: "Review what there is now"}), nil
	}
	if err := c.Daemon.Discard(r.Context(), id); err != nil {
		return answer{}, err
	}
	return s.said(http.StatusOK, notice{Title: "Discarded", Text: "The shadow of run " + text(id) +
		" is thrown away. The real directory is as it was.",
		Next: s.runPath(id), NextText: "The run"}), nil
}

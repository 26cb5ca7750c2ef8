package console

import (
	"net/http"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Signals that a run can be ended with here; jail kill knows more.
var signals = map[string]int{"term": 15, "kill": 9}

// standing is the last commit of a shadow that was not reverted, as a person who may undo it sees
// it.
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

// lastCommit finds the commit that a revert would undo; nil where none stands.
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
		// It would stand in a form as it is.
		if s.NotKept == "" && text(c.ID) != c.ID {
			s.NotKept = "its id is none: " + text(c.ID)
		}
		return s
	}
	return nil
}

// askKill is the page that asks whether a live run is to be ended. It does not ask again by itself,
// so that nothing moves under a hand.
func (c *Console) askKill(w http.ResponseWriter, r *http.Request, s *session) {
	id := r.PathValue("id")
	known, err := c.Daemon.Inspect(r.Context(), id)
	if err != nil {
		c.fail(w, r, s, err)
		return
	}
	if known.Live == nil {
		c.say(w, http.StatusConflict, s, notice{Title: "It has ended", Text: "The run " + text(id) +
			" runs no more.", Next: s.path() + "/runs/" + segment(id), NextText: "The run"})
		return
	}
	c.show(w, http.StatusOK, "kill.html", s.page("End run "+text(id), "runs", liveRun(*known.Live)))
}

// kill ends a live run. Its shadow stays.
func (c *Console) kill(w http.ResponseWriter, r *http.Request, s *session) {
	id := r.PathValue("id")
	back := s.path() + "/runs/" + segment(id)
	signal, ok := signals[r.PostForm.Get("signal")]
	if !ok || r.PostForm.Get("sure") != "yes" {
		c.say(w, http.StatusBadRequest, s, notice{Title: "Nothing was done",
			Text: "To end the run, say how, and tick that you mean it.", Next: back + "/kill",
			NextText: "Back"})
		return
	}
	if err := c.Daemon.Kill(r.Context(), id, signal); err != nil {
		c.fail(w, r, s, err)
		return
	}
	c.say(w, http.StatusOK, s, notice{Title: "Signalled", Text: "The run " + text(id) +
		" was told to end. What it has written by then waits for a review.", Next: back,
		NextText: "The run"})
}

// commitOf finds what a revert of a run's shadow would undo, or says why there is nothing.
func (c *Console) commitOf(w http.ResponseWriter, r *http.Request, s *session) *standing {
	id := r.PathValue("id")
	all, err := c.Daemon.Workspaces(r.Context())
	if err != nil {
		c.fail(w, r, s, err)
		return nil
	}
	why := "No shadow is kept for the run " + text(id) + "."
	status := http.StatusNotFound
	for _, i := range all {
		if i.ID != id {
			continue
		}
		if last := lastCommit(i, c.now()); last != nil && last.NotKept == "" {
			return last
		} else if last != nil {
			why, status = "The last commit of the run "+text(id)+" cannot be undone: "+last.NotKept+
				".", http.StatusConflict
		} else {
			why, status = "No commit of the run "+text(id)+" stands.", http.StatusConflict
		}
	}
	c.say(w, status, s, notice{Title: "Nothing to undo", Text: why, Next: s.path() + "/runs/" +
		segment(id), NextText: "The run"})
	return nil
}

// askRevert is the page that shows what a revert would undo.
func (c *Console) askRevert(w http.ResponseWriter, r *http.Request, s *session) {
	if last := c.commitOf(w, r, s); last != nil {
		c.show(w, http.StatusOK, "revert.html",
			s.page("Undo the commit of run "+text(last.ID), "runs", last))
	}
}

type reverted struct {
	ID      string
	Changes []change
	// Of those are not listed.
	Skipped int
	Left    []string
	// The shadow still has what was committed.
	More bool
}

// revert undoes the commit that was shown, if it is still the last that stands.
func (c *Console) revert(w http.ResponseWriter, r *http.Request, s *session) {
	id := r.PathValue("id")
	req := shadows.RevertRequest{Commit: r.PostForm.Get("commit")}
	if req.Commit == "" || r.PostForm.Get("sure") != "yes" {
		c.say(w, http.StatusBadRequest, s, notice{Title: "Nothing was done",
			Text: "To undo the commit, tick that you mean it.", Next: s.path() + "/runs/" +
				segment(id) + "/revert", NextText: "Back"})
		return
	}
	result, err := c.Daemon.Revert(r.Context(), id, req)
	if err != nil {
		c.fail(w, r, s, err)
		return
	}
	d := reverted{ID: id, More: result.State == workspace.Frozen,
		Skipped: max(0, len(result.Changes)-maxDone)}
	for _, k := range result.Changes[:min(len(result.Changes), maxDone)] {
		d.Changes = append(d.Changes, change{Path: path(k.Path), Kind: k.Kind, Detail: detail(k)})
	}
	for _, l := range result.Left {
		d.Left = append(d.Left, text(l))
	}
	c.show(w, http.StatusOK, "reverted.html", s.page("Undone", "runs", d))
}

package console

import (
	"net/http"
	"time"

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

// kill ends a live run. Its shadow stays.
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

// askRevert is the page that shows what a revert of a run's shadow would undo, or why there is
// nothing.
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

// revert undoes the commit that was shown, if it is still the last that stands.
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

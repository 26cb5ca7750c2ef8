package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
)

// approved proposes an action and does it once it is approved, by the policy or by a person.
func (w *worker) approved(ctx context.Context, req api.ProposeRequest,
	do func(approvals.Action) (string, error)) (string, error) {
	queue := w.daemon.approvals()
	req.Run, req.Key = w.jail.ID(), api.NewKey()
	a, err := queue.Propose(ctx, req)
	if err == nil && a.State == approvals.Pending {
		w.say(statusWaiting, "a person has to approve it: jail approvals approve "+a.ID)
		id := a.ID
		if a, err = queue.Wait(ctx, id); err != nil {
			w.undecided = true
			err = errors.Join(err, w.withdraw(ctx, id))
		}
	}
	if err != nil {
		return "", err
	}
	if a.State != approvals.Approved {
		w.undecided = true
		return "", fmt.Errorf("%s: it is %s", a.Summary, a.State)
	}
	done, err := queue.Carry(ctx, a.ID, req.Key, do)
	return done.Outcome, err
}

// maxWithdraw is how long a withdrawal may take.
const maxWithdraw = 10 * time.Second

// withdraw takes back an action that nobody has approved in time. Only this process has its key: a
// person who approved it later would wait for nothing.
func (w *worker) withdraw(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWithdraw)
	defer cancel()
	_, err := w.daemon.approvals().Withdraw(ctx, id)
	return err
}

// push has a commit pushed that changes some files. Of names that the policy protects jaild asks a
// person.
func (w *worker) push(ctx context.Context, c commit) error {
	_, err := w.approved(ctx, api.ProposeRequest{Type: policy.ActionPush, Changed: c.files,
		External: approvals.External{Push: &approvals.Push{Remote: w.o.Task.Repo.String(),
			Ref: "refs/heads/" + w.o.Task.Branch, Commit: c.id, Was: w.was,
			Credential: w.o.Task.Credential}}},
		func(approvals.Action) (string, error) { return c.id, w.send(ctx, c) })
	return err
}

// Bounds of a pull request, in bytes.
const (
	maxBody     = 15 << 10
	maxAnswer   = 1 << 20
	maxRefusals = 1000
)

// pullRequest has a pull request made, and returns its URL. approved is called before the forge is
// asked for it.
func (w *worker) pullRequest(ctx context.Context, commit, summary string,
	approved func()) (string, error) {
	body := seen(summary)
	if len(body) > maxBody {
		body = strings.ToValidUTF8(body[:maxBody], "") + "\n…"
	}
	pr := &approvals.PullRequest{Repository: w.o.Task.Repo.String(), Head: w.o.Task.Branch, Base: w.base,
		Commit: commit, Title: w.title(), Body: body, Credential: w.o.Task.Forge.Credential}
	return w.approved(ctx, api.ProposeRequest{Type: policy.ActionPullRequest,
		External: approvals.External{PullRequest: pr}},
		func(approvals.Action) (string, error) {
			approved()
			return w.createPR(ctx, pr)
		})
}

// seen is a text of the model's without characters that nobody sees: an action with one is refused.
func seen(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// createPR asks the forge for a pull request: GitHub and Gitea have the same request below different
// paths.
func (w *worker) createPR(ctx context.Context, pr *approvals.PullRequest) (string, error) {
	repo := strings.Split(strings.TrimSuffix(strings.Trim(w.o.Task.Repo.Path, "/"), ".git"), "/")
	forge := w.o.Task.Forge
	to := forge.API.JoinPath("repos", repo[0], repo[1], "pulls")
	header := map[string]string{"Accept": "application/vnd.github+json",
		"X-GitHub-Api-Version": "2022-11-28"}
	if forge.Kind == manifest.Gitea {
		to = forge.API.JoinPath("api", "v1", "repos", repo[0], repo[1], "pulls")
		header = map[string]string{"Accept": "application/json"}
	}
	text, err := json.Marshal(map[string]string{"title": pr.Title, "head": pr.Head, "base": pr.Base,
		"body": pr.Body})
	if err != nil {
		return "", err
	}
	res, err := w.o.Sender.Send(ctx, fetchrun.Request{For: "pull request of worker " + w.o.Task.ID,
		Method: "POST", URL: to, Credential: forge.Credential, Header: header, Body: text})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	var made struct {
		URL string `json:"html_url"`
	}
	switch {
	case res.Status != 201:
		return "", fmt.Errorf("the forge answered %d: %s", res.Status,
			runners.Printable(string(answer), maxRefusals))
	case json.Unmarshal(answer, &made) != nil || !isPage(made.URL):
		return "", errors.New("the forge made the pull request, but its answer has no html_url that is " +
			"a URL: look for the pull request at the forge")
	}
	return made.URL, nil
}

// maxPage bounds the URL of a page, in bytes.
const maxPage = 1000

// isPage reports whether a text that a forge has chosen is the URL of a page.
func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxPage && (u.Scheme == "https" || u.Scheme == "http") &&
		u.Host != "" && u.User == nil && runners.Printable(text, maxPage) == text
}

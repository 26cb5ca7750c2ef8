package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/codetools"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// maxWait bounds the argument wait_seconds of the tool approvals.
const maxWait = 60

// maxWords bounds the message of a commit in bytes, as the API does.
const maxWords = 2 << 10

func (s *Server) addReview() {
	add(s, tool("diff", "Show what changed",
		"Show how the shadow differs from the real directory.", readsOnly), showing(s.tools.Diff))
	add(s, tool("commit", "Propose a commit",
		"Propose to take the changes of the shadow into the real directory. A person decides, "+
			"unless the policy does: the result says whether it waits.", asksPerson), s.commit)
	add(s, tool("revert", "Take back a commit",
		"Take back the last commit of this session in the real directory, or a part of it. A "+
			"person decides.", asksPerson), s.revert)
	add(s, tool("approvals", "Show what waits for a person",
		"List what this session proposed, or wait for the decision on one proposal.", readsOnly),
		s.approvals)
}

// canAsk reports whether the client can show a form to its user (elicitation). For other clients
// the SDK makes a call with a question fail.
func (s *Server) canAsk(req *mcp.CallToolRequest) bool {
	c := req.ClientCapabilities()
	return !s.silent && c != nil && c.Elicitation != nil &&
		(c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

type commitInput struct {
	Paths   []string `json:"paths,omitempty" jsonschema:"only changes at and below these"`
	Message string   `json:"message,omitempty" jsonschema:"what a person should know; shown as your words"`
}

// proposalOutput is the result of the tools commit and revert.
type proposalOutput struct {
	// State is the state of the action, or "ask" if a person has to run the command in Hint.
	State    string `json:"state" jsonschema:"applied, pending, rejected, failed, stale, or ask"`
	Approval string `json:"approval,omitempty" jsonschema:"the id of what waits"`
	Summary  string `json:"summary"`
	Hint     string `json:"hint,omitempty" jsonschema:"what a person can do"`
}

func proposed(a approvals.Action) (*mcp.CallToolResult, proposalOutput, error) {
	o := proposalOutput{State: string(a.State), Approval: a.ID, Summary: a.Summary}
	says := fmt.Sprintf("%s: %s", a.State, a.Summary)
	switch {
	case a.State == approvals.Pending:
		o.Hint = fmt.Sprintf("jail approvals show %s, and then jail approvals approve %s", a.ID, a.ID)
		says = fmt.Sprintf("waits for a person: %s (%s)", a.Summary, o.Hint)
	case a.Error != "":
		says += ": " + a.Error
	}
	return text(says), o, nil
}

func (s *Server) commit(ctx context.Context, req *mcp.CallToolRequest, in commitInput) (
	*mcp.CallToolResult, proposalOutput, error) {
	if answered(req) {
		q, answer, err := s.asked.take(req)
		if err != nil || q.action == nil {
			return nil, proposalOutput{}, cmp.Or(err, errNotAsked)
		}
		return s.decide(ctx, *q.action, answer)
	}
	if len(in.Message) > maxWords {
		return nil, proposalOutput{}, fmt.Errorf("message: %d bytes; at most %d are shown",
			len(in.Message), maxWords)
	}
	a, err := s.propose(ctx, in)
	if err != nil {
		return nil, proposalOutput{}, codetools.Plain(err)
	}
	if a.State != approvals.Pending || !s.canAsk(req) {
		return proposed(a)
	}
	text := a.Summary + "\n"
	if a.Words != "" {
		text += "The agent says: " + runners.Printable(a.Words, maxWords) + "\n"
	}
	return s.asked.ask(text+"Take these changes into the real directory?", asked{action: &a}),
		proposalOutput{}, nil
}

// propose proposes a commit. If the same proposal is pending, it returns that.
func (s *Server) propose(ctx context.Context, in commitInput) (approvals.Action, error) {
	queue := s.session.Client().Approvals()
	waiting, err := queue.List(ctx, false)
	if err != nil {
		return approvals.Action{}, err
	}
	take := shadows.CommitRequest{Paths: in.Paths}
	if len(in.Paths) == 0 {
		take.Paths = nil
	}
	digest := ""
	for _, a := range waiting {
		if a.State != approvals.Pending || a.Commit == nil || a.Commit.Auto ||
			!s.session.Is(a.Run) || a.Words != in.Message {
			continue
		}
		took := a.Commit.Request
		if took.Digest = ""; !reflect.DeepEqual(took, take) {
			continue
		}
		if digest == "" {
			now, err := codetools.Changes(ctx, s.session, codetools.DiffInput{Stat: true})
			if err != nil {
				return approvals.Action{}, err
			}
			digest = now.Digest
		}
		if a.Commit.Request.Digest == digest {
			return a, nil
		}
	}
	return queue.Propose(ctx, api.ProposeRequest{Type: policy.ActionCommit, Run: s.session.ID(),
		Words: in.Message, Commit: &take})
}

// decide carries out a person's answer on an action: "approve", "reject", or empty for none.
func (s *Server) decide(ctx context.Context, a approvals.Action, answer string) (*mcp.CallToolResult,
	proposalOutput, error) {
	if answer == "" {
		// Without an answer the action stays pending.
		a, err := s.session.Client().Approvals().Get(ctx, a.ID)
		if err != nil {
			return nil, proposalOutput{}, codetools.Plain(err)
		}
		return proposed(a)
	}
	c, err := s.decider(ctx)
	if err != nil {
		return nil, proposalOutput{}, codetools.Plain(err)
	}
	defer c.Close()
	decided, err := c.Approvals().Decide(ctx, a.ID, approvals.DecideRequest{Decision: answer,
		SHA256: a.SHA256, Via: "mcp"})
	if err == nil {
		return proposed(decided)
	}
	// This action cannot be decided via mcp, so it stays pending.
	if p := problem.From(err); p.Code == problem.Refused {
		if a, getErr := s.session.Client().Approvals().Get(ctx, a.ID); getErr == nil &&
			a.State == approvals.Pending {
			_, o, _ := proposed(a)
			o.Hint = p.Message + ": " + o.Hint
			return text("waits for a person: " + a.Summary + " (" + o.Hint + ")"), o, nil
		}
	}
	return nil, proposalOutput{}, codetools.Plain(err)
}

type revertInput struct {
	Commit string   `json:"commit,omitempty" jsonschema:"the id of a commit, without it the last one"`
	Paths  []string `json:"paths,omitempty" jsonschema:"only these paths of the commit"`
}

func (s *Server) revert(ctx context.Context, req *mcp.CallToolRequest, in revertInput) (
	*mcp.CallToolResult, proposalOutput, error) {
	take, answer := shadows.RevertRequest{Commit: in.Commit, Paths: in.Paths}, ""
	if answered(req) {
		q, said, err := s.asked.take(req)
		if err != nil || q.revert == nil {
			return nil, proposalOutput{}, cmp.Or(err, errNotAsked)
		}
		take, answer = *q.revert, said
	} else if take.Commit == "" && s.canAsk(req) {
		// Another commit may be the last one by the time that the person answers.
		var err error
		if take.Commit, err = s.lastCommit(ctx); err != nil {
			return nil, proposalOutput{}, codetools.Plain(err)
		}
	}
	what := "take back the last commit of session " + s.session.Name()
	if take.Commit != "" {
		what = "take back the commit " + runners.Printable(take.Commit, maxNamed) + " of session " +
			s.session.Name()
	}
	if n := len(take.Paths); n > maxPaths {
		what += fmt.Sprintf(", of it only %d paths", n)
	} else if n > 0 {
		what += ", of it only"
		for _, p := range take.Paths {
			what += " " + strconv.Quote(runners.Printable(p, maxNamed))
		}
	}
	o := proposalOutput{State: "ask", Summary: what, Hint: "jail revert " + s.session.Name()}
	if len(take.Paths) > 0 {
		o.Hint += " PATH..."
	}
	switch {
	case answer == "" && !answered(req) && s.canAsk(req):
		return s.asked.ask("In the real directory: "+what+"?", asked{revert: &take}), o, nil
	case answer == "reject":
		o.State, o.Hint = "rejected", ""
		return text("rejected: " + what), o, nil
	case answer != "approve":
		return text("a person has to do that: " + o.Hint), o, nil
	}
	if _, err := s.session.Client().Revert(ctx, s.session.ID(), take); err != nil {
		return nil, o, codetools.Plain(err)
	}
	o.State, o.Hint = "applied", ""
	return text("done: " + what), o, nil
}

// lastCommit returns the id of the session's last commit that was not reverted.
func (s *Server) lastCommit(ctx context.Context) (string, error) {
	all, err := s.session.Client().Workspaces(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range all {
		if !s.session.Is(w.GlobalID) {
			continue
		}
		for _, c := range slices.Backward(w.Commits) {
			if c.Reverted.IsZero() {
				return c.ID, nil
			}
		}
	}
	return "", fmt.Errorf("session %s has no commit that can be taken back", s.session.Name())
}

// Bounds of a question about a revert: bytes of a name, and number of paths.
const (
	maxNamed = 300
	maxPaths = 5
)

type approvalsInput struct {
	ID   string `json:"id,omitempty" jsonschema:"only this one"`
	Wait int    `json:"wait_seconds,omitempty" jsonschema:"wait so long for a decision on id, at most 60"`
}

type approvalsOutput struct {
	Approvals []approval `json:"approvals"`
}

type approval struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	State   string `json:"state"`
	Summary string `json:"summary"`
	Error   string `json:"error,omitempty"`
}

func (s *Server) approvals(ctx context.Context, req *mcp.CallToolRequest, in approvalsInput) (
	*mcp.CallToolResult, approvalsOutput, error) {
	o, queue := approvalsOutput{Approvals: []approval{}}, s.session.Client().Approvals()
	if in.Wait < 0 || in.Wait > maxWait || in.Wait > 0 && in.ID == "" {
		return nil, o, fmt.Errorf("wait_seconds is a number up to %d, and needs an id", maxWait)
	}
	var all []approvals.Action
	var err error
	if in.ID == "" {
		all, err = queue.List(ctx, true)
	} else {
		defer lives(ctx, req)()
		all = make([]approvals.Action, 1)
		if all[0], err = queue.Get(ctx, in.ID); err == nil && in.Wait > 0 && s.session.Is(all[0].Run) {
			all[0], err = queue.Await(ctx, in.ID, time.Duration(in.Wait)*time.Second)
		}
	}
	if err != nil {
		return nil, o, codetools.Plain(err)
	}
	for _, a := range all {
		// Hide the proposals of other sessions.
		if s.session.Is(a.Run) {
			o.Approvals = append(o.Approvals, approval{a.ID, a.Type, string(a.State), a.Summary, a.Error})
		}
	}
	if in.ID != "" && len(o.Approvals) == 0 {
		return nil, o, fmt.Errorf("there is no approval %s of this session", in.ID)
	}
	return nil, o, nil
}

// A question to a person is a result after which the client calls the tool again, with the answer
// and the state that the server sent (SEP-2322). The client is not trusted: the state is a random
// name, under which the server stores what the question was about.

// maxQuestions bounds the open questions. Beyond it the oldest is forgotten.
const maxQuestions = 64

// question is the key of the only question in a result.
const question = "decision"

var errNotAsked = errors.New("nobody was asked about that here")

// asked is the subject of a question: one of the fields is set.
type asked struct {
	action *approvals.Action
	revert *shadows.RevertRequest
}

// questions holds the open questions by state, and the states in the order of asking.
type questions struct {
	mu    sync.Mutex
	open  map[string]asked
	order []string
}

// ask stores a question and returns the result with which the client asks its user.
func (q *questions) ask(message string, about asked) *mcp.CallToolResult {
	name := rand.Text()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = map[string]asked{}
	}
	if len(q.order) == maxQuestions {
		delete(q.open, q.order[0])
		q.order = q.order[1:]
	}
	q.open[name], q.order = about, append(q.order, name)
	return &mcp.CallToolResult{RequestState: name, InputRequests: mcp.InputRequestMap{
		question: &mcp.ElicitParams{Mode: "form", Message: message,
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"approve":{` +
				`"type":"boolean","title":"Approve","description":"true approves"}},` +
				`"required":["approve"]}`)}}}
}

// take removes the question that a call answers and returns its subject and the decision:
// "approve", "reject", or empty if the person did not decide.
func (q *questions) take(req *mcp.CallToolRequest) (about asked, decision string, err error) {
	q.mu.Lock()
	about, ok := q.open[req.Params.RequestState]
	delete(q.open, req.Params.RequestState)
	q.mu.Unlock()
	r, isAnswer := req.Params.InputResponses[question].(*mcp.ElicitResult)
	switch {
	case !ok || !isAnswer:
		return asked{}, "", errNotAsked
	case r.Action == "accept" && r.Content["approve"] == true:
		return about, "approve", nil
	case r.Action == "accept", r.Action == "decline":
		return about, "reject", nil
	}
	return about, "", nil
}

// answered reports whether a call claims to answer a question.
func answered(req *mcp.CallToolRequest) bool {
	return len(req.Params.InputResponses) > 0 || req.Params.RequestState != ""
}

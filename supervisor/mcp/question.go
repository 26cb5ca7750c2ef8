package mcp

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Questions to a person are results that have the client call again, with the answer and a state that
// comes from here (SEP-2322). What a client hands back is not to be trusted: the state is a random
// name, and what the answer is about is what was shown under that name.

// maxQuestions bounds the questions without an answer, of which the oldest are forgotten.
const maxQuestions = 64

// question is the key of the one question of a call.
const question = "decision"

var errNotAsked = errors.New("nobody was asked about that here")

// asked is what a person was asked about.
type asked struct {
	action *approvals.Action
	revert *shadows.RevertRequest
}

// questions are those without an answer.
type questions struct {
	mu    sync.Mutex
	open  map[string]asked
	order []string
}

// ask is the result that has the client ask its person.
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

// take returns what an answer is about, and the decision: "" for none. A question has one answer.
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

// answered reports whether a call says that it brings an answer.
func answered(req *mcp.CallToolRequest) bool {
	return len(req.Params.InputResponses) > 0 || req.Params.RequestState != ""
}

// canAsk reports whether the client can show a form to its person. The SDK makes a call fail that asks
// another.
func canAsk(req *mcp.CallToolRequest) bool {
	c := req.ClientCapabilities()
	return c != nil && c.Elicitation != nil &&
		(c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

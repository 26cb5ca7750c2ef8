package fetch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
)

// refusal is a response from the proxy itself, worded so that a person or a model can act on it.
type refusal struct {
	status  int
	code    string
	message string
	// rule is the rule that refused, or the name of the missing one.
	rule  string
	layer string
	// next is the advice on how to proceed.
	next string
	// approval is the id of the action that waits for an approval, or "".
	approval string
}

// Codes of refusals.
const (
	codeBadRequest = "bad_request"
	codeDenied     = "fetch_denied"
	codeFloor      = "address_denied"
	codeBudget     = "budget"
	codeUpstream   = "upstream"
	codeTimeout    = "timeout"
	codeRecord     = "not_recorded"
)

// body returns the JSON for the tool: {"error":{"code","message","rule","layer","next"}}, and
// "approval" if an action waits for one.
func (r *refusal) body() []byte {
	said := map[string]string{
		"code": r.code, "message": r.message, "rule": r.rule, "layer": r.layer, "next": r.next,
		"by": "jail fetch proxy"}
	if r.approval != "" {
		said["approval"] = r.approval
	}
	text, err := json.Marshal(map[string]any{"error": said})
	if err != nil {
		// All fields are strings.
		panic(fmt.Sprintf("bug: a refusal that is not JSON: %v", err))
	}
	return append(text, '\n')
}

// answer returns the whole HTTP response. The stream is closed after it, so later bytes are not
// read as a request.
func (r *refusal) answer(method string) []byte {
	body := r.body()
	out := fmt.Appendf(nil,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
			"Connection: close\r\nX-Jail-Fetch: %s\r\n",
		r.status, http.StatusText(r.status), len(body), r.code)
	if r.approval != "" {
		out = fmt.Appendf(out, "X-Jail-Approval: %s\r\n", r.approval)
	}
	out = append(out, "\r\n"...)
	if method == http.MethodHead {
		return out
	}
	return append(out, body...)
}

func badRequest(err error) *refusal {
	return &refusal{status: http.StatusBadRequest, code: codeBadRequest, message: err.Error(),
		rule: "strict HTTP/1.1",
		next: "send a plain HTTP/1.1 request with an absolute URL"}
}

// deny returns the refusal for a decision d, with advice on the missing rule.
func deny(d policy.Decision, q policy.Connect) *refusal {
	r := &refusal{status: http.StatusForbidden, code: codeDenied, rule: d.Rule, layer: d.Layer,
		message: fmt.Sprintf("%s is not allowed: %s (%s)", strings.TrimPrefix(q.String(),
			"connect "), d.Rule, d.Layer)}
	switch {
	case strings.HasPrefix(d.Rule, "fetch.deny"):
		r.next = "a rule of fetch.deny refuses it, whatever else grants it; do without, or ask " +
			"who wrote " + d.Layer
	case strings.HasPrefix(d.Rule, "approve"):
		r.next = "a rule of approve refuses it, whatever else grants it; do without, or ask " +
			"who wrote " + d.Layer
	case d.Layer == "request":
		r.next = "run again with --fetch " + q.Host
	case d.Layer == "ceiling":
		r.next = "the ceiling of this host refuses it; only its operator can change that"
	case q.Tunnel:
		r.next = "ask the proxy for the https:// URL itself, without CONNECT; or add tls = " +
			"\"opaque\", methods = [\"*\"] to the rule for " + q.Host
	case q.WebSocket:
		r.next = "add websocket = true to the rule for " + q.Host
	case q.Method == "":
		r.next = fmt.Sprintf(
			"add to %s: [[fetch.allow]] host = %q, ports = [%d], and the methods and paths that "+
				"are needed", d.Layer, q.Host, q.Port)
	default:
		r.next = fmt.Sprintf(
			"add to %s: [[fetch.allow]] host = %q, ports = [%d], methods = [%q], paths = [%q]",
			d.Layer, q.Host, q.Port, q.Method, q.Path)
	}
	return r
}

func floorDenied(host, address, what string) *refusal {
	return &refusal{status: http.StatusForbidden, code: codeFloor, rule: "floor: " + what,
		layer: "fetch",
		message: fmt.Sprintf("%s has the address %s (%s), which no policy can grant", host, address,
			what),
		next: "fetch from a host of the public network"}
}

func overBudget(err error) *refusal {
	return &refusal{status: http.StatusForbidden, code: codeBudget, rule: err.Error(),
		layer: "fetch", message: err.Error(),
		next: "do with less, or raise the limit in the policy"}
}

func upstreamFailed(host string, err error) *refusal {
	return &refusal{status: http.StatusBadGateway, code: codeUpstream,
		message: fmt.Sprintf("%s: %s", host, publicError(err)),
		next:    "try again later, or another host"}
}

// publicError returns the text of err without the addresses of the host and its name servers.
func publicError(err error) string {
	text := err.Error()
	if i := strings.Index(text, "->"); i >= 0 {
		text = text[i+2:]
	}
	// Both DNS queries for a name may fail with the same error.
	return strings.Join(slices.Compact(strings.Split(text, "\n")), "; ")
}

// settleTime is the interval at which repeated refusals are recorded as a count, so that a tool
// that is refused a thousand times a second costs the daemon as little as one that is refused once.
const settleTime = time.Second

// tally is a kind of refusal and its count. untold of them are not recorded yet.
type tally struct {
	what   What
	untold int64
}

// refusals counts the refusals of one run by kind.
type refusals struct {
	record recorder
	// paced bounds their rate.
	paced *budget
	mu    sync.Mutex
	kinds map[string]*tally
}

func newRefusals(r recorder) *refusals {
	return &refusals{record: r, paced: newBudget("", policy.FetchBounds{Rate: refusalRate}),
		kinds: map[string]*tally{}}
}

// add records a refusal: the first of its kind at once, equal ones as a count.
func (r *refusals) add(w What) {
	key := fmt.Sprint(w.Kind, " ", w.Method, " ", w.Host, " ", w.Port, " ", w.Rule)
	r.mu.Lock()
	if r.kinds[key] == nil && len(r.kinds) >= maxRefused {
		w = What{ID: w.ID, Kind: w.Kind, Decision: Denied, Layer: w.Layer,
			Rule: "many different requests"}
		key = "many"
	}
	if t := r.kinds[key]; t != nil {
		t.untold++
		r.mu.Unlock()
		return
	}
	r.kinds[key] = &tally{what: w}
	r.mu.Unlock()
	r.record.Refused(Refused{What: w, Count: 1})
}

// refusalRate bounds a run's refusals per second; further ones are delayed. Without it a tool that
// is refused in a loop would take the processor time that other requests need.
const refusalRate = 200

// pace waits until a refusal may be sent, or until ended is closed.
func (r *refusals) pace(ended <-chan struct{}) {
	r.paced.mu.Lock()
	wait := r.paced.turn(time.Now())
	r.paced.mu.Unlock()
	if wait > 0 {
		tick.Wait(ended, wait)
	}
}

// settle records the counts that are not recorded yet.
func (r *refusals) settle() {
	r.mu.Lock()
	var out []Refused
	for _, t := range r.kinds {
		if t.untold > 0 {
			out = append(out, Refused{What: t.what, Count: t.untold})
			t.untold = 0
		}
	}
	r.mu.Unlock()
	for _, known := range out {
		r.record.Refused(known)
	}
}

func (r *refusals) settleOften(ctx context.Context) {
	for range tick.Each(ctx.Done(), settleTime) {
		r.settle()
	}
}

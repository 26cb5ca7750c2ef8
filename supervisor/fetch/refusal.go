package fetch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// refusal is a response of the proxy's own, in words on which a person or a model can act.
type refusal struct {
	status  int
	code    string
	message string
	// rule names the rule that refused, or the missing one.
	rule  string
	layer string
	// next says what to do.
	next string
	// approval is the id of the action that waits for an approval, if one does.
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

// body returns the JSON that the tool reads: {"error":{"code","message","rule","layer","next"}},
// and "approval" where an action waits.
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

// answer returns the whole response. The stream is closed after it: bytes after a refusal are not
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

// deny returns the refusal that names the missing rule.
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
	// Both queries for a name may have the same error.
	return strings.Join(slices.Compact(strings.Split(text, "\n")), "; ")
}

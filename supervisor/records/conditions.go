package records

import (
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// A WrongCondition is the error for a condition of a search that cannot be understood.
type WrongCondition struct{ Name, Value, Why string }

func (w *WrongCondition) Error() string { return w.Name + " " + w.Value + ": " + w.Why }

// Conditions reads the conditions of a search as people write them. get returns the one with a name,
// "" if it is not given; all have the name of their field of the request, but for user, which is a
// name or a number. An error is of type *WrongCondition.
func Conditions(get func(name string) string, types []string,
	now time.Time) (req message.RecordsRequest, f audit.Filter, err error) {
	wrong := func(name, why string) error { return &WrongCondition{name, get(name), why} }
	req = message.RecordsRequest{Run: get("run"), Session: get("session"), Types: types,
		Policy: get("policy"), Tool: get("tool"), Decision: get("decision"), Layer: get("layer"),
		Host: get("host"), Path: get("path")}
	if req.Policy != "" && !strings.HasPrefix(req.Policy, "sha256:") {
		req.Policy = "sha256:" + req.Policy
	}
	if d := req.Decision; d != "" && d != audit.DecisionAllowed && d != audit.DecisionDenied {
		return req, f, wrong("decision", "want allowed or denied")
	}
	if name := get("user"); name != "" {
		number := name
		if known, err := user.Lookup(name); err == nil {
			number = known.Uid
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return req, f, wrong("user", "this host knows no user of the name "+name)
		}
		uid := uint32(n)
		req.UID = &uid
	}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"since", &req.Since}, {"until", &req.Until}} {
		var ok bool
		if *t.to, ok = audit.ParseTime(get(t.name), now); !ok {
			return req, f, wrong(t.name,
				"want how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z")
		}
	}
	if f, err = req.Filter(); err != nil {
		err = wrong("path", strings.TrimPrefix(err.Error(), "path: "))
	}
	return req, f, err
}

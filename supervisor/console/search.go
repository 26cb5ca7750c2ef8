package console

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/records"
)

// pageRecords is the number of records on a page of the log.
const pageRecords = 100

// conditions are the fields of the search form, as in jail audit query.
var conditions = []struct {
	Name, Label, Hint string
	menu              []option
}{
	{"type", "Type", "", optionsOf(audit.Types())},
	{"decision", "Decision", "", optionsOf([]string{audit.DecisionAllowed, audit.DecisionDenied})},
	{"layer", "Layer", "",
		optionsOf([]string{"policy", "wasi", "landlock", "seccomp", "mount", "fetch"})},
	{"since", "Since", "", []option{{Value: "15m", Text: "15 minutes ago"},
		{Value: "1h", Text: "an hour ago"}, {Value: "24h", Text: "a day ago"}, {Value: "168h",
			Text: "a week ago"}}},
	{"run", "Run", "its id", nil},
	{"session", "Session", "its id", nil},
	{"tool", "Tool", "sed, core-utils/sed", nil},
	{"path", "Path", "/etc/**, src/*.go", nil},
	{"host", "Host", "*.example.com", nil},
	{"user", "User", "name or number", nil},
	{"policy", "Policy", "sha256:…", nil},
	{"until", "Until", "2006-01-02T15:04:05Z", nil},
}

// A condition is a field of the form with its value. Fields with known values have a menu.
type condition struct {
	Name, Label, Hint, Value string
	Options                  []option
}

type option struct {
	Value, Text string
	Selected    bool
}

func optionsOf[T ~string](values []T) (all []option) {
	for _, v := range values {
		all = append(all, option{Value: string(v), Text: string(v)})
	}
	return all
}

// selected returns the menu with value selected. A value that the menu does not have is added.
func selected(menu []option, value string) []option {
	if menu == nil {
		return nil
	}
	all, found := []option{{Text: "any", Selected: value == ""}}, value == ""
	for _, o := range menu {
		o.Selected = o.Value == value
		found = found || o.Selected
		all = append(all, o)
	}
	if !found {
		all = append(all, option{value, value, true})
	}
	return all
}

type search struct {
	Conditions []condition
	// Why the search is invalid or failed, or "".
	Wrong   string
	Records []record
	// query of the next page
	Older string
	// query of the first page, if this is a later one
	Newest string
	Bad    int
	Log    verified
	Where  string
	// The records came from the daemon, since this user may not read the files.
	Told bool
}

func (c *Console) search(r *http.Request, s *session) (answer, error) {
	q := r.URL.Query()
	body := search{Log: c.verify.known(), Where: text(c.Log.Where())}
	kept := url.Values{}
	for _, k := range conditions {
		v := strings.TrimSpace(q.Get(k.Name))
		body.Conditions = append(body.Conditions,
			condition{k.Name, k.Label, k.Hint, text(v), selected(k.menu, text(v))})
		if v != "" {
			kept.Set(k.Name, v)
		}
	}
	status := http.StatusOK
	before, err := strconv.ParseUint(q.Get("before"), 10, 63)
	if err != nil {
		before = 0
	}
	types := strings.FieldsFunc(kept.Get("type"), func(r rune) bool { return r == ',' || r == ' ' })
	req, f, err := records.Conditions(kept.Get, types, c.now())
	if w, ok := errors.AsType[*records.WrongCondition](err); ok {
		status = http.StatusBadRequest
		body.Wrong = strings.ToUpper(w.Name[:1]) + w.Name[1:] + ": " + text(w.Why) + "."
	} else if p, told, err := c.records(r.Context(), req, f, before); err != nil {
		status, body.Wrong = http.StatusInternalServerError, "The log cannot be read: "+
			text(err.Error())+"."
		if known, ok := errors.AsType[*problem.Error](err); ok {
			status = api.Status(known.Code)
		}
	} else {
		body.Told = told
		body.Bad = p.Bad
		for _, rec := range p.Records {
			body.Records = append(body.Records, shownRecord(rec))
		}
		if before > 0 {
			body.Newest = "?" + kept.Encode()
		}
		if p.More {
			kept.Set("before", strconv.FormatUint(p.Records[len(p.Records)-1].Seq, 10))
			body.Older = "?" + kept.Encode()
		}
	}
	return answer{status, "log.html", s.page("Log", "log", body)}, nil
}

// records returns the records of one page. If this user may not read the log's files, told is true
// and the records come from the daemon, by the request req, which is equal to the filter f.
func (c *Console) records(ctx context.Context, req message.RecordsRequest, f audit.Filter,
	before uint64) (p audit.Page, told bool, err error) {
	p, err = c.Log.Page(ctx, f, before, pageRecords)
	if !errors.Is(err, fs.ErrPermission) {
		return p, false, err
	}
	var found []audit.Record
	const room = pageRecords + 1
	// The daemon streams the oldest records first.
	for rec, err := range c.Daemon.AuditRecords(ctx, req) {
		if err != nil {
			return audit.Page{}, true, err
		}
		if before > 0 && rec.Seq >= before {
			break
		}
		if found = append(found, rec); len(found) > 2*room {
			found = append(found[:0], found[len(found)-room:]...)
		}
	}
	p = audit.Page{More: len(found) > pageRecords, Records: found[max(0, len(found)-pageRecords):]}
	slices.Reverse(p.Records)
	return p, true, nil
}

func (c *Console) verifyNow(w http.ResponseWriter, r *http.Request, s *session) {
	c.verify.start()
	http.Redirect(w, r, s.path()+"/", http.StatusSeeOther)
}

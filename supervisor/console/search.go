package console

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// pageRecords is how many records a page of the log shows.
const pageRecords = 100

// conditions are the fields of the search, in the order of the form; those of jail audit query.
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

// A condition is a field of the form as it was filled in: a menu, where its values are known.
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

// selected marks what was chosen. A value that a link or a person has in the address stays, also
// where the menu has none such.
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
	// Why the search cannot be made.
	Wrong   string
	Records []record
	// query of the next page
	Older string
	// query of the first page, where this is another
	Newest string
	Bad    int
	Log    verified
	Where  string
	// By the daemon: the files are not for this user.
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
	f, why := filter(kept, c.now())
	before, err := strconv.ParseUint(q.Get("before"), 10, 63)
	if err != nil {
		before = 0
	}
	if why != "" {
		status, body.Wrong = http.StatusBadRequest, why
	} else if p, told, err := c.records(r.Context(), f, kept.Get("path"), before); err != nil {
		status, body.Wrong = http.StatusInternalServerError, "The log cannot be read: "+
			text(err.Error())+"."
		if known, ok := errors.AsType[*problem.Error](err); ok && statuses[known.Code] != 0 {
			status = statuses[known.Code]
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

// records are those of one page. To who may not read the files the daemon tells those that are
// theirs to see; path is the pattern of the filter.
func (c *Console) records(ctx context.Context, f audit.Filter, path string,
	before uint64) (p audit.Page, told bool, err error) {
	p, err = c.Log.Page(ctx, f, before, pageRecords)
	if !errors.Is(err, fs.ErrPermission) {
		return p, false, err
	}
	req := message.RecordsRequest{Run: f.Run, Session: f.Session, Since: f.Since, Until: f.Until,
		UID: f.UID, Policy: f.Policy, Tool: f.Tool,
		Decision: f.Decision, Layer: f.Layer, Host: f.Host, Path: path}
	for _, t := range f.Types {
		req.Types = append(req.Types, string(t))
	}
	var found []audit.Record
	const room = pageRecords + 1
	for rec, err := range c.Daemon.AuditRecords(ctx, req) { // the oldest first
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

// filter reads what was filled in. why says what cannot be.
func filter(q url.Values, now time.Time) (f audit.Filter, why string) {
	f = audit.Filter{Run: q.Get("run"), Session: q.Get("session"), Tool: q.Get("tool"),
		Layer: q.Get("layer"), Host: q.Get("host"), Decision: q.Get("decision"),
		Policy: q.Get("policy")}
	if f.Policy != "" && !strings.HasPrefix(f.Policy, "sha256:") {
		f.Policy = "sha256:" + f.Policy
	}
	for t := range strings.FieldsFuncSeq(q.Get("type"), func(r rune) bool {
		return r == ',' || r == ' '
	}) {
		f.Types = append(f.Types, audit.Type(t))
	}
	if f.Decision != "" && !slices.Contains([]string{audit.DecisionAllowed, audit.DecisionDenied},
		f.Decision) {
		return f, "Decision: want allowed or denied."
	}
	if p := q.Get("path"); p != "" {
		g, err := policy.ParseGlob(p)
		if err != nil {
			return f, "Path: " + text(err.Error()) + "."
		}
		f.Path = g.Match
	}
	if u := q.Get("user"); u != "" {
		number := u
		if known, err := user.Lookup(u); err == nil {
			number = known.Uid
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return f, "User: this host knows no user of the name " + text(u) + "."
		}
		uid := uint32(n)
		f.UID = &uid
	}
	var ok bool
	if f.Since, ok = audit.ParseTime(q.Get("since"), now); !ok {
		return f, "Since: want how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z."
	}
	if f.Until, ok = audit.ParseTime(q.Get("until"), now); !ok {
		return f, "Until: want how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z."
	}
	return f, ""
}

func (c *Console) verifyNow(w http.ResponseWriter, r *http.Request, s *session) {
	c.verify.start()
	http.Redirect(w, r, s.path()+"/", http.StatusSeeOther)
}

// Package console serves pages for reviewing runs in a browser: live runs, the history and the
// changes of a run, hunk by hunk, actions that wait for an approval, the reviewer's agents, the audit
// log, and the effect of a policy. The pages are server-rendered HTML without scripts, over HTTP on
// the loopback interface or on a Unix socket.
//
// The console has no rights of its own: it is a client of the daemon like the command line, run by
// the reviewer, and shows and does only what the reviewer may see and do. An attacker who controls
// it acts as the reviewer. These are the attackers, and the defences:
//
//	attacker                              defence
//	another site in the same browser      the cookie is SameSite=Strict; a POST needs the exact Origin, Sec-Fetch-Site of our own, and the token of the form
//	a name that is bound to 127.0.0.1     the Host of every request must be the very address that is listened on
//	another server on another port        the cookie has a Path that nobody can guess: cookies know no ports, and loopback is one host
//	another user of the machine           the link is good once and for ten minutes; a Unix socket asks the kernel who connects
//	a page in a frame, a plug-in, a font  Content-Security-Policy allows one style sheet and our own forms, and nothing else
//	what a tool wrote                     every text is escaped, reversibly: no control character, no bidi mark, no invisible letter and no HTML of a tool's
//	somebody at the cache or the history  nothing is stored; a spent link opens nothing
//
// A commit names the digest of the changes that were shown, and an approval the digest of the
// action. If anything has changed since, nothing is committed.
package console

import (
	"context"
	"embed"
	"html/template"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A Daemon answers the console's questions about runs and carries out its actions, with the rights
// of the console's user. An *api.Client is one.
type Daemon interface {
	Version(ctx context.Context) (api.Version, error)
	Runs(ctx context.Context) ([]message.RunInfo, error)
	Inspect(ctx context.Context, id string) (api.Records, error)
	AuditRecords(ctx context.Context, req message.RecordsRequest) iter.Seq2[audit.Record, error]
	Workspaces(ctx context.Context) ([]shadows.WorkspaceInfo, error)
	Changes(ctx context.Context, id, patch string, paths ...string) iter.Seq2[api.ReviewLine, error]
	Commit(ctx context.Context, id string, req shadows.CommitRequest) (workspace.Result, error)
	Discard(ctx context.Context, id string) error
	Revert(ctx context.Context, id string, req shadows.RevertRequest) (workspace.Reverted, error)
	Kill(ctx context.Context, id string, signal int) error
}

// A Log reads the audit log, as far as the reader may.
type Log interface {
	// Page returns at most n of the records that match f and have a number below before (0: all),
	// newest first.
	Page(ctx context.Context, f audit.Filter, before uint64, n int) (audit.Page, error)
	// Run streams the records of a run.
	Run(ctx context.Context, id string) iter.Seq2[audit.Record, error]
	// Verify checks the whole log.
	Verify() (audit.Report, error)
	// Where returns the directory of the log, to show people.
	Where() string
}

// A Profile is a policy profile that can be explained.
type Profile struct{ Name, About string }

// Policies explains what policies permit.
type Policies interface {
	Profiles() []Profile
	Explain(profile string) (meaning.Explanation, error)
	// Why answers a question such as read:/etc/passwd.
	Why(profile, question string) (meaning.Answer, error)
}

// Options configure a Console.
type Options struct {
	Daemon    Daemon
	Approvals Approvals
	Log       Log
	Policies  Policies
	// Agents connects to the agents of the reviewer; nil if there are none.
	Agents func(ctx context.Context) (Agents, error)
	// Hosts are the accepted values of the Host header, such as 127.0.0.1:8080. If it is empty, any
	// port of a loopback name is accepted: that is for a Unix socket to which a port of an unknown
	// machine is forwarded.
	Hosts []string
	// now returns the time; nil means time.Now.
	now func() time.Time
}

//go:embed pages
var files embed.FS

// A Console is the HTTP handler of the console.
type Console struct {
	Options
	pages  *template.Template
	style  []byte
	logins *logins
	verify *verifier
	mux    *http.ServeMux
}

// New returns a Console and starts to verify the log in the background.
func New(o Options) (*Console, error) {
	if o.now == nil {
		o.now = time.Now
	}
	pages, err := template.New("").Funcs(functions).ParseFS(files, "pages/*.html")
	if err != nil {
		return nil, err
	}
	style, err := files.ReadFile("pages/style.css")
	if err != nil {
		return nil, err
	}
	c := &Console{Options: o, pages: pages, style: style, logins: newLogins(o.now),
		verify: &verifier{log: o.Log, now: o.now}}
	c.mux = c.routes()
	c.verify.start()
	return c, nil
}

// Link returns the path of a new login link and when it expires.
func (c *Console) Link() (path string, until time.Time) {
	token, until := c.logins.issue()
	return "/login/" + token, until
}

// A page is the data that every template gets.
type page struct {
	Title string
	// path prefix of this login
	Base string
	CSRF string
	// The entry of the navigation that is current.
	Here string
	// Seconds after which the browser reloads the page, or 0.
	Again int
	Body  any
}

// An answer is an HTTP status and a page with its template.
type answer struct {
	status   int
	template string
	page     page
}

func (c *Console) show(w http.ResponseWriter, a answer) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	out := &cutter{w: w, status: a.status}
	if err := c.pages.ExecuteTemplate(out, a.template, a.page); err != nil && !out.begun {
		http.Error(w, "bug: a page cannot be made", http.StatusInternalServerError)
	}
}

// cutter sends the status with the first byte, so that a page that fails before that can have
// another status.
type cutter struct {
	w      http.ResponseWriter
	status int
	begun  bool
}

func (c *cutter) Write(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		c.w.WriteHeader(c.status)
	}
	return c.w.Write(p)
}

// maxForm bounds the body of a POST in bytes, which has the marks of one page of a review.
const maxForm = 4 << 20

// A handler answers a request of a logged-in user.
type handler func(w http.ResponseWriter, r *http.Request, s *session)

// A view returns the page that answers a request.
type view func(r *http.Request, s *session) (answer, error)

func (c *Console) answering(v view) handler {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		a, err := v(r, s)
		if err != nil {
			a = s.failed(r, err)
		}
		c.show(w, a)
	}
}

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.front)
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(c.style)
	})
	mux.HandleFunc("GET "+loginPath+"{token}", c.login)
	handlers := map[string]handler{"POST /log/verify": c.verifyNow, "POST /logout": c.logout}
	for pattern, v := range map[string]view{
		"GET /{$}":                   c.home,
		"GET /runs/{id}":             c.run,
		"GET /runs/{id}/review":      c.review,
		"GET /runs/{id}/branches":    c.branches,
		"POST /runs/{id}/commit":     c.commit,
		"POST /runs/{id}/discard":    c.discard,
		"GET /runs/{id}/kill":        c.askKill,
		"POST /runs/{id}/kill":       c.kill,
		"GET /runs/{id}/revert":      c.askRevert,
		"POST /runs/{id}/revert":     c.revert,
		"GET /waiting":               c.approvals,
		"GET /waiting/{action}":      c.proposal,
		"POST /waiting/{action}":     c.decide,
		"GET /agents":                agentPages{c}.all,
		"GET /agents/{name}":         agentPages{c}.one,
		"POST /agents/{name}/tables": agentPages{c}.tables,
		"GET /log":                   c.search,
		"GET /policy":                c.policy,
	} {
		handlers[pattern] = c.answering(v)
	}
	for pattern, h := range handlers {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+sessionPath+"{session}"+path, c.known(h))
	}
	return mux
}

// front answers visitors without a login how to get a link.
func (c *Console) front(w http.ResponseWriter, _ *http.Request) {
	c.show(w, nobody.said(http.StatusUnauthorized, notice{Title: "Not logged in",
		Text: "This is the console of jail. It opens with a link that jail console prints.",
		Hint: "In the terminal in which jail console runs, press Enter for a new link."}))
}

// drain reads the rest of a request body, up to maxForm, so that a browser that is still sending
// sees the answer.
func drain(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, maxForm) }

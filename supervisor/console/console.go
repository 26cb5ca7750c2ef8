// Package console is the review of runs in a browser: what runs, the story of a run, its change set
// with a mark for each hunk, what waits for an approval, the reviewer's agents, the log and its state,
// and what a policy means. It is server-rendered HTML without a script, over HTTP on the loopback
// interface or on a Unix socket.
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
// A commit names the digest of the change set that was shown, and an approval that of the action: if
// anything changed since, nothing is committed.
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

// A Daemon is asked for all that is live, and acts. An *api.Client is one; it acts with the rights
// of the process that made it.
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

// A Log is the record, as far as the reader may read it.
type Log interface {
	// Page gives at most n of the records that f wants and whose number is below before (0: all),
	// the newest first.
	Page(ctx context.Context, f audit.Filter, before uint64, n int) (audit.Page, error)
	// Run gives the records of a run.
	Run(ctx context.Context, id string) iter.Seq2[audit.Record, error]
	// Verify checks the whole.
	Verify() (audit.Report, error)
	// Where is the directory, for people.
	Where() string
}

// A Profile is one that can be explained.
type Profile struct{ Name, About string }

// Policies says what policies mean.
type Policies interface {
	Profiles() []Profile
	Explain(profile string) (meaning.Explanation, error)
	// Why answers a question such as read:/etc/passwd.
	Why(profile, question string) (meaning.Answer, error)
}

// Options are what a console is made of.
type Options struct {
	Daemon    Daemon
	Approvals Approvals
	Log       Log
	Policies  Policies
	// Agents connects to the agents of the reviewer; nil: there are none.
	Agents func(ctx context.Context) (Agents, error)
	// Hosts are the exact values of the Host header that are answered, such as 127.0.0.1:8080.
	// None: any port of a loopback name, for a Unix socket, to which somebody forwards a port of a
	// machine that we do not know.
	Hosts []string
	// now is the clock; nil is the system's.
	now func() time.Time
}

//go:embed pages
var files embed.FS

// A Console answers requests.
type Console struct {
	Options
	pages  *template.Template
	style  []byte
	logins *logins
	verify *verifier
	mux    *http.ServeMux
}

// New makes a console and begins to verify the log.
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

// Link returns the path of a new login link, and until when it is good.
func (c *Console) Link() (path string, until time.Time) {
	token, until := c.logins.issue()
	return "/login/" + token, until
}

// A page is what a template sees beside its own.
type page struct {
	Title string
	// path of the console of this login
	Base string
	CSRF string
	// Which of the places of the navigation this is.
	Here string
	// Seconds after which the browser asks again, or 0.
	Again int
	Body  any
}

// An answer is a page with the template that shows it.
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

// cutter sends the status with the first byte, so that a page that cannot be made at all has
// another.
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

// maxForm bounds the body of a POST in bytes: the marks of one page of a review.
const maxForm = 4 << 20

// A handler answers a request of somebody who is logged in.
type handler func(w http.ResponseWriter, r *http.Request, s *session)

// A view is a handler that answers with a page.
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

// front explains to visitors without a link how to get one.
func (c *Console) front(w http.ResponseWriter, _ *http.Request) {
	c.show(w, nobody.said(http.StatusUnauthorized, notice{Title: "Not logged in",
		Text: "This is the console of jail. It opens with a link that jail console prints.",
		Hint: "In the terminal in which jail console runs, press Enter for a new link."}))
}

// drain reads what is left of a small body, so that a browser that is still sending sees the
// answer.
func drain(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, maxForm) }

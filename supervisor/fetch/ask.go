package fetch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// A Question asks whether a request that needs an approval may be sent.
type Question struct {
	What
	// URL is the whole URL with its unmodified query; for a tunnel it is HOST:PORT.
	URL string `json:"url"`
	// Body is the SHA-256 of the body in hexadecimal digits, "" if there is none.
	Body string `json:"body,omitempty"`
	// Size is the length of the body in bytes.
	Size int64 `json:"size,omitempty"`
}

// ConnectOf returns the policy's query for a request.
func ConnectOf(w What) policy.Connect {
	q := policy.Connect{Host: w.Host, Port: w.Port, Method: w.Method, Path: w.Path,
		Tunnel: w.Kind == kindTunnel, WebSocket: w.Kind == kindWebSocket}
	if q.Tunnel {
		q.Method, q.Path = "", ""
	}
	return q
}

// names reports whether q.URL has the host, port and path that were decided on.
func names(q Question) bool {
	t := target{scheme: q.Scheme, host: q.Host, port: q.Port, path: q.Path}
	switch q.Kind {
	case kindTunnel:
		return q.URL == net.JoinHostPort(q.Host, strconv.Itoa(int(q.Port)))
	case kindRequest, kindWebSocket:
		query, ok := strings.CutPrefix(q.URL, t.String())
		return ok && (query == "" || query[0] == '?') &&
			(q.Query == query || q.Query == hashedQuery(query))
	}
	return false
}

// A Verdict answers a Question. The zero value lets the request be sent.
type Verdict struct {
	// Code is the code of the refusal.
	Code, Message string
	// Next is the advice on how to proceed.
	Next string
	// Approval is the id of the action that waits for an approval, if one does.
	Approval string
}

// An asker is a recorder that can also ask for verdicts. Ask returns early if its context ends.
type asker interface {
	Ask(context.Context, Question) (Verdict, error)
}

// Errors for a question without a verdict.
var (
	errNoVerdict = errors.New("nobody can be asked for an approval")
	errToolGone  = errors.New("the tool went away")
	errBehind    = errors.New("too much follows it on its stream")
)

// maxAsked bounds the concurrent questions of one run.
const maxAsked = 64

// ask waits for the approval of a request and returns the refusal if there is none. The request's
// timeout and budgets do not run meanwhile. The body is read before, since the question has its
// digest.
func (s *stream) ask(ctx context.Context, rt *roundTrip) *refusal {
	q := Question{What: rt.what, URL: rt.target.String() + rt.target.query}
	if refused := rt.usedUp(); refused != nil {
		return refused
	}
	switch rt.what.Kind {
	case kindTunnel:
		q.URL = net.JoinHostPort(rt.target.host, strconv.Itoa(int(rt.target.port)))
	case kindWebSocket:
		s.whole = []byte{}
	case kindRequest:
		if refused := s.readAll(ctx, rt); refused != nil {
			return rt.refuse(refused)
		}
		if q.Size = int64(len(s.whole)); q.Size > 0 {
			q.Body = fmt.Sprintf("%x", sha256.Sum256(s.whole))
		}
	}
	if _, _, refused := s.attached(rt, s.whole); refused != nil {
		rt.letGo()
		return refused
	}
	v, err := Verdict{}, errNoVerdict
	if r, ok := s.p.record.(asker); ok {
		there, leave := s.whileThere(ctx)
		v, err = r.Ask(there, q)
		leave()
	}
	if err != nil {
		v = Verdict{Code: codeRecord, Message: "the request needs an approval, and " + err.Error(),
			Next: "try again"}
	}
	if v.Code == "" {
		return nil
	}
	rt.letGo()
	return rt.refuse(&refusal{status: 403, code: v.Code, message: v.Message, next: v.Next,
		rule: rt.what.Rule, layer: rt.what.Layer, approval: v.Approval})
}

// whileThere returns a context that ends when the tool closes its stream, even in one direction.
// Otherwise a tool that has given up would use the approval that its next try needs. leave ends the
// watching, and returns when nothing reads the stream any more.
func (s *stream) whileThere(ctx context.Context) (there context.Context, leave func()) {
	there, cancel := context.WithCancelCause(ctx)
	// A person may take any time to decide.
	_ = s.conn.SetDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Bytes of the next request stay in the buffer. When they fill it, the end of the stream
		// can no longer be noticed.
		var err error
		for err == nil {
			_, err = s.r.Peek(s.r.Buffered() + 1)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, bufio.ErrBufferFull):
			cancel(errBehind)
		default:
			cancel(errToolGone)
		}
	}()
	return there, func() {
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = s.conn.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}

// readAll reads the whole body of a request into s.whole, within the request's timeout.
func (s *stream) readAll(ctx context.Context, rt *roundTrip) *refusal {
	ctx, cancel := context.WithTimeout(ctx, rt.time())
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetDeadline(deadline)
	_, whole, refused := s.body(ctx, rt)
	if refused == nil && whole == nil {
		refused = &refusal{status: 413, code: codeBudget, layer: rt.what.Layer, rule: rt.what.Rule,
			message: "the body of a request that waits for an approval has at most " +
				strconv.Itoa(wholeBody) + " bytes", next: "send less"}
	}
	if refused != nil {
		rt.letGo()
		return refused
	}
	s.whole = whole
	return nil
}

// Ask sends q to the daemon and waits for its verdict.
func (l *link) Ask(ctx context.Context, q Question) (Verdict, error) {
	to := l.await(q.ID)
	if err := l.out.send(fromProxy{Question: &q}); err != nil {
		return Verdict{}, err
	}
	select {
	case a := <-to:
		if a.Failed {
			return Verdict{}, errNoVerdict
		}
		return Verdict{Code: a.Code, Message: a.Refuse, Next: a.Next, Approval: a.Approval}, nil
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.waiting, q.ID)
		l.mu.Unlock()
		// The next message reports an error.
		_ = l.out.send(fromProxy{Gone: q.ID})
		return Verdict{}, context.Cause(ctx)
	}
}

// questions are the questions of a proxy that wait for a verdict.
type questions struct {
	waiting sync.WaitGroup
	// all is the parent of their contexts. It ends with the proxy.
	all  context.Context
	stop context.CancelFunc
	mu   sync.Mutex
	// ends has a function for each question that ends its context.
	ends map[uint64]context.CancelFunc
}

func newQuestions() *questions {
	q := &questions{ends: map[uint64]context.CancelFunc{}}
	q.all, q.stop = context.WithCancel(context.Background())
	return q
}

// begin registers question id and returns its context. It returns false if too many questions wait,
// or id is registered already.
func (q *questions) begin(id uint64) (context.Context, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ends) >= maxAsked || q.ends[id] != nil {
		return nil, false
	}
	ctx, end := context.WithCancel(q.all)
	q.ends[id] = end
	return ctx, true
}

// end ends the context of question id. If left is set, it also removes the question.
func (q *questions) end(id uint64, left bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if end := q.ends[id]; end != nil {
		end()
	}
	if left {
		delete(q.ends, id)
	}
}

// decide asks the daemon's approval queue about q and sends the verdict to the proxy.
func (p *Process) decide(q Question) {
	answered := func(v Verdict) {
		p.answer(answer{ID: q.ID, Refuse: v.Message, Code: v.Code, Next: v.Next,
			Approval: v.Approval})
	}
	ctx, ok := p.asks.begin(q.ID)
	if !ok {
		answered(Verdict{Code: codeBudget, Message: "too many requests wait for an approval",
			Next: "ask for fewer at one time"})
		return
	}
	p.asks.waiting.Go(func() {
		defer p.asks.end(q.ID, true)
		v := Verdict{Code: codeRecord, Message: errNoVerdict.Error(), Next: "try again"}
		if p.spec.Ask != nil && names(q) {
			v = p.spec.Ask(ctx, q)
		}
		answered(v)
	})
}

package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// afterHeader is the number of the record behind which a stream of records begins.
	afterHeader = "Jail-After"
	// aliveEvery is how often a stream of records says that it is there, where nothing else comes.
	aliveEvery = 15 * time.Second
	// stalledBound is how long a client may take none of a stream of records.
	stalledBound = 30 * time.Second
)

// errEnding ends the streams of records of a daemon that ends.
var errEnding = problem.New(problem.Ending, "this jaild is being ended")

// events streams records as they are written.
func (srv *Server) events(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	var req message.EventsRequest
	if err == nil {
		req, err = readEvents(r.URL.Query())
	}
	if err == nil {
		err = srv.named(caller, &req.RecordsRequest)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(srv.leaving, func() { cancel(errEnding) })()
	out := newEventStream(w, stalledBound)
	if err == nil {
		defer out.stayAlive(ctx, aliveEvery, cancel)()
		var leave func()
		if leave, err = srv.s.Enter(); err == nil {
			// Not for as long as the stream lasts.
			leave()
			err = srv.s.Records().Follow(ctx, caller, req, out.begin, out.record)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	out.end(problem.From(err))
}

// readEvents is what a query asks for; values writes one.
func readEvents(q url.Values) (req message.EventsRequest, err error) {
	texts := texts(&req.RecordsRequest)
	for name, all := range q {
		var number uint64
		value, bad := all[0], error(nil)
		switch text := texts[name]; {
		case name == "type":
			req.Types = all
		case len(all) > 1:
			bad = errors.New("it is there more than once")
		case text != nil:
			*text = value
		case name == "after":
			number, bad = strconv.ParseUint(value, 10, 63)
			req.After = &number
		case name == "uid":
			number, bad = strconv.ParseUint(value, 10, 32)
			uid := uint32(number)
			req.UID = &uid
		case name == "since":
			req.Since, bad = time.Parse(time.RFC3339Nano, value)
		case name == "until":
			req.Until, bad = time.Parse(time.RFC3339Nano, value)
		default:
			bad = errors.New("there is no such parameter")
		}
		if number := (*strconv.NumError)(nil); errors.As(bad, &number) {
			bad = errors.New("want a whole number")
		} else if moment := (*time.ParseError)(nil); errors.As(bad, &moment) {
			bad = errors.New("want a time, as 2006-01-02T15:04:05Z")
		}
		if bad != nil {
			return req, problem.New(problem.Usage, "query of the request: %s=%.200s: %v", name,
				value, bad)
		}
	}
	return req, nil
}

func values(req message.EventsRequest) url.Values {
	q := url.Values{}
	for name, text := range texts(&req.RecordsRequest) {
		if *text != "" {
			q.Set(name, *text)
		}
	}
	for _, t := range req.Types {
		q.Add("type", t)
	}
	for name, t := range map[string]time.Time{"since": req.Since, "until": req.Until} {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	if req.UID != nil {
		q.Set("uid", strconv.FormatUint(uint64(*req.UID), 10))
	}
	if req.After != nil {
		q.Set("after", strconv.FormatUint(*req.After, 10))
	}
	return q
}

// texts are the conditions that are texts, by their parameters.
func texts(r *message.RecordsRequest) map[string]*string {
	return map[string]*string{"run": &r.Run, "session": &r.Session, "policy": &r.Policy,
		"tool": &r.Tool, "decision": &r.Decision, "layer": &r.Layer,
		"host": &r.Host, "path": &r.Path}
}

// An eventStream writes lines that are sent at once: records, empty ones for life, and at last what
// went wrong. A client that takes none of it for too long is let go; the records wait in the log.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stalled time.Duration

	mu    sync.Mutex
	begun bool
	// Record that was sent, or behind which it began.
	last   uint64
	latest time.Time // when something was sent
}

func newEventStream(w http.ResponseWriter, stalled time.Duration) *eventStream {
	return &eventStream{w: w, control: http.NewResponseController(w), stalled: stalled}
}

func (e *eventStream) begin(after uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun, e.last = true, after
	e.w.Header().Set("Content-Type", "application/x-ndjson")
	e.w.Header().Set(afterHeader, strconv.FormatUint(after, 10))
	// Its deadline is not for another request.
	e.w.Header().Set("Connection", "close")
	return e.send(func() error { e.w.WriteHeader(http.StatusOK); return nil })
}

func (e *eventStream) record(r audit.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = max(e.last, r.Seq)
	return e.line(r.Line)
}

// line writes one; the holder of mu may.
func (e *eventStream) line(text []byte) error {
	return e.send(func() error {
		_, err := e.w.Write(append(text[:len(text):len(text)], '\n'))
		return err
	})
}

func (e *eventStream) send(write func() error) error {
	e.latest = time.Now()
	// What knows no deadlines is a test's.
	_ = e.control.SetWriteDeadline(e.latest.Add(e.stalled))
	return errors.Join(write(), e.control.Flush())
}

// stayAlive writes an empty line so often where nothing else is sent, so that both sides find out
// when the other is gone.
func (e *eventStream) stayAlive(ctx context.Context, every time.Duration,
	gone context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		for range tick.Each(ctx.Done(), every) {
			if err := e.alive(every); err != nil {
				gone(err)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (e *eventStream) alive(every time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun || time.Since(e.latest) < every/2 {
		return nil
	}
	return e.line(nil)
}

// end says why nothing more comes.
func (e *eventStream) end(why *problem.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begun {
		writeProblem(e.w, why)
		return
	}
	if why.Code == problem.Ending {
		told := *why
		told.Hint = fmt.Sprintf("ask the next one for what comes after record %d", e.last)
		why = &told
	}
	if text, err := json.Marshal(Problem{why}); err == nil {
		// A client that is gone needs no answer.
		_ = e.line(text)
	}
}

// Events gives records as they are written: those that the request wants, of those that the caller
// may read. One without a line comes once, and says that all those were given that were there at
// the beginning. It ends with an error, unless the caller ends it; the request with After as the
// number of the last record goes on.
func (c *Client) Events(ctx context.Context, req message.EventsRequest) iter.Seq2[audit.Record,
	error] {
	return func(yield func(audit.Record, error) bool) {
		answer, err := c.link.open(ctx, "GET", pathEvents+"?"+values(req).Encode(), nil)
		if err != nil {
			yield(audit.Record{}, err)
			return
		}
		defer answer.Close()
		lines, caughtUp := bufio.NewReader(answer), false
		for {
			text, err := lines.ReadBytes('\n')
			text = bytes.TrimSuffix(text, []byte("\n"))
			var rec audit.Record
			switch {
			case err != nil:
				err = c.link.explain(err)
			case len(text) > 0:
				rec, err = readEvent(text)
			case caughtUp:
				continue
			default:
				caughtUp = true
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// readEvent reads a line of a stream of records: a record begins with its number, what else comes
// is the end.
func readEvent(text []byte) (audit.Record, error) {
	if bytes.HasPrefix(text, []byte(`{"seq":`)) {
		return audit.ParseRecord(text)
	}
	var p Problem
	if err := json.Unmarshal(text, &p); err != nil || p.Error == nil {
		return audit.Record{}, fmt.Errorf("the daemon sent what is no record: %.200q", text)
	}
	return audit.Record{}, p.Error
}

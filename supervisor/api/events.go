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
	// afterHeader is the header with the number of the record after which a stream of records
	// begins.
	afterHeader = "Jail-After"
	// aliveEvery is how often a stream of records sends an empty line if there is nothing else to
	// send.
	aliveEvery = 15 * time.Second
	// stalledBound is how long a client may not read from a stream of records before it is dropped.
	stalledBound = 30 * time.Second
)

// errEnding is the last line of streams of records when the daemon ends.
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
			// The daemon does not wait for the stream to end.
			leave()
			err = srv.s.Records().Follow(ctx, caller, req, out.begin, out.record)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	out.end(problem.From(err))
}

// readEvents parses the query of a request for events. values is its inverse.
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

// texts returns the string conditions of a request by their query parameters.
func texts(r *message.RecordsRequest) map[string]*string {
	return map[string]*string{"run": &r.Run, "session": &r.Session, "policy": &r.Policy,
		"tool": &r.Tool, "decision": &r.Decision, "layer": &r.Layer,
		"host": &r.Host, "path": &r.Path}
}

// An eventStream sends lines at once: records, empty lines to keep the connection alive, and at
// last an error. A client that does not read for too long is dropped; it can get the records from
// the log later.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stalled time.Duration

	mu    sync.Mutex
	begun bool
	// The last record that was sent, or the one after which the stream began.
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
	// The write deadline must not apply to another request.
	e.w.Header().Set("Connection", "close")
	return e.send(func() error { e.w.WriteHeader(http.StatusOK); return nil })
}

func (e *eventStream) record(r audit.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = max(e.last, r.Seq)
	return e.line(r.Line)
}

// line sends one line. e.mu is held.
func (e *eventStream) line(text []byte) error {
	return e.send(func() error {
		_, err := e.w.Write(append(text[:len(text):len(text)], '\n'))
		return err
	})
}

func (e *eventStream) send(write func() error) error {
	e.latest = time.Now()
	// Only a test's writer has no deadlines.
	_ = e.control.SetWriteDeadline(e.latest.Add(e.stalled))
	return errors.Join(write(), e.control.Flush())
}

// stayAlive sends an empty line every so often if nothing else is sent, so that both sides notice
// when the other is gone. It calls gone with the error of a failed write.
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

// end sends the error why the stream ends.
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

// Events streams records as they are written: those that match the request and that the caller may
// read. One record without a line comes once, after all that existed at the start. The stream ends
// with an error unless the caller ends it; a request with the number of the last record as After
// continues it.
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

// readEvent parses a line of a stream of records: a record, or the error that ends the stream.
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

package fetch

import (
	"fmt"
	"sync"
	"time"
)

const (
	// heldTime is how long an outcome waits for an intent to share a flush with.
	heldTime = 2 * time.Millisecond
	// maxHeld bounds the waiting outcomes.
	maxHeld = 64
	// maxRecording bounds one run's records in flight, so that another run's record waits for at
	// most that many.
	maxRecording = 128
)

// recording passes a proxy's records to the log: an intent before the connection, and an outcome
// for each intent.
type recording struct {
	log Log
	// ended is closed when the proxy has ended.
	ended <-chan struct{}
	// asked counts the records that are being written.
	asked sync.WaitGroup
	// places bounds the records in flight to maxRecording.
	places chan struct{}
	// next passes a record to an idle worker.
	next chan func()
	mu   sync.Mutex
	// internal has the daemon's entries of internal hosts.
	internal []Internal
	// open has the intents without an outcome, by request id.
	open map[uint64]*openIntent
	// held has the outcomes that wait for an intent.
	held  []Outcome
	timer *time.Timer
}

// openIntent is an intent without an outcome.
type openIntent struct {
	// socket is the Unix socket of the request's host by the daemon's entries, or "".
	socket string
	// recorded: the log has the intent.
	recorded bool
}

func newRecording(log Log, internal []Internal, ended <-chan struct{}) *recording {
	return &recording{log: log, ended: ended, internal: internal, open: map[uint64]*openIntent{},
		places: make(chan struct{}, maxRecording), next: make(chan func())}
}

// intend records the outcomes held and the intent i, and returns the answer to the proxy.
func (r *recording) intend(held []Outcome, i Intent) answer {
	a := answer{ID: i.ID}
	if own := theHost.any(outward(r.internal, i)); own != "" {
		a.Refuse = own
		for _, o := range held {
			r.log.Ended(o)
		}
		return a
	}
	open := &openIntent{}
	if e := findInternal(r.internal, i.Host, i.Port); e != nil {
		open.socket = e.Socket
	}
	r.mu.Lock()
	r.open[i.ID] = open
	r.mu.Unlock()
	refuse, err := r.log.IntendAfter(held, i)
	if a.Refuse, a.Failed = refuse, err != nil; refuse != "" {
		a.Code = codeDenied
	}
	r.mu.Lock()
	if open.recorded = !a.Failed && refuse == ""; !open.recorded {
		delete(r.open, i.ID)
	}
	r.mu.Unlock()
	return a
}

// socketOf returns the Unix socket to which request id may get a connection, or "". The request
// must be recorded and without an outcome, and the daemon's entries must give its host a socket.
func (r *recording) socketOf(id uint64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open := r.open[id]; open != nil && open.recorded {
		return open.socket
	}
	return ""
}

// outcome records the outcome of an intent. It ignores an outcome without an intent.
func (r *recording) outcome(o Outcome) {
	r.mu.Lock()
	known := r.open[o.ID] != nil
	delete(r.open, o.ID)
	r.mu.Unlock()
	switch {
	// At once, since the tool's next request is recorded as its successor.
	case known && o.Redirect != "":
		r.log.Ended(o)
	case known:
		r.hold(o)
	}
}

// atOnce calls record in parallel with others, so that they share a flush. It blocks while
// maxRecording records are in flight.
func (r *recording) atOnce(record func()) {
	r.places <- struct{}{}
	r.asked.Add(1)
	select {
	case r.next <- record:
	// No worker is idle.
	default:
		go r.work(record)
	}
}

// work writes record and further ones until the proxy ends. Workers are reused, since their stacks
// have grown.
func (r *recording) work(record func()) {
	for {
		record()
		<-r.places
		r.asked.Done()
		select {
		case record = <-r.next:
		case <-r.ended:
			return
		}
	}
}

// hold keeps an outcome for heldTime, in which the tool's next intent usually arrives. Both then
// share one flush, and the intent does not wait for a separate flush of the outcome.
func (r *recording) hold(o Outcome) {
	r.mu.Lock()
	r.held = append(r.held, o)
	full := len(r.held) >= maxHeld
	if r.timer == nil {
		r.timer = time.AfterFunc(heldTime, r.release)
	}
	r.mu.Unlock()
	if full {
		r.release()
	}
}

// unhold removes and returns the held outcomes.
func (r *recording) unhold() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unheld()
}

func (r *recording) unheld() []Outcome {
	held := r.held
	r.held = nil
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return held
}

// release records the held outcomes.
func (r *recording) release() {
	r.mu.Lock()
	held := r.unheld()
	// Under the lock, so that finish, which calls release before it waits, counts them.
	r.asked.Add(len(held))
	r.mu.Unlock()
	for _, o := range held {
		r.places <- struct{}{}
		go func() {
			defer r.asked.Done()
			defer func() { <-r.places }()
			r.log.Ended(o)
		}()
	}
}

// finish waits until everything that the proxy reported is recorded.
func (r *recording) finish() {
	r.release()
	r.asked.Wait()
}

// unknown records an unknown outcome for each open intent, after the proxy has ended by err.
func (r *recording) unknown(err error) {
	r.mu.Lock()
	open := r.open
	r.open = nil
	r.mu.Unlock()
	for id := range open {
		r.log.Ended(Outcome{ID: id,
			Error:     "unknown: the proxy ended before the request did (" + err.Error() + ")",
			Truncated: true})
	}
}

// idempotencyKey is the header by which a host recognizes a repeated request.
const idempotencyKey = "Idempotency-Key"

// maxEventKey bounds the name of an event in bytes.
const maxEventKey = 512

// An event is what an agent currently works on. Each of its requests gets a key AGENT/SEQ/fN, which
// is the same when the event is repeated, if the agent then makes the same requests in the same
// order. The f separates these keys from those of model requests, which the agent's host numbers.
type event struct {
	mu   sync.Mutex
	name string
	sent int
}

// begin sets the current event; empty means none. The name comes from inside the jail. It is used
// only in a header that the tool could send itself.
func (e *event) begin(name string) {
	if len(name) > maxEventKey || !plainField(idempotencyKey, name) {
		name = ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.name, e.sent = name, 0
}

// next returns the key of the next request, or "" without a current event. A refused or unapproved
// request uses up a number, too, so that it does not change the keys of others.
func (e *event) next() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.name == "" {
		return ""
	}
	e.sent++
	return fmt.Sprintf("%s/f%d", e.name, e.sent)
}

// keyed adds key to the headers, unless the tool has set an idempotency key.
func keyed(headers fields, key string) fields {
	if key == "" || len(headers.get(idempotencyKey)) > 0 {
		return headers
	}
	return append(headers, field{idempotencyKey, key})
}

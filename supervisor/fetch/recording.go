package fetch

import (
	"fmt"
	"sync"
	"time"
)

const (
	// heldTime is how long an outcome waits for an intent that shares its write.
	heldTime = 2 * time.Millisecond
	// maxHeld bounds the waiting outcomes.
	maxHeld = 64
	// maxRecording bounds the records of one run on their way to the log: a record of another run
	// waits for at most so many.
	maxRecording = 128
)

// recording brings what a proxy does to the log: an intent before anything is dialled, and an
// outcome for each intent.
type recording struct {
	log Log
	// ended is closed when the proxy has ended.
	ended <-chan struct{}
	// asked counts the records that are being written.
	asked sync.WaitGroup
	// places bounds them to maxRecording.
	places chan struct{}
	// next passes the next record to an idle worker.
	next chan func()
	mu   sync.Mutex
	// internal are the daemon's entries of hosts inside the operator's network.
	internal []Internal
	// open are the intents without an outcome.
	open map[uint64]*openIntent
	// held are outcomes that wait for an intent.
	held  []Outcome
	timer *time.Timer
}

// openIntent is an intent without an outcome.
type openIntent struct {
	// socket is the Unix socket of its host, if the daemon's entries say so.
	socket string
	// recorded: the intent is on record.
	recorded bool
}

func newRecording(log Log, internal []Internal, ended <-chan struct{}) *recording {
	return &recording{log: log, ended: ended, internal: internal, open: map[uint64]*openIntent{},
		places: make(chan struct{}, maxRecording), next: make(chan func())}
}

// intend records an intent, after the held outcomes, and returns the reply to the proxy.
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

// socketOf returns the Unix socket that a request may have a connection to, or "": its intent is on
// record, its outcome is not, and the daemon's entries give its host a socket.
func (r *recording) socketOf(id uint64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open := r.open[id]; open != nil && open.recorded {
		return open.socket
	}
	return ""
}

// outcome records the outcome of an intent; one of none is left out.
func (r *recording) outcome(o Outcome) {
	r.mu.Lock()
	known := r.open[o.ID] != nil
	delete(r.open, o.ID)
	r.mu.Unlock()
	switch {
	// The tool's next request is recorded as the sequel.
	case known && o.Redirect != "":
		r.log.Ended(o)
	case known:
		r.hold(o)
	}
}

// atOnce records concurrently with others, so that they share a flush. At most maxRecording records
// are in flight; the proxy's next message waits.
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

// work writes records until the proxy ends. A worker stays for the next record, since it has grown
// its stack.
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
// share one flush, and the intent, for which a request waits, does not wait for the flush of the
// outcome.
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

// unhold takes the held outcomes.
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
	// Under the lock: a waiter for asked has released before.
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

// finish waits until everything is recorded that the proxy said. Requests whose intents are being
// recorded now have no known outcome.
func (r *recording) finish() {
	r.release()
	r.asked.Wait()
}

// unknown records an outcome for each intent without one, after the end of the proxy.
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

// idempotencyKey is the header by which a host knows a request that comes again.
const idempotencyKey = "Idempotency-Key"

// maxEventKey bounds the name of an event, in bytes.
const maxEventKey = 512

// An event is what an agent works on. Each request that it makes meanwhile gets a key, AGENT/SEQ/fN:
// the same when the event is repeated, if the agent then makes the same requests in the same order.
// The f tells the keys from those of questions to models, which the host of the agent numbers.
type event struct {
	mu   sync.Mutex
	name string
	sent int
}

// begin notes the event that the agent works on now, empty for none. The name comes from inside the
// jail. It goes nowhere but into a header that the tool could send by itself.
func (e *event) begin(name string) {
	if len(name) > maxEventKey || !plainField(idempotencyKey, name) {
		name = ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.name, e.sent = name, 0
}

// next returns the key of the request that comes now, empty if the tool works on no event. Each request
// has one number, whatever becomes of it: an approval or a refusal changes no other's.
func (e *event) next() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.name == "" {
		return ""
	}
	e.sent++
	return fmt.Sprintf("%s/f%d", e.name, e.sent)
}

// keyed returns the headers of a request with its key, unless the tool has given it one itself.
func keyed(headers fields, key string) fields {
	if key == "" || len(headers.get(idempotencyKey)) > 0 {
		return headers
	}
	return append(headers, field{idempotencyKey, key})
}

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/jail-sandbox/jail/runners/agent"
)

const (
	// maxCalls is how many calls may wait for jail-agentd at a time.
	maxCalls = 64
	// maxAhead is how many replies of one call are buffered for the guest.
	maxAhead = 64
)

// calls holds the calls that wait for replies from jail-agentd, by id.
type calls struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*pending
}

// A pending is a call that waits for replies.
type pending struct {
	id      uint64
	replies chan agent.Reply
	// given is closed when the guest wants no more replies.
	given chan struct{}
	once  sync.Once
}

func (c *calls) add() (*pending, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= maxCalls {
		return nil, agent.Errorf(agent.ErrInProgress, "%d calls wait for their answers already",
			maxCalls)
	}
	if c.open == nil {
		c.open = map[uint64]*pending{}
	}
	c.last++
	p := &pending{id: c.last, replies: make(chan agent.Reply, maxAhead), given: make(chan struct{})}
	c.open[p.id] = p
	return p, nil
}

func (c *calls) remove(p *pending) {
	p.once.Do(func() { close(p.given) })
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, p.id)
}

// reply passes a reply to its call. It blocks while the guest's buffer is full. A reply to an
// unknown call is dropped.
func (c *calls) reply(r agent.Reply) {
	c.mu.Lock()
	p := c.open[r.ID]
	c.mu.Unlock()
	if p == nil {
		return
	}
	select {
	case p.replies <- r:
	case <-p.given:
	}
}

// An Answer is the answer to a call. The guest reads it to its end and closes it.
type Answer struct {
	// Stream: the answer is a stream of server-sent events, else one JSON object.
	Stream bool

	text bytes.Reader
	// more returns the next part, with io.EOF if it is the last. It is set to nil afterwards.
	more  func() ([]byte, error)
	close func()
}

// Read reads a part of the answer into b. It blocks until there is data or the answer ends.
func (a *Answer) Read(b []byte) (int, error) {
	for a.text.Len() == 0 {
		if a.more == nil {
			return 0, io.EOF
		}
		part, err := a.more()
		if err != nil {
			a.more = nil
			a.Close()
			if !errors.Is(err, io.EOF) {
				return 0, err
			}
		}
		a.text.Reset(part)
	}
	return a.text.Read(b)
}

// Close drops the rest of the answer. It may be called twice.
func (a *Answer) Close() error {
	if a.close != nil {
		a.close()
		a.close = nil
	}
	return nil
}

// answerOf returns an Answer with this result or, if err is not nil, this error.
func answerOf(result any, err error) *Answer {
	a := &Answer{}
	a.text.Reset(envelope(result, err))
	return a
}

// envelope returns the JSON of an answer: an object with the result or the error.
func envelope(result any, err error) []byte {
	var of any = struct {
		Result any `json:"result"`
	}{result}
	if err != nil {
		of = struct {
			Error *agent.Error `json:"error"`
		}{asError(err)}
	}
	text, err := json.Marshal(of)
	if err != nil {
		return envelope(nil, agent.Errorf(agent.ErrFailed, "%v", err))
	}
	return text
}

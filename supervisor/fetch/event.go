package fetch

import (
	"fmt"
	"sync"
)

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

// key returns the headers of a request with the key of it, unless the tool has given it one itself or
// works on no event.
func (e *event) key(headers fields) fields {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.name == "" {
		return headers
	}
	e.sent++
	if len(headers.get(idempotencyKey)) > 0 {
		return headers
	}
	return append(headers, field{idempotencyKey, fmt.Sprintf("%s/f%d", e.name, e.sent)})
}

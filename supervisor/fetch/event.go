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

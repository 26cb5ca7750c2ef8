package host

import (
	"context"
	"encoding/json"

	"github.com/jail-sandbox/jail/runners/agent"
)

// maxAdmin bounds the input of an operation, in bytes.
const maxAdmin = 64 << 20

// admin holds the owner's operations on the database that are not done yet.
type admin struct {
	// parts are the received parts of the operations' inputs, by operation id.
	parts map[uint64][]byte
	// waiting are the operations that wait for the end of a transaction.
	waiting []agent.Admin
}

// administer takes a part of an operation. After the last part it does the operation, as soon as
// the guest is in no transaction.
func (h *Host) administer(a agent.Admin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.admin.parts == nil {
		h.admin.parts = map[uint64][]byte{}
	}
	all := append(h.admin.parts[a.ID], a.Data...)
	if len(all) > maxAdmin {
		h.result(a.ID, nil, agent.Errorf(agent.ErrTooLarge, "more than %d MiB", maxAdmin>>20))
		delete(h.admin.parts, a.ID)
		return
	}
	if a.More {
		h.admin.parts[a.ID] = all
		return
	}
	delete(h.admin.parts, a.ID)
	a.Data = all
	h.admin.waiting = append(h.admin.waiting, a)
	h.operate()
}

// operate does the waiting operations, unless the guest is in a transaction. h.mu is held.
func (h *Host) operate() {
	if h.work != nil {
		return
	}
	for _, a := range h.admin.waiting {
		result, err := h.operation(a)
		h.result(a.ID, result, err)
	}
	h.admin.waiting = nil
}

// operation does one operation and returns its result. h.mu is held.
func (h *Host) operation(a agent.Admin) (result any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), h.o.Deadline)
	defer cancel()
	result, err = h.store.Administer(ctx, h.o.ID, a)
	if err == nil {
		err = h.store.Sync()
	}
	return result, err
}

// result reports the result of an operation, in parts.
func (h *Host) result(id uint64, result any, err error) {
	var text []byte
	if err == nil {
		text, err = json.Marshal(result)
	}
	if err != nil {
		h.report(agent.Report{Admin: &agent.AdminResult{ID: id, Error: asError(err)}})
		return
	}
	agent.Split(text, agent.MaxParams, func(part []byte, more bool) {
		h.report(agent.Report{Admin: &agent.AdminResult{ID: id, Data: part, More: more}})
	})
}

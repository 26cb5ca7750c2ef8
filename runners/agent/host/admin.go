package host

import (
	"context"
	"encoding/json"

	"github.com/jail-sandbox/jail/runners/agent"
)

// maxAdmin is the maximum size of an operation's input in bytes.
const maxAdmin = 64 << 20

// admin are the owner's operations on the database.
type admin struct {
	// parts holds the input received so far, by the id of the operation.
	parts map[uint64][]byte
	// waiting are complete operations that wait for the end of the guest's transaction.
	waiting []agent.Admin
}

// administer receives a part of an operation. It runs the operation when its input is complete and
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

// operate runs the waiting operations if the guest is in no transaction. h.mu is held.
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

// operation runs one operation and returns its result. h.mu is held.
func (h *Host) operation(a agent.Admin) (result any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), h.o.Deadline)
	defer cancel()
	result, err = h.store.Administer(ctx, h.o.ID, a)
	if err == nil {
		err = h.store.Sync()
	}
	return result, err
}

// result sends the result of an operation to jail-agentd, in parts.
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

package worker

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetchrun"
)

// Statuses of a task.
const (
	statusStarting   = "starting"
	statusCloning    = "cloning"
	statusBranching  = "branching"
	statusThinking   = "thinking"
	statusTool       = "tool"
	statusWaiting    = "waiting"
	statusCommitting = "committing"
	statusPushing    = "pushing"
	statusPR         = "creating_pr"
	statusRecovering = "recovering"
)

// A Progress reports a step of a task to the coordinator.
type Progress struct {
	TaskID   string    `json:"task_id"`
	Status   string    `json:"status"`
	Message  string    `json:"message,omitempty"`
	ToolCall *ToolCall `json:"tool_call,omitempty"`
	// Timestamp is ISO 8601.
	Timestamp time.Time `json:"timestamp"`
}

// A ToolCall is a tool call of the model.
type ToolCall struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// maxInput bounds the input of a tool call in a report, in bytes.
const maxInput = 16 << 10

// bounded returns the input of a call, or {"bytes": SIZE} if it is larger than maxInput.
func bounded(input json.RawMessage) json.RawMessage {
	if len(input) <= maxInput {
		return input
	}
	text, err := json.Marshal(map[string]int{"bytes": len(input)})
	if err != nil {
		panic("worker: bug: " + err.Error())
	}
	return text
}

const (
	// maxQueued bounds the queued reports. Further reports are dropped.
	maxQueued = 256
	// perReport bounds the time of one report, lastReports of all that are left at the end.
	perReport   = 10 * time.Second
	lastReports = 20 * time.Second
)

// A reporter sends reports to the coordinator in order, in the background. Errors are ignored.
type reporter struct {
	o     Options
	queue chan func(context.Context)
	done  chan struct{}
	stop  context.CancelFunc
}

func newReporter(o Options) *reporter {
	ctx, stop := context.WithCancel(context.Background())
	r := &reporter{o: o, queue: make(chan func(context.Context), maxQueued),
		done: make(chan struct{}), stop: stop}
	go func() {
		defer close(r.done)
		for send := range r.queue {
			send(ctx)
		}
	}()
	return r
}

// report passes a step to Options.Say and queues it for the coordinator.
func (r *reporter) report(p Progress) {
	p.Timestamp = time.Now().UTC().Truncate(time.Millisecond)
	if r.o.Say != nil {
		r.o.Say(p)
	}
	r.send("progress", p, false)
}

// send queues a message for a path below /internal/. If the queue is full, it blocks if wait is
// true and drops the message otherwise.
func (r *reporter) send(path string, message any, wait bool) {
	to := r.o.Task.Coordinator
	if to.URL == nil {
		return
	}
	text, err := json.Marshal(message)
	if err != nil {
		panic("worker: bug: " + err.Error())
	}
	post := func(ctx context.Context) { r.post(ctx, to.URL.JoinPath("internal", path), text) }
	if wait {
		// The queue drains, since each post has a timeout.
		r.queue <- post
		return
	}
	select {
	case r.queue <- post:
	default:
	}
}

// post sends one message. It ignores errors.
func (r *reporter) post(ctx context.Context, to *url.URL, text []byte) {
	ctx, cancel := context.WithTimeout(ctx, perReport)
	defer cancel()
	// The credential is of the kind header: the fetch proxy adds X-Worker-Secret.
	res, err := r.o.Sender.Send(ctx, fetchrun.Request{For: "progress of a worker", Method: "POST",
		URL: to, Credential: r.o.Task.Coordinator.Credential, Body: text})
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// end reports the outcome and waits, at most lastReports, until all reports are sent.
func (r *reporter) end(out Outcome) {
	t := time.AfterFunc(lastReports, r.stop)
	defer t.Stop()
	// The outcome must not be dropped, so wait for space in the queue.
	if out.Error != nil {
		r.send("error", map[string]any{"task_id": out.TaskID, "error": out.Error}, true)
	} else {
		r.send("complete", out, true)
	}
	close(r.queue)
	<-r.done
	r.stop()
}

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

// A Progress is a step of a task, as the coordinator gets it.
type Progress struct {
	TaskID   string    `json:"task_id"`
	Status   string    `json:"status"`
	Message  string    `json:"message,omitempty"`
	ToolCall *ToolCall `json:"tool_call,omitempty"`
	// Timestamp is ISO 8601.
	Timestamp time.Time `json:"timestamp"`
}

// A ToolCall is a tool that the model calls.
type ToolCall struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// maxInput bounds the input of a call that the coordinator gets, in bytes.
const maxInput = 16 << 10

// bounded is the input of a call, or how large it is.
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
	// maxQueued bounds the steps that wait to be told; further ones are not told.
	maxQueued = 256
	// perReport bounds one attempt to tell the coordinator; lastReports all that are left at the end.
	perReport   = 10 * time.Second
	lastReports = 20 * time.Second
)

// A reporter tells the coordinator, in order and beside the work. Nothing fails because it cannot.
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

// report tells a step.
func (r *reporter) report(p Progress) {
	p.Timestamp = time.Now().UTC().Truncate(time.Millisecond)
	if r.o.Say != nil {
		r.o.Say(p)
	}
	r.send("progress", p, false)
}

// send has a message sent to one of the paths below /internal/. Without a place in the queue it waits
// for one, or leaves the message out.
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
		// The queue is being emptied: each post ends.
		r.queue <- post
		return
	}
	select {
	case r.queue <- post:
	default:
	}
}

// post sends one message. That nobody takes it changes nothing.
func (r *reporter) post(ctx context.Context, to *url.URL, text []byte) {
	ctx, cancel := context.WithTimeout(ctx, perReport)
	defer cancel()
	// The credential is of the kind header: it attaches X-Worker-Secret.
	res, err := r.o.Sender.Send(ctx, fetchrun.Request{For: "progress of a worker", Method: "POST",
		URL: to, Credential: r.o.Task.Coordinator.Credential, Body: text})
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
}

// end tells how the task ended, and waits until all is told, or for a while.
func (r *reporter) end(out Outcome) {
	t := time.AfterFunc(lastReports, r.stop)
	defer t.Stop()
	// Of all messages this one may not be left out: it waits for a place in the queue.
	if out.Error != nil {
		r.send("error", map[string]any{"task_id": out.TaskID, "error": out.Error}, true)
	} else {
		r.send("complete", out, true)
	}
	close(r.queue)
	<-r.done
	r.stop()
}

package execserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Bounds of processes.
const (
	// maxProcesses bounds the processes of one connection, including those in retention.
	maxProcesses = 256
	// maxRetained bounds the output of a process that is kept for process/read, in bytes.
	maxRetained = 1 << 20
	// retention is how long a process is kept after its end.
	retention = 30 * time.Second
	// maxInput bounds the number of queued writes to a process.
	maxInput = 256
	// maxReadWait bounds the waiting time of a process/read.
	maxReadWait = 10 * time.Minute
)

// processes holds the processes of one connection. Each is an invocation in the session.
type processes struct {
	session *toolsession.Session
	notify  func(method string, params any)
	// ctx is done when the client is gone.
	ctx context.Context

	running sync.WaitGroup
	mu      sync.Mutex
	all     map[string]*process
}

// A process is one invocation, and its last output.
type process struct {
	owner *processes
	id    string
	// run is the id of the invocation.
	run string
	// input queues data for standard input. It is nil if standard input is empty.
	input chan []byte
	stop  context.CancelFunc

	mu       sync.Mutex
	output   []chunk
	retained int
	// seq is the number of the last event.
	seq uint64
	// exit is the exit code, nil while the process runs.
	exit *int
	// news is closed and replaced by a new channel at each event.
	news chan struct{}
}

type chunk struct {
	Seq    uint64 `json:"seq"`
	Stream string `json:"stream"`
	Chunk  []byte `json:"chunk"`
}

type processID struct {
	ProcessID string `json:"processId"`
}

// handler returns the handler for a method that does not block, nil for other methods.
func (p *processes) handler(method string) answerer {
	return map[string]answerer{"process/start": reading(p.start), "process/write": reading(p.write),
		"process/signal": reading(p.signal), "process/terminate": reading(p.terminate)}[method]
}

func (p *processes) get(id string) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

type startParams struct {
	processID
	Argv      []string          `json:"argv"`
	Cwd       string            `json:"cwd"`
	EnvPolicy *envPolicy        `json:"envPolicy"`
	Env       map[string]string `json:"env"`
	TTY       bool              `json:"tty"`
	PipeStdin bool              `json:"pipeStdin"`
	Arg0      *string           `json:"arg0"`
	Managed   bool              `json:"enforceManagedNetwork"`
}

// An envPolicy selects the variables of the server that a process inherits.
type envPolicy struct {
	Inherit               string            `json:"inherit"`
	IgnoreDefaultExcludes bool              `json:"ignoreDefaultExcludes"`
	Exclude               []string          `json:"exclude"`
	Set                   map[string]string `json:"set"`
	IncludeOnly           []string          `json:"includeOnly"`
}

// core are the variables of inherit = "core".
var core = []string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TEMP", "TMP",
	"TMPDIR", "USER"}

// secrets are the patterns that exclude variables by default.
var secrets = []string{"*KEY*", "*SECRET*", "*TOKEN*"}

// of returns the variables (NAME=VALUE) in all that e selects. The session's policy may drop more.
func (e *envPolicy) of(all []string) []string {
	if e.Inherit == "none" {
		return nil
	}
	exclude := e.Exclude
	if !e.IgnoreDefaultExcludes {
		exclude = slices.Concat(exclude, secrets)
	}
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return e.Inherit == "core" && !slices.Contains(core, name) || matches(exclude, name) ||
			len(e.IncludeOnly) > 0 && !matches(e.IncludeOnly, name)
	})
}

// matches reports whether one of the patterns matches a name, ignoring case. A malformed pattern
// matches every name.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(strings.ToUpper(p), strings.ToUpper(name))
		return ok || err != nil
	})
}

type started struct {
	processID
	// SandboxType is the type of Codex's own sandbox, which is never used.
	SandboxType string `json:"sandboxType"`
}

func (p *processes) start(_ context.Context, in startParams) (any, error) {
	cwd, err := pathOf(in.Cwd)
	switch {
	case err != nil:
		return nil, err
	case in.ProcessID == "":
		return nil, badParams("processId is empty")
	case len(in.Argv) == 0 || in.Argv[0] == "":
		return nil, badParams("argv must not be empty")
	case in.Arg0 != nil && *in.Arg0 != in.Argv[0]:
		return nil, badParams("arg0: a process of a session has the name of its program as its first word")
	case in.Managed:
		return nil, invalid("enforceManagedNetwork: the policy of the session decides on the network, " +
			"and not a rule of Codex")
	}
	policy := in.EnvPolicy
	if policy == nil {
		policy = &envPolicy{Inherit: "none"}
	}
	// The random id is unique.
	req := message.ExecRequest{ID: "codex-" + strings.ToLower(rand.Text()), Tool: in.Argv[0],
		Args: in.Argv[1:], Cwd: cwd, Inherit: policy.of(p.session.Inherited())}
	for _, set := range []map[string]string{policy.Set, in.Env} {
		for name, value := range set {
			req.Env = append(req.Env, name+"="+value)
		}
	}
	// A stable sort keeps the order of values for one name: the last one wins.
	slices.SortStableFunc(req.Env, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	ctx, stop := context.WithCancel(p.ctx)
	one := &process{owner: p, id: in.ProcessID, run: req.ID, stop: stop, news: make(chan struct{})}
	if in.TTY {
		// The request has no size, so use the usual default.
		req.Terminal = &runners.Terminal{Rows: 24, Columns: 80}
	}
	if in.TTY || in.PipeStdin {
		one.input = make(chan []byte, maxInput)
	}
	if err := p.add(one); err != nil {
		stop()
		return nil, err
	}
	p.running.Go(func() { one.execute(ctx, req) })
	return started{in.processID, "none"}, nil
}

func (p *processes) add(one *process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.all[one.id] != nil:
		return invalid("process %.64s already exists", one.id)
	case len(p.all) >= maxProcesses:
		return internal("there are %d processes, the most that may be", len(p.all))
	}
	p.all[one.id] = one
	return nil
}

// execute runs the invocation and calls end. Errors of jail go to standard error.
func (p *process) execute(ctx context.Context, req message.ExecRequest) {
	defer p.stop()
	out := stream{p, "stdout"}
	errOut := stream{p, "stderr"}
	if req.Terminal != nil {
		out.name = "pty"
		errOut = out
	}
	in := io.Reader(strings.NewReader(""))
	if p.input != nil {
		r, w := io.Pipe()
		defer r.Close()
		go p.feed(ctx, w)
		in = r
	}
	res, err := p.owner.session.Exec(ctx, req, in, out, errOut)
	code := res.ExitCode
	switch {
	case ctx.Err() != nil:
		code = problem.ExitSignal + 9
	case err != nil:
		e := problem.From(err)
		code = e.Exit()
		text := "jail: error: " + e.Message + "\n"
		if e.Hint != "" {
			text += "jail: hint: " + e.Hint + "\n"
		}
		io.WriteString(errOut, text)
	case res.Limit != nil:
		fmt.Fprintf(errOut, "jail: ended by the limit %s\n", res.Limit.Name)
	}
	p.end(code)
}

// feed writes queued input to the standard input of the process until ctx is done.
func (p *process) feed(ctx context.Context, w *io.PipeWriter) {
	for {
		select {
		case <-ctx.Done():
			w.Close()
			return
		case text := <-p.input:
			if _, err := w.Write(text); err != nil {
				return
			}
		}
	}
}

// A stream is the Writer for a process's output: it keeps the output and notifies the client.
type stream struct {
	p    *process
	name string
}

func (s stream) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	c := chunk{s.p.next(), s.name, slices.Clone(text)}
	s.p.output = append(s.p.output, c)
	for s.p.retained += len(text); s.p.retained > maxRetained && len(s.p.output) > 1; {
		s.p.retained -= len(s.p.output[0].Chunk)
		s.p.output = s.p.output[1:]
	}
	// Notify with the lock held, so that the notifications are in the order of Seq.
	s.p.owner.notify("process/output", struct {
		processID
		chunk
	}{processID{s.p.id}, c})
	return len(text), nil
}

// next returns the number of a new event and wakes readers. The caller holds the lock.
func (p *process) next() uint64 {
	p.seq++
	close(p.news)
	p.news = make(chan struct{})
	return p.seq
}

// end stores the exit code, notifies the client, and removes the process after retention.
func (p *process) end(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exit = &code
	p.owner.notify("process/exited", struct {
		processID
		Seq           uint64 `json:"seq"`
		ExitCode      int    `json:"exitCode"`
		SandboxDenied bool   `json:"sandboxDenied"`
	}{processID{p.id}, p.next(), code, false})
	p.owner.notify("process/closed", struct {
		processID
		Seq uint64 `json:"seq"`
	}{processID{p.id}, p.next()})
	time.AfterFunc(retention, func() {
		p.owner.mu.Lock()
		defer p.owner.mu.Unlock()
		if p.owner.all[p.id] == p {
			delete(p.owner.all, p.id)
		}
	})
}

type readParams struct {
	processID
	AfterSeq uint64 `json:"afterSeq"`
	MaxBytes *int   `json:"maxBytes"`
	WaitMS   int64  `json:"waitMs"`
}

type readResult struct {
	Chunks        []chunk `json:"chunks"`
	NextSeq       uint64  `json:"nextSeq"`
	Exited        bool    `json:"exited"`
	ExitCode      *int    `json:"exitCode"`
	Closed        bool    `json:"closed"`
	Failure       *string `json:"failure"`
	SandboxDenied bool    `json:"sandboxDenied"`
}

// read returns the output of a process after the event AfterSeq. If there is none, it waits for an
// event for at most WaitMS.
func (p *processes) read(_ context.Context, in readParams) (any, error) {
	one := p.get(in.ProcessID)
	if one == nil {
		return nil, invalid("unknown process id %.64s", in.ProcessID)
	}
	if in.WaitMS < 0 || in.MaxBytes != nil && *in.MaxBytes < 0 {
		return nil, badParams("waitMs and maxBytes are no negative numbers")
	}
	timer := time.NewTimer(min(time.Duration(min(in.WaitMS, maxReadWait.Milliseconds()))*
		time.Millisecond, maxReadWait))
	defer timer.Stop()
	for {
		r, news := one.after(in)
		if len(r.Chunks) > 0 || r.Closed || r.Exited && in.AfterSeq < r.NextSeq-1 {
			return r, nil
		}
		select {
		case <-news:
		case <-timer.C:
			return r, nil
		case <-p.ctx.Done():
			return r, nil
		}
	}
}

// after returns the result of a read without waiting, and a channel closed at the next event.
func (p *process) after(in readParams) (readResult, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := readResult{Chunks: []chunk{}, NextSeq: p.seq + 1, Exited: p.exit != nil, ExitCode: p.exit,
		Closed: p.exit != nil}
	total := 0
	for _, c := range p.output {
		if c.Seq <= in.AfterSeq {
			continue
		}
		// Return at least one chunk, whatever its size.
		if in.MaxBytes != nil && len(r.Chunks) > 0 && total+len(c.Chunk) > *in.MaxBytes {
			r.NextSeq = c.Seq
			// Report the end only after the rest of the output.
			r.Closed = false
			break
		}
		total += len(c.Chunk)
		r.Chunks = append(r.Chunks, c)
	}
	return r, p.news
}

type writeParams struct {
	processID
	Chunk []byte `json:"chunk"`
}

type writeResult struct {
	Status string `json:"status"`
}

func (p *processes) write(_ context.Context, in writeParams) (any, error) {
	one := p.get(in.ProcessID)
	switch {
	case one == nil:
		return writeResult{"unknownProcess"}, nil
	case one.input == nil || one.over():
		return writeResult{"stdinClosed"}, nil
	}
	select {
	case one.input <- in.Chunk:
		return writeResult{"accepted"}, nil
	default:
		return nil, internal("process %.64s does not read what was written to it", in.ProcessID)
	}
}

func (p *process) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit != nil
}

type signalParams struct {
	processID
	Signal string `json:"signal"`
}

func (p *processes) signal(_ context.Context, in signalParams) (any, error) {
	if in.Signal != "interrupt" {
		return nil, badParams("signal %.64q is none of: interrupt", in.Signal)
	}
	if one := p.get(in.ProcessID); one != nil && !one.over() {
		p.kill(one, 2)
	}
	return struct{}{}, nil
}

type terminated struct {
	Running bool `json:"running"`
}

func (p *processes) terminate(_ context.Context, in processID) (any, error) {
	one := p.get(in.ProcessID)
	if one == nil || one.over() {
		return terminated{}, nil
	}
	p.kill(one, 9)
	return terminated{true}, nil
}

// kill sends a signal to a process in the background. If that fails, for example because the
// invocation has not started, it cancels the process.
func (p *processes) kill(one *process, signal int) {
	p.running.Go(func() {
		if err := p.session.Client().Kill(p.ctx, one.run, signal); err != nil {
			one.stop()
		}
	})
}

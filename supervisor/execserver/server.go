// Package execserver serves a session of jail to Codex with the protocol of its exec-server: Codex
// runs processes and reads and changes files in the session instead of on the host.
// https://github.com/openai/codex/tree/main/codex-rs/exec-server
//
//	server.go   the server, its connections and their requests
//	rpc.go      messages, and their transports
//	process.go  process/*
//	files.go    fs/*, and the URIs of files
//
// Everything happens in the session, under its policy. The sandbox settings in Codex's requests are
// ignored: they protect the real directory, which is out of reach here.
package execserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// A Server serves clients, which all work in one session.
type Server struct{ session *toolsession.Session }

// New returns a server for a session.
func New(s *toolsession.Session) *Server { return &Server{s} }

// Bounds of a connection.
const (
	// maxWaiting bounds the queued requests about files, and the queued messages to the client.
	maxWaiting = 128
	// maxReads bounds the concurrent process/read requests.
	maxReads = 256
)

// A connection is the connection of one client. Requests about files run one after the other in the
// background. Requests about processes do not block, except process/read, which has its own
// goroutine.
type connection struct {
	server *Server
	ctx    context.Context
	out    outgoing
	procs  processes
	files  files

	// fs queues the requests about files.
	fs chan func()
	// reads is a semaphore for process/read.
	reads chan struct{}
	// work counts the goroutines of requests.
	work sync.WaitGroup
	// asked is true after initialize, ready after the notification initialized.
	asked, ready bool
}

// serve serves a client until it disconnects or ctx is done, and then ends its processes. next
// receives a message and returns io.EOF at the end; send sends one.
func (s *Server) serve(ctx context.Context, next func() ([]byte, error), send func([]byte) error) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	c := &connection{server: s, ctx: working, fs: make(chan func(), maxWaiting),
		reads: make(chan struct{}, maxReads), files: files{session: s.session}}
	c.out = outgoing{queue: make(chan any, maxWaiting), gone: make(chan struct{})}
	c.procs = processes{session: s.session, notify: c.out.notify, ctx: working,
		all: map[string]*process{}}
	c.work.Go(func() {
		for f := range c.fs {
			f()
		}
	})
	sent := make(chan error, 1)
	go func() {
		err := c.out.run(send)
		stop()
		sent <- err
	}()
	err := c.receive(next)
	stop()
	close(c.fs)
	c.work.Wait()
	c.procs.running.Wait()
	close(c.out.queue)
	select {
	case sendErr := <-sent:
		return cmp.Or(err, sendErr)
	case <-ctx.Done():
		// Do not wait for a client that does not read.
		return err
	}
}

// receive handles messages until the client disconnects (nil) or violates the protocol (an error).
func (c *connection) receive(next func() ([]byte, error)) error {
	for c.ctx.Err() == nil {
		text, err := next()
		if err == io.EOF || c.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var m incoming
		if err := json.Unmarshal(text, &m); err != nil || m.Method == "" {
			if err == nil {
				err = fmt.Errorf("it has no method")
			}
			c.out.answer(json.RawMessage("-1"), nil, invalid("the message is not understood: %v", err))
			continue
		}
		if m.ID == nil {
			if m.Method != "initialized" || !c.asked {
				return fmt.Errorf("the notification %.64q is not expected", m.Method)
			}
			c.ready = true
			continue
		}
		c.request(m)
	}
	return nil
}

// environment describes to a client where its processes run.
type environment struct {
	Shell           shell  `json:"shell"`
	ExecutorVersion string `json:"executorVersion"`
	Cwd             string `json:"cwd"`
	PlatformOS      string `json:"platformOs"`
	TempDir         string `json:"tempDir"`
}

type shell struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

func (s *Server) environment() environment {
	sh := shell{"bash", "/bin/bash"}
	// The session has the host's programs.
	if _, err := os.Stat(sh.Path); err != nil {
		sh = shell{"sh", "/bin/sh"}
	}
	return environment{Shell: sh, ExecutorVersion: "jail " + config.Version, Cwd: uriOf(s.session.Root()),
		PlatformOS: "linux", TempDir: uriOf("/tmp")}
}

type initializeParams struct {
	ResumeSessionID *string `json:"resumeSessionId"`
}

type initialized struct {
	SessionID       string      `json:"sessionId"`
	EnvironmentInfo environment `json:"environmentInfo"`
}

// reply calls f and sends its result or error as the response.
func (c *connection) reply(m incoming, f answerer) {
	result, err := f(c.ctx, m.Params)
	c.out.answer(m.ID, result, err)
}

// request handles a request, directly or in the background.
func (c *connection) request(m incoming) {
	if m.Method == "initialize" {
		c.reply(m, reading(c.initialize))
		return
	}
	if !c.ready {
		c.out.answer(m.ID, nil, invalid("%s: the client has to send initialize and initialized before",
			m.Method))
		return
	}
	if f := c.procs.handler(m.Method); f != nil {
		c.reply(m, f)
		return
	}
	if m.Method == "process/read" {
		select {
		case c.reads <- struct{}{}:
			c.work.Go(func() {
				defer func() { <-c.reads }()
				c.reply(m, reading(c.procs.read))
			})
		default:
			c.out.answer(m.ID, nil, internal("%d process/read wait, the most that may", maxReads))
		}
		return
	}
	if f := c.files.handler(m.Method); f != nil {
		select {
		case c.fs <- func() { c.reply(m, f) }:
		case <-c.ctx.Done():
		}
		return
	}
	c.reply(m, func(context.Context, json.RawMessage) (any, error) { return c.other(m.Method) })
}

func (c *connection) initialize(_ context.Context, p initializeParams) (any, error) {
	switch {
	case c.asked:
		return nil, invalid("initialize may only be sent once per connection")
	case p.ResumeSessionID != nil:
		// The processes of a connection end with it.
		return nil, invalid("unknown session id %.64s", *p.ResumeSessionID)
	}
	c.asked = true
	return initialized{SessionID: c.server.session.ID(), EnvironmentInfo: c.server.environment()}, nil
}

// other returns the result of a method about neither processes nor files.
func (c *connection) other(method string) (any, error) {
	switch method {
	case "environment/info":
		return c.server.environment(), nil
	case "environment/status":
		return map[string]string{"status": "ready"}, nil
	case "http/request":
		return nil, fail(codeMethod, "http/request is not served: a process of the session can fetch "+
			"what its policy grants")
	}
	return nil, fail(codeMethod, "jail exec-server does not implement %.64q", method)
}

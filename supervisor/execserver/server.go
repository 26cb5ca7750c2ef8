// Package execserver offers a session of jail to Codex by the protocol of its exec-server: Codex
// runs its processes and reads and changes files through it, in place of the host.
// https://github.com/openai/codex/tree/main/codex-rs/exec-server
//
//	server.go   the server, its connections and their requests
//	rpc.go      messages, and their transports
//	process.go  process/*
//	files.go    fs/*, and the URIs of files
//
// Everything happens in the session, under its policy. The sandbox that Codex describes in a request
// is one of the host and means nothing here: what it is to keep from harm, the real directory, is
// out of reach.
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

// A Server answers clients, all of which work in one session.
type Server struct{ session *toolsession.Session }

// New returns a server of a session.
func New(s *toolsession.Session) *Server { return &Server{s} }

// Bounds of a connection.
const (
	// maxWaiting bounds the requests about files that wait for the one that works.
	maxWaiting = 128
	// maxReads bounds the process/read that wait for output.
	maxReads = 256
)

// A connection is one client. Requests about files are done one after the other. Those about
// processes are done at once, and a process/read waits beside the others.
type connection struct {
	server *Server
	ctx    context.Context
	out    outgoing
	procs  processes
	files  files

	// fs are the requests about files.
	fs chan func()
	// reads has an element for each process/read.
	reads chan struct{}
	// work are the requests that are done beside others.
	work sync.WaitGroup
	// asked and ready say how far the handshake is.
	asked, ready bool
}

// serve answers a client until it is gone or ctx is done. next returns its next message and send sends
// one to it. Processes that still run are ended.
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
		// Somebody who does not read keeps nobody.
		return err
	}
}

// receive takes messages until the client is gone, or breaks the protocol.
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

// environment is what a client is told about where its processes run.
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
	// The programs of a session are those of the host.
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

// reply answers a request by what f returns.
func (c *connection) reply(m incoming, f answerer) {
	result, err := f(c.ctx, m.Params)
	c.out.answer(m.ID, result, err)
}

// request answers a request, now or later.
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

// other answers requests about neither processes nor files.
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

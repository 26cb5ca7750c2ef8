package cmdtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A PolicyHost is a host with a ceiling and profiles of its own, and a daemon's inside in this
// process.
type PolicyHost struct {
	*Host
	S   *service.Service
	Dir string // of ceiling.toml and profiles/
	// how many jails may wait for runs
	Warm int
}

// NewPolicyHost returns a supervisor in this process, with these files of the host's policy.
func NewPolicyHost(t *testing.T, files map[string]string) *PolicyHost {
	t.Helper()
	h := &PolicyHost{Host: New(t)}
	h.Dir = filepath.Join(h.Root, "etc")
	if err := os.MkdirAll(filepath.Join(h.Dir, "profiles"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		h.Write(name, text)
	}
	h.Open()
	t.Cleanup(func() { h.Close() })
	return h
}

// Open starts the supervisor.
func (h *PolicyHost) Open() {
	h.T.Helper()
	c := config.Default(filepath.Join(h.Bin, "jaild"),
		func(string) string { return "" }).Below(h.State)
	c.Ceiling, c.Profiles = filepath.Join(h.Dir, "ceiling.toml"), filepath.Join(h.Dir, "profiles")
	c.Bounds = config.DefaultBounds(8<<30, 1024)
	c.Bounds.Warm, c.Bounds.Compile = h.Warm, Slower()
	if err := cgroup.MakeSlice(c.Slice, cgroup.Ceiling{}); err != nil {
		h.T.Fatal(err)
	}
	var err error
	if h.S, err = service.New(context.Background(), c); err != nil {
		h.T.Fatal(err)
	}
}

// Close ends the supervisor.
func (h *PolicyHost) Close() {
	h.T.Helper()
	if h.S != nil {
		if err := h.S.Close("the test is over", syscall.SIGTERM); err != nil {
			h.T.Error(err)
		}
	}
	h.S = nil
}

// Write puts a file of the host's policy down: "ceiling", or a profile by name.
func (h *PolicyHost) Write(name, text string) {
	h.T.Helper()
	path := filepath.Join(h.Dir, "profiles", name+".toml")
	if name == "ceiling" {
		path = filepath.Join(h.Dir, "ceiling.toml")
	}
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o644),
		os.Rename(path+".new", path)); err != nil {
		h.T.Fatal(err)
	}
}

// Caller is a user who asks.
func (h *PolicyHost) Caller(uid uint32) caller.Caller {
	return caller.Caller{Caller: asuser.Caller{UID: uid, GID: uid}, PID: os.Getpid(), Exe: "test"}
}

// Start runs a tool over the workspace, discarding what it changes. The profile is one of flags'
// first word.
func (h *PolicyHost) Start(in io.Reader, started func(), req message.Request) (message.Result,
	string) {
	h.T.Helper()
	var out bytes.Buffer
	req.Dir, req.Fate = h.Work, message.FateDiscard
	r := h.S.Run(context.Background(), h.Caller(0), req,
		stdio.Streams{In: in, Out: &out, Err: &out, Started: started})
	return r, out.String()
}

// Request asks for a run.
func Request(profile, tool string, args ...string) message.Request {
	return message.Request{Profile: profile, Tool: tool, Args: runners.Texts(args)}
}

// WantRun checks that a request is granted, and returns the result of the run.
func (h *PolicyHost) WantRun(req message.Request) message.Result {
	h.T.Helper()
	r, out := h.Start(nil, nil, req)
	if r.ExitCode != 0 || r.Error != nil {
		h.T.Errorf("%s %s: exit code %d, %+v, %q", req.Tool, req.Args, r.ExitCode, r.Error, out)
	}
	return r
}

// Listens has the host's daemon answer on its socket, for programs of any user.
func (h *PolicyHost) Listens() *api.Server {
	h.T.Helper()
	socket := filepath.Join(h.State, "jail.sock")
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o666)
	}
	if err != nil {
		h.T.Fatal(err)
	}
	srv, done := api.NewServer(h.S, api.Version{Version: config.Version, API: api.Number}, nil),
		make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	h.T.Cleanup(func() {
		if err := errors.Join(srv.Shutdown(context.Background()), <-done); err != nil {
			h.T.Error(err)
		}
	})
	return srv
}

// AsMember makes a command that user's, of these groups.
func AsMember(cmd *exec.Cmd, uid uint32, groups []uint32) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid,
		Groups: groups}}
	return cmd
}

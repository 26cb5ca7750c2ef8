package prepare

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/detached"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/modules"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// A Job is a request with all that its run needs: everything is looked up and nothing has started.
type Job struct {
	Caller caller.Caller
	// Begun is when the request arrived.
	Begun time.Time
	Req   message.Request
	ID    jail.ID
	// Policy is the effective policy; zero if the request failed before it was resolved.
	Policy policy.Effective
	Tool   Tool
	// Source is the real directory of the workspace, nil without one.
	Source *os.File
	Host   Host
	Plan   jail.Plan
	// Order tells jail-init what to run.
	Order runners.Order
	Holds Holding
	// In is nil unless the job is an invocation of a session.
	In *Invocation
}

// A Holding is set for the jail that holds a session open. No tool runs in it.
type Holding struct {
	// For is the longest time that the session may last; 0 for a job that holds none.
	For time.Duration
	// Wakes is set if the session slept, and resumes with the shadow that was kept.
	Wakes bool
}

// Host is what a job uses of the host until the job is closed.
type Host struct {
	// IDs are the host ids of the jail. An invocation uses its session's.
	IDs *idrange.Range
	// Binds are the directories and files that the policy mounts.
	Binds []*os.File
	// Agent is nil unless the job is an agent.
	Agent *Agent
	// Image is the image whose root the jail has, nil without one.
	Image *Image
	// Programs are the programs that may run by name, without others in their directories.
	Programs []mounts.Inode
	// cached keeps the compiled modules that the job uses in the cache.
	cached *modules.Hold
}

// A Session is what the invocations of a session use of it.
type Session struct {
	ID     jail.ID
	Policy policy.Effective
	Plan   jail.Plan
	IDs    *idrange.Range
	// Group is the cgroup of the session's invocations.
	Group string
	// Source is the workspace's real directory, nil without one.
	Source *os.File
	// Kept is the environment and the directory that earlier invocations left.
	Kept Kept
	// Modules are the modules of the session's shared engines; nil if it has none.
	Modules *Modules
}

// Kept is what the shells of a session left to later invocations: variables and a directory.
type Kept struct {
	Set   map[string]string
	Unset map[string]bool
	// Cwd is the working directory, below the workspace; empty if none was left.
	Cwd string
}

// An Invocation is set for a job that is an invocation of a session.
type Invocation struct {
	*Session
	// Shared is set if the job runs in a shared engine of the session. Module is then the index of
	// its module among the engine's.
	Shared bool
	Module int
}

// openSource returns a duplicate descriptor of the session's real directory, or nil without one.
func (in *Session) openSource() (*os.File, error) {
	of := in.Source
	if of == nil {
		return nil, nil
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(of.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, problem.New(problem.Failed, "workspace: %w", err)
	}
	return os.NewFile(uintptr(fd), of.Name()), nil
}

// Close closes the files of the job, and releases its cached modules, its image, and its ids unless
// they are its session's.
func (j *Job) Close() {
	for _, f := range slices.Concat(j.Host.Binds, j.Tool.files(), []*os.File{j.Source, j.Host.Agent.Dir()}) {
		if f != nil {
			f.Close()
		}
	}
	j.Host.cached.Close()
	j.Host.Image.close()
	if j.Host.IDs != nil && j.In == nil {
		j.Host.IDs.Release()
	}
}

// Shared reports whether the job runs in a shared engine of its session.
func (j *Job) Shared() bool { return j.In != nil && j.In.Shared }

// Session returns the id of the session that the run holds or belongs to, or "".
func (j *Job) Session() string {
	switch {
	case j == nil:
	case j.Holds.For > 0:
		return string(j.ID)
	case j.In != nil:
		return string(j.In.ID)
	}
	return ""
}

// Workspace returns the path of the workspace's real directory, or "".
func (j *Job) Workspace() string {
	if j.Source == nil {
		return ""
	}
	return j.Source.Name()
}

// args returns the arguments of the tool, with its name as argument 0.
func (j *Job) args() []string { return append([]string{j.Tool.command}, j.Req.Args...) }

// Modules returns the module files that are passed with the order.
func (j *Job) Modules() []*os.File { return j.Tool.files() }

// State returns the job as it is written to the directory of the run.
func (j *Job) State() rundir.State {
	return rundir.State{ID: string(j.ID), Tool: j.Tool.Name, Args: runlog.Readable(j.Req.Args),
		Profile: profileName(j.Req), Policy: j.Policy.Digest(),
		UID: j.Caller.UID, Cgroup: j.Plan.Cgroup.Path, Session: j.Session(),
		Files: j.Plan.FileEvents != "", Workspace: j.Workspace(), Started: time.Now().UTC()}
}

// Started returns the audit event of the start of the run.
func (j *Job) Started() audit.RunStarted {
	e := audit.RunStarted{Tool: j.Tool.Name, Digest: j.Tool.digest(), Argv: j.args(),
		Cwd: j.Plan.Command.Cwd, Profile: profileName(j.Req),
		Plan: planDigest(j.Plan), Warnings: j.Policy.Warnings(), Learn: j.Req.Learn,
		Workspace: j.Workspace(), Caches: j.cachesOf()}
	if o := j.Plan.Outer; o != nil {
		e.Outer, e.OuterVersion, e.OuterDigest = o.Layer, o.Runtime.Version, o.Runtime.Digest
		for _, i := range o.Instead {
			e.OuterInstead = append(e.OuterInstead, i.Layer+": "+i.By)
		}
	}
	if i := j.Host.Image; i != nil {
		e.Image, e.ImageName = i.held.Digest, i.policyName
	}
	if j.Holds.For > 0 {
		e.Digest = ""
	}
	if j.Host.Agent != nil {
		e.Agent, e.Instance = j.Host.Agent.ID, j.Host.Agent.Instance
	}
	for _, v := range j.Order.Invocation.Env {
		name, _, _ := strings.Cut(v, "=")
		e.Env = append(e.Env, name)
	}
	return e
}

// Exec returns the audit event of the program that the run executes.
func (j *Job) Exec() audit.Exec {
	e := audit.Exec{Program: j.Tool.Name, Digest: j.Tool.digest(), Argv: j.args(),
		Cwd: j.Plan.Command.Cwd, PID: 1}
	if j.Tool.Script != nil {
		e.Argv = j.Tool.Script.argv()
	}
	return e
}

func planDigest(p jail.Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("bug: a plan that is not JSON: %v", err))
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// idleLimits returns a warning for each limit of the request that is above the policy's. A request
// can only lower a limit, so such a limit has no effect.
func (j *Job) idleLimits() (out []string) {
	granted := j.Policy.Policy()
	for _, text := range j.Req.Limits {
		flag := policy.NewRequest()
		if text == detached.OutputLimit || flag.Limit(text) != nil {
			continue
		}
		name, _, _ := strings.Cut(text, "=")
		asked, unit, _ := flag.Policy().Limits.Get(name)
		has, _, _ := granted.Limits.Get(name)
		if short, ok := strings.CutPrefix(name, "fetch."); ok {
			asked, unit, _ = flag.Policy().Fetch.Limits.Get(short)
			has, _, _ = granted.Fetch.Limits.Get(short)
		}
		if has < asked {
			out = append(out,
				fmt.Sprintf(
					"--limit %s changes nothing: the policy grants %s, which a flag lowers and "+
						"never raises; jail profile new NAME makes a policy that can grant more", text,
					unit.Format(has)))
		}
	}
	return out
}

// reportWarnings returns the warnings of a run in report mode, in which requests that no rule
// grants are sent.
func reportWarnings(eff policy.Effective) (out []string) {
	for _, w := range eff.Policy().Weaknesses() {
		if w.Rule == "fetch.mode" {
			out = append(out, w.Text)
		}
	}
	return out
}

// Warnings returns the warnings that follow from the request and the policy alone.
func (j *Job) Warnings() []string { return append(reportWarnings(j.Policy), j.idleLimits()...) }

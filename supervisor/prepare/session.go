package prepare

import (
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Session is the name of the session that the run belongs to, or "".
func (j *Job) Session() string {
	switch {
	case j == nil:
	case j.Holds > 0:
		return string(j.ID)
	case j.In != nil:
		return string(j.In.ID)
	}
	return ""
}

// holder is the kind of jail that holds the session. Nothing runs in it; it is the narrowest that
// the policy can have.
func holder(eff policy.Effective) string {
	if eff.Policy().Syscalls.Has(policy.GroupWASI) {
		return jail.RunnerWASI
	}
	return jail.RunnerNative
}

// sessionTool is what the run of the jail that holds a session is called.
const sessionTool = "session"

// sessionFiles are the inodes of a tmpfs that tools of any kind share.
const sessionFiles = 1 << 17

// fitSession makes the plan one of a session's jail: the one that holds it lasts as long as the
// Session may, and its invocations have the file systems that it has.
func (j *Job) fitSession() {
	p := &j.Plan
	switch {
	case j.Holds > 0:
		p.Limits.Wall, p.Limits.CPUTime = j.Holds, policy.Unlimited
		// of all the session's processes the last to go
		p.Cgroup.OOMScore = 0
		for i, m := range p.Mounts {
			if len(j.Policy.Policy().Tools.Native) > 0 && mounts.Shared(m) {
				p.Mounts[i].Files = sessionFiles
			}
		}
	case j.In != nil:
		for i, m := range p.Mounts {
			for _, held := range j.In.Plan.Mounts {
				if mounts.Shared(m) && held.Kind == m.Kind && held.Target == m.Target {
					p.Mounts[i].Size, p.Mounts[i].Files = held.Size, held.Files
				}
			}
		}
	}
}

// Workspace returns the path of the workspace's real directory, or "".
func (j *Job) Workspace() string {
	if j.Source == nil {
		return ""
	}
	return j.Source.Name()
}

// decideIn narrows the session's policy, as it was when the session was started, by what the
// invocation asks for.
func (j *Job) decideIn() error {
	flags, err := readFlags(message.Request{Limits: j.Req.Limits})
	if err != nil {
		return err
	}
	layers := append(j.In.Policy.Layers(), policy.Layer{Name: "invocation",
		Source: "command line", Policy: flags.Policy()})
	eff, err := policy.Resolve(layers...)
	if err != nil {
		return problem.New(problem.Usage, "%w", err)
	}
	j.Policy, j.Resolved = eff, true
	return nil
}

// takeSource takes a descriptor of its own of the session's real directory.
func (j *Job) takeSource() error {
	of := j.In.Source
	if of == nil {
		return nil
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(of.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return problem.New(problem.Failed, "workspace: %w", err)
	}
	j.Source = os.NewFile(uintptr(fd), of.Name())
	return nil
}

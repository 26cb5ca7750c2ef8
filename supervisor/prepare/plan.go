package prepare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/native"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// makePlan makes the plan of a job whose tool was found, and the order for its jail-init.
func (s *Preparer) makePlan(ctx context.Context, j *Job, f *finder) error {
	relay := s.relay(j)
	env, err := f.environ(j.Tool, relay)
	if err != nil {
		return err
	}
	env = j.withKept(env)
	if j.Req.Terminal != nil && j.Tool.Native == "" {
		return problem.New(problem.Usage, "a terminal is for programs of the host; %s is none",
			j.Tool.Name)
	}
	if len(j.Req.Files) > 0 && j.Tool.Native != "" {
		return problem.New(problem.Usage, "files are for a tool that is a module; %s is none", j.Tool.Name)
	}
	target, slice := f.target(j.Tool), s.o.Config.Slice
	if j.In != nil {
		j.Host.IDs, slice = j.In.IDs, j.In.Group
	} else if j.Host.IDs, err = takeIDs(); err != nil {
		return err
	}
	r := jail.Request{ID: j.ID, Base: j.Host.IDs.Base, User: rootless.User(), Slice: slice,
		Later:  j.Holds.For == 0 && j.Tool.Native == "",
		Absent: absent(j.Policy.Policy().Mounts), Files: len(j.Req.Files) > 0,
		Caches: s.caches(j), Told: s.o.Told, ProcFixed: s.o.ProcFixed, Command: jail.Command{
			Runner: string(runners.KindWASI), Tool: j.Tool.Name, Digest: j.Tool.digest(),
			Args: runlog.Readable(j.args()), Env: runlog.Readable(env),
			Cwd: target.inJail(f.cwd)}}
	if sc := j.Tool.Script; sc != nil {
		r.Command.Runner, r.Command.Script = string(runners.KindShell), sc.steps
	}
	if j.Holds.For > 0 {
		r.Caches, r.Command.Runner, r.Command.Digest = nil, holder(j.Policy), ""
	}
	if j.Tool.Native != "" {
		r.Command.Runner, r.Command.Terminal = string(runners.KindNative), j.Req.Terminal != nil
		if r.Programs, j.Host.Programs, err = f.programs(); err != nil {
			return err
		}
	}
	r.Agent, r.Image = j.agentState(), j.Host.Image.request()
	if r.Runtime, err = s.outerRuntime(ctx, j); err != nil {
		return err
	}
	if j.Source != nil {
		if r.Workspace, err = sourceOf(j.Source, j.Caller); err != nil {
			return problem.New(problem.Failed, "workspace: %w", err)
		}
		r.Workspace.Target = string(target)
	}
	if j.Plan, err = jail.NewPlan(j.Policy, r); err != nil {
		return problem.New(problem.Refused, "%w", err).
			WithHint("jail policy show, and --limit, say what the policy asks for")
	}
	j.nameCaches()
	j.fitSession()
	if err := fitOOMScore(&j.Plan); err != nil {
		return err
	}
	j.Order = j.order(env, relay)
	if err := j.Order.Invocation.Validate(); err != nil {
		return problem.New(problem.Usage, "%v", err)
	}
	return nil
}

// withKept returns the environment of an invocation with the variables that earlier ones set or
// unset, as far as its policy lets a caller set them.
func (j *Job) withKept(env []string) []string {
	if j.In == nil {
		return env
	}
	allowed := j.Policy.Policy().Env.Allow
	for _, name := range slices.Sorted(maps.Keys(j.In.Kept.Set)) {
		if allowed.Match(name) {
			env = append(without(env, name), name+"="+j.In.Kept.Set[name])
		}
	}
	for name := range j.In.Kept.Unset {
		if allowed.Match(name) {
			env = without(env, name)
		}
	}
	return env
}

func without(env []string, name string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// takeIDs takes a range of host ids for a jail. The error has the code busy if none is free.
func takeIDs() (*idrange.Range, error) {
	ids, err := idrange.Take()
	if err != nil {
		return nil, problem.New(problem.Busy, "%w", err).
			WithHint("try again when other runs have ended")
	}
	return ids, nil
}

// sourceOf returns a directory with the ids that the tool has on it. For root they are the owner's;
// for others the caller's own, so that a tool reads nothing that its caller may not.
func sourceOf(dir *os.File, c caller.Caller) (*jail.Source, error) {
	if c.UID != 0 {
		return &jail.Source{Path: dir.Name(), UID: c.UID, GID: c.GID}, nil
	}
	info, err := dir.Stat()
	if err != nil {
		return nil, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return &jail.Source{Path: dir.Name(), UID: st.Uid, GID: st.Gid}, nil
}

func (s *Preparer) caches(j *Job) (all []string) {
	if j.Shared() {
		all, j.In.Module = j.In.Modules.place(j.Policy.Digest(),
			s.modules.cache.Path(j.code(j.Tool)))
		return all
	}
	for _, m := range j.Tool.modules() {
		all = append(all, s.modules.cache.Path(m.Sum))
	}
	return all
}

// memory returns the memory limit of a module, in bytes: at most the 4 GiB of WebAssembly.
func memory(eff policy.Effective) int64 { return min(eff.Policy().Limits.Memory, 4<<30) }

// reportCommand is what a shell executes at its end to report its variables and directory.
const reportCommand = "/run/jail/init keep"

// order returns the order for jail-init. relay is the address of the fetch proxy's relay.
func (j *Job) order(env []string, relay netip.AddrPort) runners.Order {
	o := runners.Order{Invocation: runners.Invocation{Args: j.args(), Env: env,
		Cwd: j.Plan.Command.Cwd}}
	switch sc := j.Tool.Script; {
	case j.Tool.Native != "":
		o.Native = &runners.Native{Program: j.Tool.Native, Terminal: j.Req.Terminal}
		if j.Req.KeepEnv {
			o.Invocation.Args, o.Native.Keep = native.Reporting(j.Tool.Native, j.args(),
				reportCommand)
		}
		if j.Plan.Fetch != nil {
			o.Native.Relay = relay
		}
	case sc != nil:
		j.fillInvocation(&o.Invocation)
		o = sc.order(o.Invocation, j.Policy.Policy().Limits.PIDs)
	default:
		j.fillInvocation(&o.Invocation)
	}
	o.Fetch = j.Plan.Fetch != nil
	o.Agent = j.agentOrder()
	if len(j.Req.Files) == 0 {
		return o
	}
	o.Files = j.Req.Files
	o.Invocation.Mounts = append(o.Invocation.Mounts, runners.Mount{Path: runners.FilesTarget,
		Source: jail.FilesDir})
	return o
}

// checkFiles returns an error if the request has files that it may not have.
func (j *Job) checkFiles() error {
	if len(j.Req.Files) > 0 && (j.In != nil || j.Holds.For > 0 || j.Req.Script != nil) {
		return errors.New("files are for a run of one tool, outside of sessions")
	}
	return runners.CheckFiles(j.Req.Files)
}

// fillInvocation adds what a module's runner needs beside its arguments.
func (j *Job) fillInvocation(inv *runners.Invocation) {
	pol := j.Policy.Policy()
	inv.Layout, inv.Devices = j.Tool.layout, j.Plan.Devices
	inv.MemoryLimit, inv.OpenFiles = memory(j.Policy), int(min(pol.Limits.OpenFiles, 1<<20))
	module := 0
	if j.Shared() {
		module = j.In.Module
		inv.Module.Interruptible = true
		inv.MemoryLimit = min(inv.MemoryLimit, sharedMemory(pol.Limits.Memory))
	}
	inv.CacheDir = filepath.Join(jail.CacheDir, strconv.Itoa(module))
	if w := j.Plan.Workspace; w != nil {
		// A jail that holds a session may have it in another mount, which no module sees.
		seen := target(w.SeenTarget()).ofModule(pol.Mounts)
		inv.Mounts = append(inv.Mounts, runners.Mount{Path: string(seen),
			Source: w.Target, Write: w.Shadow, Hide: pol.Workspace.Hide})
	}
	for _, m := range j.Plan.Mounts {
		own := m.Target == jail.AgentDir || m.Target == jail.FilesDir ||
			strings.HasPrefix(m.Target, jail.CacheDir)
		if m.Kind != jail.MountProc && !own {
			inv.Mounts = append(inv.Mounts, runners.Mount{Path: m.Target, Write: m.Write})
		}
	}
}

// holder returns the runner of the jail that holds a session. Nothing runs in it; it is the
// narrowest kind that the policy allows.
func holder(eff policy.Effective) string {
	if eff.Policy().Syscalls.Has(policy.GroupWASI) {
		return jail.RunnerWASI
	}
	return jail.RunnerNative
}

// sessionTool is the tool name of the jail that holds a session.
const sessionTool = "session"

// sessionFiles is how many inodes a tmpfs has that programs of a session share.
const sessionFiles = 1 << 17

// fitSession adapts the plan to a session. The jail that holds it gets the lifetime of the session;
// an invocation gets the bounds of the file systems that it shares.
func (j *Job) fitSession() {
	p := &j.Plan
	switch {
	case j.Holds.For > 0:
		p.Limits.Wall, p.Limits.CPUTime = j.Holds.For, policy.Unlimited
		// It is the last of the session's processes that the OOM killer takes.
		p.Cgroup.OOMScore = 0
		for i, m := range p.Mounts {
			if len(j.Policy.Policy().Tools.Native) > 0 && mounts.Shared(m) {
				p.Mounts[i].Files = sessionFiles
			}
		}
	case j.In != nil:
		if j.sharesLoopback() {
			p.NetworkOf = j.In.Plan.ID
		}
		for i, m := range p.Mounts {
			for _, held := range j.In.Plan.Mounts {
				if mounts.Shared(m) && held.Kind == m.Kind && held.Target == m.Target {
					p.Mounts[i].Size, p.Mounts[i].Files = held.Size, held.Files
				}
			}
		}
	}
}

// sharesLoopback reports whether the job uses the network namespace of its session: a program of
// the host whose policy shares the loopback interface. One with narrower fetch rules or fewer
// mounts than the session gets its own namespace. In the session's it could reach the proxies of
// others, and servers that show what only others may see.
func (j *Job) sharesLoopback() bool {
	if j.In == nil || j.Tool.Native == "" {
		return false
	}
	pol, all := j.Policy.Policy(), j.In.Policy.Policy()
	if outer, err := pol.Outer.Choose(); err != nil || outer != policy.OuterNone {
		// gVisor's network is in its own kernel, and runtimes join a network namespace only after
		// the user namespace, which has no rights over that of another jail.
		return false
	}
	return pol.Session.Loopback == policy.LoopbackShared && pol.Syscalls.Has(policy.GroupLoopback) &&
		all.Fetch.LessEq(pol.Fetch) && all.Mounts.LessEq(pol.Mounts)
}

// relay returns the address where jail-init listens for the fetch proxy of the job. On a loopback
// interface that invocations share, each has its own address in 127.64.0.0/10.
func (s *Preparer) relay(j *Job) netip.AddrPort {
	at := [4]byte{127, 0, 0, 1}
	if j.sharesLoopback() {
		n := s.relays.Add(1)
		at = [4]byte{127, 64 | byte(n>>16)&63, byte(n >> 8), byte(n)}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(at), jail.RelayPort)
}

// oomScore returns the oom_score_adj of a jail: want, or the daemon's own if that is higher, since
// lowering it needs CAP_SYS_RESOURCE (proc_pid_oom_score_adj(5)). A user's service manager gives
// 200 to what it starts.
func oomScore(want int) (int, error) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("oom_score_adj of this process: %w", err)
	}
	return max(want, own), nil
}

// fitOOMScore raises the plan's oom_score_adj to one that the daemon may set.
func fitOOMScore(p *jail.Plan) error {
	score, err := oomScore(p.Cgroup.OOMScore)
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	p.Cgroup.OOMScore = score
	return nil
}

// checkIO refuses limits on disk use if no io controller below slice could enforce them.
func checkIO(slice string, l policy.Limits) error {
	if l.IORead == policy.Unlimited && l.IOWrite == policy.Unlimited {
		return nil
	}
	if err := cgroup.MissingIO(slice); err != nil {
		return problem.MissingLayer("control groups",
			fmt.Sprintf("limits io_read and io_write need them to bound the use of disks: %v", err),
			"take io_read and io_write out of the policy, "+
				"or enable the controller (blkio, or io of cgroup v2)", err)
	}
	return nil
}

// absent returns the sources of mounts of settings that do not exist on the host. All lie in
// directories that everybody may list.
func absent(all policy.Mounts) (sources []string) {
	for _, m := range all {
		if !m.Setting() {
			continue
		}
		if _, err := os.Stat(m.Source); errors.Is(err, fs.ErrNotExist) {
			sources = append(sources, m.Source)
		}
	}
	return sources
}

// cacheVersion is part of the id of each cache. Raise it when the makeup of the id changes, so that
// no older cache is reused.
const cacheVersion = 1

// nameCaches sets the id of each cache of the plan. The id depends on all that decides on trust, so
// that a hostile run's cache is used only by runs with the same trust:
//
//   - the user who asks for the run, and the user and group of the tool, who are those of the
//     workspace's owner if root asks;
//   - the policies that the run has and their sources: the ceiling, the profile, that of the
//     workspace, of a bundle;
//   - the digest of what they grant together, with what the caller narrows, without its limits,
//     which are amounts.
func (j *Job) nameCaches() {
	for i, m := range j.Plan.Mounts {
		if m.Kind == jail.MountCache {
			j.Plan.Mounts[i].Source = j.cacheID(m.Name)
		}
	}
}

func (j *Job) cacheID(name string) string {
	granted := j.Policy.Policy()
	granted.Limits = policy.Limits{}
	id := struct {
		Version  int
		Name     string
		Caller   uint32
		UID, GID uint32
		Layers   []jail.Layer
		Policy   string
	}{cacheVersion, name, j.Caller.UID, j.Plan.IDs.UID, j.Plan.IDs.GID, nil, granted.Digest()}
	for _, l := range j.Plan.Layers {
		if l.Name != requestLayer && l.Name != invocationLayer {
			id.Layers = append(id.Layers, l)
		}
	}
	text, err := json.Marshal(id)
	if err != nil {
		panic(fmt.Sprintf("bug: the id of a cache is not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// cachesOf returns a description of each cache of the plan, for the record.
func (j *Job) cachesOf() (all []string) {
	for _, m := range j.Plan.Mounts {
		if m.Kind == jail.MountCache {
			all = append(all, m.Target+" from cache "+m.Name+" "+m.Source)
		}
	}
	return all
}

// outerRuntime returns the runtime of the outer layer that the job's policy chooses, or nil if it
// chooses none.
func (s *Preparer) outerRuntime(ctx context.Context, j *Job) (*jail.Runtime, error) {
	layer, err := j.Policy.Policy().Outer.Choose()
	if err != nil {
		return nil, outerDenied(j.Policy, j.Req.Outer, err)
	}
	if layer == policy.OuterNone {
		return nil, nil
	}
	if rootless.User() != nil {
		return nil, problem.New(problem.Refused,
			"outer layer %s: a user's jail has one id only, which no runtime can start with", layer).
			WithHint("use the daemon of the host, or --outer none")
	}
	if layer == policy.OuterRunsc && j.Req.Learn {
		return nil, problem.New(problem.Refused,
			"outer layer runsc: the kernel of gVisor does not tell what a tool uses").
			WithHint("learn with --outer none")
	}
	runtime, err := s.o.Runtimes.Find(ctx, layer)
	if errors.Is(err, outer.ErrMissing) {
		return nil, problem.MissingLayer("outer "+layer, err.Error(), howToInstall[layer], err)
	}
	if err != nil {
		return nil, problem.MissingLayer("outer "+layer, err.Error(), "", err)
	}
	return &runtime, nil
}

// fitsOuter refuses a shared engine under gVisor, which takes no descriptors after its start.
func (j *Job) fitsOuter() error {
	layer, err := j.Policy.Policy().Outer.Choose()
	if err == nil && layer == policy.OuterRunsc && j.Shared() {
		return problem.New(problem.Refused,
			"outer layer runsc: an engine that invocations share gets each with its descriptors, "+
				"which gVisor does not take after its start").
			WithHint("start the session without --shared-engine")
	}
	return nil
}

// howToInstall tells how to install the runtime of each outer layer.
var howToInstall = map[string]string{
	policy.OuterBwrap: "install the package bubblewrap",
	policy.OuterCrun:  "install the package crun",
	policy.OuterRunc:  "install the package runc",
	policy.OuterRunsc: "make runsc builds it beside jail's own programs (docs/outer.md)",
}

// outerDenied returns the error for a policy that allows no outer layer, or not the requested one.
func outerDenied(eff policy.Effective, asked string, err error) error {
	if asked == "" {
		return problem.New(problem.Refused, "outer layer: %w", err).
			WithHint("jail policy explain outer")
	}
	return notAllowed("outer layer "+asked, eff.Decide(policy.InLayer{Name: asked})).
		WithHint(`the ceiling and the profile must name it in outer.allow`)
}

// Package containers makes the plans of OCI containers, which jail-oci starts and container engines
// own, and records their start and end.
//
//	jail-oci: a spec        -->  jaild: the plan, after run.started is on record
//	jail-oci: a process id  -->  jaild: watches the process, and records run.finished at its end
package containers

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/foreign"
	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// defaultProfile is the profile of a container if neither config.json nor the operator names one.
const defaultProfile = "container"

// reportPatience is how long jail-oci may take from a plan to its report, hooks included.
const reportPatience = 10 * time.Minute

// Options are what a Keeper uses of the daemon.
type Options struct {
	// Dir holds a file for each running container.
	Dir string
	// Node is the path of the operator's oci.toml, which need not exist.
	Node string
	// Resolve returns the policy of a profile for a caller.
	Resolve func(c caller.Caller, profile string) (policy.Effective, error)
	Log     runlog.Appender
	// Check is called with the error, or nil, of a step in the background.
	Check func(what string, err error)
}

// A Keeper plans and watches the containers of a host. Its methods may be called from several
// goroutines.
type Keeper struct {
	o Options

	mu     sync.Mutex
	closed bool
	// planned has the containers that jail-oci has not reported yet.
	planned map[jail.ID]*kept
	// living has the running containers. The channel is closed once the end is recorded.
	living map[jail.ID]chan struct{}
}

// A kept is what the daemon keeps of a container.
type kept struct {
	Plan  oci.Plan    `json:"plan"`
	Actor audit.Actor `json:"actor"`
	// Process is the container's first process.
	Process foreign.Name `json:"process"`
	Begun   time.Time    `json:"begun"`
	// Cgroups are the cgroups in the form of oci.Made.
	Cgroups map[string]string `json:"cgroups"`

	expires *time.Timer
}

// Open returns a keeper. Unless the daemon is private, Open watches the containers of earlier
// daemons, and records those that have ended.
func Open(o Options, private bool) (*Keeper, error) {
	k := &Keeper{o: o, planned: map[jail.ID]*kept{}, living: map[jail.ID]chan struct{}{}}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if private {
		return k, nil
	}
	files, err := filepath.Glob(filepath.Join(o.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		c, err := read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		process, err := foreign.Open(c.Process)
		if err != nil {
			k.ended(c, foreign.End{}, c.usage(), "it ended while no jaild ran")
			continue
		}
		k.watch(c, process)
	}
	return k, nil
}

func read(file string) (*kept, error) {
	c := &kept{}
	return c, atomicfile.ReadJSON(file, c)
}

func (k *Keeper) file(id jail.ID) string { return filepath.Join(k.o.Dir, string(id)+".json") }

// Living returns how many containers are watched.
func (k *Keeper) Living() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.living)
}

// Close stops recording. The containers run on, and the next daemon watches them.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
}

// Plan returns the plan of a container. The decision is recorded before it is returned.
func (k *Keeper) Plan(c caller.Caller, r oci.Request) (oci.Plan, error) {
	if c.UID != 0 {
		return oci.Plan{}, problem.New(problem.Refused,
			"containers are for root: a rootless engine's containers are not supported").
			WithHint("use the engine as root, or jail run")
	}
	id := jail.NewID()
	p, profile, err := k.plan(c, id, r)
	entry := audit.Entry{Run: string(id), Actor: c.Actor(), Policy: p.Policy}
	if err != nil {
		e := problem.From(err)
		return p, errors.Join(e, runlog.New(k.o.Log, entry).Record(
			audit.RunFinished{ExitCode: e.Exit(), Error: "container " + r.Container + ": " + e.Message}))
	}
	started, err := startedBy(p, profile)
	if err != nil {
		return p, err
	}
	if err := runlog.New(k.o.Log, entry).Record(started); err != nil {
		return p, err
	}
	made := &kept{Plan: p, Actor: c.Actor(), Begun: time.Now()}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.planned[id] = made
	made.expires = time.AfterFunc(reportPatience, func() {
		if k.take(id) != nil {
			k.failed(made, "nobody said what became of the container")
		}
	})
	return p, nil
}

func (k *Keeper) plan(c caller.Caller, id jail.ID, r oci.Request) (p oci.Plan, profile string,
	err error) {
	node, err := config.ReadNode(k.o.Node)
	if err != nil {
		return p, "", err
	}
	profile = cmp.Or(node.Profile, defaultProfile)
	if asked := r.Spec.Annotations[oci.ProfileAnnotation]; asked != "" && asked != profile {
		if !slices.Contains(node.Profiles, asked) {
			return p, "", problem.New(problem.Refused,
				"annotation %s of config.json: containers may not have profile %q",
				oci.ProfileAnnotation, asked).
				WithHint("the operator names it in profiles of " + k.o.Node)
		}
		profile = asked
	}
	eff, err := k.o.Resolve(c, profile)
	if err != nil {
		return p, "", err
	}
	if p, err = oci.NewPlan(id, eff, node, r); err != nil {
		return p, "", problem.New(problem.Refused, "profile %s: %w", profile, err).
			WithHint("docs/oci.md says what containers may have")
	}
	return p, profile, nil
}

// startedBy returns the audit event of a container's start.
func startedBy(p oci.Plan, profile string) (audit.RunStarted, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return audit.RunStarted{}, err
	}
	digest := sha256.Sum256(text)
	process := p.Spec.Process
	e := audit.RunStarted{Tool: process.Args[0], Argv: process.Args, Cwd: process.Cwd,
		Profile: profile, Plan: "sha256:" + hex.EncodeToString(digest[:]), Warnings: p.Warnings,
		Start: "container", Container: p.Container, Bundle: p.Bundle, Dropped: p.Dropped}
	for _, v := range process.Env {
		name, _, _ := strings.Cut(v, "=")
		e.Env = append(e.Env, name)
	}
	return e, nil
}

// take removes a planned container and returns it, or nil if it is not planned.
func (k *Keeper) take(id jail.ID) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.planned[id]
	delete(k.planned, id)
	return c
}

// Report is called with the outcome of a plan: the container started, failed, or was deleted.
func (k *Keeper) Report(c caller.Caller, id string, r oci.Made) error {
	if r.Deleted && c.UID == 0 {
		k.settle(jail.ID(id))
		return nil
	}
	made, err := k.find(c, id)
	if err != nil {
		return err
	}
	if k.take(made.Plan.ID) == nil {
		return problem.New(problem.Conflict, "container %s has been reported before", id)
	}
	made.expires.Stop()
	if r.Error != "" || r.PID <= 0 {
		return k.failed(made, r.Error)
	}
	var process *foreign.Process
	if made.Process, err = foreign.NameOf(r.PID); err == nil {
		process, err = foreign.Open(made.Process)
	}
	if err != nil {
		return errors.Join(problem.New(problem.Usage, "process %d of the container: %v", r.PID, err),
			k.failed(made, err.Error()))
	}
	made.Cgroups = r.Cgroups
	err = atomicfile.WriteJSON(k.file(made.Plan.ID), made, 0o600, atomicfile.Volatile)
	if err != nil {
		process.Close()
		return errors.Join(problem.New(problem.Failed, "container %s: %w", id, err),
			k.failed(made, err.Error()))
	}
	k.watch(made, process)
	return nil
}

// Exec narrows a further process of a container by the container's plan, and records it. dropped is
// what was taken from the process.
func (k *Keeper) Exec(c caller.Caller, id string, process *specs.Process) (dropped []string, err error) {
	made, err := k.find(c, id)
	if err != nil {
		return nil, err
	}
	if dropped, err = made.Plan.NarrowProcess(process); err != nil {
		return nil, problem.New(problem.Usage, "exec: %v", err)
	}
	return dropped, k.records(made, c.Actor()).Record(audit.Exec{Program: process.Args[0],
		Argv: process.Args, Cwd: process.Cwd})
}

// find returns a container that is planned or running.
func (k *Keeper) find(c caller.Caller, id string) (*kept, error) {
	if c.UID != 0 {
		return nil, problem.New(problem.Refused, "containers are for root")
	}
	checked, err := jail.ParseID(id)
	if err != nil {
		return nil, problem.New(problem.Usage, "%v", err)
	}
	k.mu.Lock()
	made := k.planned[checked]
	k.mu.Unlock()
	if made != nil {
		return made, nil
	}
	made, err = read(k.file(checked))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.New(problem.NotFound, "no container has the run id %s", id)
	}
	if err != nil {
		return nil, problem.New(problem.Failed, "container %s: %w", id, err)
	}
	return made, nil
}

func (k *Keeper) records(c *kept, by audit.Actor) *runlog.Log {
	return runlog.New(k.o.Log, audit.Entry{Run: string(c.Plan.ID), Actor: by, Policy: c.Plan.Policy})
}

// settlePatience is how long a deletion waits for the record of the container's end.
const settlePatience = 5 * time.Second

// settle waits until the end of a stopped container is recorded, at most settlePatience.
func (k *Keeper) settle(id jail.ID) {
	k.mu.Lock()
	recorded := k.living[id]
	k.mu.Unlock()
	if recorded == nil {
		return
	}
	select {
	case <-recorded:
	case <-time.After(settlePatience):
	}
}

// usage returns the usage of the container's cgroup; zero if the cgroup is gone.
func (c *kept) usage() cgroup.Usage {
	leaf, err := cgroup.OpenForeign(c.Cgroups)
	if err != nil {
		return cgroup.Usage{}
	}
	defer leaf.Close()
	u, _ := leaf.Usage()
	return u
}

// failed records a container that did not start.
func (k *Keeper) failed(c *kept, why string) error {
	return k.finish(c, audit.RunFinished{ExitCode: problem.ExitFailed, Error: why})
}

func (k *Keeper) finish(c *kept, e audit.RunFinished) error {
	e.Usage.WallMS = time.Since(c.Begun).Milliseconds()
	return k.records(c, c.Actor).Record(e)
}

// watch waits in the background for the end of a container, and kills it at its wall limit.
func (k *Keeper) watch(c *kept, process *foreign.Process) {
	recorded := make(chan struct{})
	k.mu.Lock()
	k.living[c.Plan.ID] = recorded
	k.mu.Unlock()
	go func() {
		defer process.Close()
		late := make(chan struct{})
		if wall := c.Plan.Wall; wall > 0 {
			timer := time.AfterFunc(time.Until(c.Begun.Add(wall)), func() {
				close(late)
				k.o.Check("end a container whose time is over", process.Kill())
			})
			defer timer.Stop()
		}
		k.o.Check("wait for a container", process.AwaitExit())
		// The engine may remove the cgroup once it has the exit status.
		usage := c.usage()
		end, err := process.Wait()
		k.o.Check("wait for a container", err)
		select {
		case <-late:
			end.Limit = limitWall
		default:
			if usage.OOMKills > 0 && end.Signal == "SIGKILL" {
				end.Limit = limitMemory
			}
		}
		k.ended(c, end, usage, "")
		k.mu.Lock()
		delete(k.living, c.Plan.ID)
		k.mu.Unlock()
		close(recorded)
	}()
}

// The names of the limits that end a container.
const limitWall, limitMemory = "wall", "memory"

// ended records the end of a container, unless another daemon has. missed tells why the exit code
// is unknown.
func (k *Keeper) ended(c *kept, end foreign.End, u cgroup.Usage, missed string) {
	k.mu.Lock()
	closed := k.closed
	k.mu.Unlock()
	if closed || os.Remove(k.file(c.Plan.ID)) != nil {
		return
	}
	e := audit.RunFinished{ExitCode: end.Code, Signal: end.Signal, Limit: end.Limit,
		Usage: audit.Usage{CPUMS: u.CPU.Milliseconds(), MemoryPeak: u.MemoryPeak, PIDsPeak: u.PIDsPeak,
			ThrottledMS: u.Throttled.Milliseconds(), IORead: u.IORead, IOWrite: u.IOWrite}}
	if !end.Known {
		e.ExitCode = unknownCode
		e.Error = "the exit code is not known: " + cmp.Or(missed,
			"the kernel tells it to the engine alone (Linux before 6.15)")
	}
	limit := audit.Limit{Name: end.Limit, Action: "killed"}
	switch end.Limit {
	case limitWall:
		limit.Limit, limit.Peak = c.Plan.Wall.Milliseconds(), time.Since(c.Begun).Milliseconds()
	case limitMemory:
		limit.Limit, limit.Peak = c.Plan.MemoryLimit(), u.MemoryPeak
	}
	if end.Limit != "" {
		k.o.Check("record a limit", k.records(c, c.Actor).Record(limit))
	}
	k.o.Check("record the end of a container", k.finish(c, e))
}

// unknownCode is recorded as the exit code if it is not known.
const unknownCode = -1

package agents

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Bounds of a loaded program.
const (
	// maxCode bounds its modules together, in bytes.
	maxCode    = 16 << 20
	maxModules = 100
	maxEnv     = 100
	maxEnvText = 64 << 10
	// MaxLoadOutput is how many bytes of output are returned.
	MaxLoadOutput = 64 << 10
)

// A Load is a program to run once, in a jail of its own.
type Load struct {
	// Launch describes the agent that loads the program. The program gets no more rights.
	Launch Launch
	// Main is the name of the main module. All modules are in Files or in the directory Dir.
	Dir, Main string
	Files     map[string][]byte
	// Env is the whole environment, each NAME=VALUE.
	Env []string
	// Orders carry the frames, including output, of a program that has bindings; nil for one
	// without. Models says that it may ask models.
	Orders *Orders
	Models bool
	// State is an empty directory for the jail of a program with bindings.
	State string
	// Share narrows the program's limits.
	Share Share
	// Enough is closed to end the program at once. Its usage is still returned.
	Enough <-chan struct{}
	// Deadline is how long the program may run.
	Deadline time.Duration
}

// Loaded is the result of a loaded program.
type Loaded struct {
	ExitCode int    `json:"exitCode"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// Limit is the limit that ended the program, Trap the engine's trap. Both may be empty.
	Limit string `json:"limit,omitempty"`
	Trap  string `json:"trap,omitempty"`
	// Usage is in milliseconds and bytes.
	Usage struct {
		WallMS     int64 `json:"wall_ms"`
		CPUMS      int64 `json:"cpu_ms"`
		MemoryPeak int64 `json:"memory_peak"`
	} `json:"usage"`
}

// A program is the parameters of HOST.load.
type program struct {
	ExecutionID string `json:"executionId"`
	MainModule  string `json:"mainModule"`
	// Modules are the modules by name, each a string or {"base64": …}.
	Modules map[string]json.RawMessage `json:"modules"`
	// Env has a string for an environment variable, or a grant for a binding, by name.
	Env map[string]json.RawMessage `json:"env"`
	// GlobalOutbound must be null: a loaded program has no network.
	GlobalOutbound json.RawMessage `json:"globalOutbound"`
}

var (
	executionID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	moduleName  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func badLoad(format string, args ...any) error {
	return agent.Errorf(agent.ErrParams, "load: "+format, args...)
}

// environment returns the environment variables of a program, each NAME=VALUE, and its grants.
func (p program) environment() (env []string, grants map[string]grant, err error) {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		raw := p.Env[name]
		if !envName.MatchString(name) || len(name) > agent.MaxName {
			return nil, nil, badLoad("env %.60q: want a name of letters, digits and _", name)
		}
		if size += len(name) + len(raw); size > maxEnvText {
			return nil, nil, badLoad("env has more than %d bytes", maxEnvText)
		}
		if raw = bytes.TrimSpace(raw); raw[0] == '{' {
			if grants == nil {
				grants = map[string]grant{}
			}
			if grants[name], err = grantOf(name, raw); err != nil {
				return nil, nil, badLoad("env %.60q: %v", name, err)
			}
			continue
		}
		var value string
		if raw[0] != '"' || json.Unmarshal(raw, &value) != nil || strings.ContainsRune(value, 0) {
			return nil, nil, badLoad("env %.60q: want a text, or a binding as in {\"facet\": NAME}", name)
		}
		env = append(env, name+"="+value)
	}
	return env, grants, nil
}

// code checks a program and returns its decoded modules by name.
func (p program) code() (map[string][]byte, error) {
	switch _, ok := p.Modules[p.MainModule]; {
	case !executionID.MatchString(p.ExecutionID):
		return nil, badLoad("executionId %.60q: want 1 to 128 letters, digits, ., _ and -", p.ExecutionID)
	case !ok:
		return nil, badLoad("mainModule %.60q is not among the modules", p.MainModule)
	case !slices.Contains([]string{".wasm", ".py", ".js", ".mjs"}, path.Ext(p.MainModule)):
		return nil, badLoad("mainModule %.60q: want a name that ends in .wasm, .py, .js or .mjs",
			p.MainModule)
	case len(p.Modules) > maxModules || len(p.Env) > maxEnv:
		return nil, badLoad("%d modules and %d variables: at most %d and %d", len(p.Modules), len(p.Env),
			maxModules, maxEnv)
	case len(p.GlobalOutbound) > 0 && string(p.GlobalOutbound) != "null":
		return nil, badLoad("globalOutbound: want null, a loaded program has no network")
	}
	out, size := map[string][]byte{}, 0
	for name, raw := range p.Modules {
		if len(name) > 200 || !moduleName.MatchString(name) {
			return nil, badLoad("module %.60q: want a relative path of letters, digits, ., _ and -", name)
		}
		text, err := codeOf(raw)
		if err != nil {
			return nil, badLoad(`module %.60q: %v: want a text, or {"base64": TEXT}`, name, err)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := p.Modules[dir]; ok {
				return nil, badLoad("module %.60q: its directory is a module, too", name)
			}
		}
		if size += len(text); size > maxCode {
			return nil, agent.Errorf(agent.ErrTooLarge, "load: the modules have more than %d MiB",
				maxCode>>20)
		}
		out[name] = text
	}
	return out, nil
}

func codeOf(raw json.RawMessage) ([]byte, error) {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && trimmed[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return []byte(text), err
	}
	var of struct {
		Base64 *string `json:"base64"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return nil, err
	}
	if of.Base64 == nil {
		return nil, errors.New("there is no base64")
	}
	return base64.StdEncoding.DecodeString(*of.Base64)
}

// load runs a program once, in a fresh jail: under the agent's policy without files and network,
// with a part of the agent's share for facets, and only with the given variables and bindings. It
// leaves no state.
func (c *calls) load(ctx context.Context, call agent.Call, p program) (any, error) {
	modules, err := p.code()
	if err != nil {
		return nil, err
	}
	env, grants, err := p.environment()
	if err != nil {
		return nil, err
	}
	if err := c.mayGrant(ctx, call, grants); err != nil {
		return nil, err
	}
	a := c.r.a
	dir, err := os.MkdirTemp(a.o.State, loadPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l := Load{Launch: c.r.l, Dir: dir, Main: p.MainModule, Env: env}
	if path.Ext(l.Main) != ".wasm" && runners.CheckFiles(modules) == nil {
		// The jail then needs no directory of the host, so it can be a prewarmed one.
		l.Files = modules
	} else if err := writeCode(dir, modules); err != nil {
		return nil, err
	}
	leave, err := c.piece(ctx, &l)
	if err != nil {
		return nil, err
	}
	defer leave()
	if until, ok := ctx.Deadline(); ok {
		l.Deadline = time.Until(until)
	}
	var done Loaded
	if grants == nil {
		done, err = a.o.Jails.Load(ctx, l)
	} else {
		done, err = c.loadBound(ctx, l, &bound{grants: grants, key: call.Key})
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if ofHost(err) {
			return nil, err
		}
		// Remove the host's directory from the message.
		return nil, agent.Errorf(agent.ErrFailed, "load: %s",
			strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	return struct {
		ExecutionID string `json:"executionId"`
		Loaded
	}{p.ExecutionID, done}, nil
}

// writeCode writes the modules of a program into dir and makes them readable for everybody.
func writeCode(dir string, modules map[string][]byte) error {
	for name, text := range modules {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}

// piece waits until a part of the agent's share for facets is free, and reserves it for l. The
// caller calls leave after the program has ended.
func (c *calls) piece(ctx context.Context, l *Load) (leave func(), err error) {
	line, err := facets{c.r.a}.line(ctx, c.r.from)
	if err != nil {
		return nil, err
	}
	// The program has no row, so its id must differ from all instances'.
	id := c.r.a.families.loads.Add(-1)
	line = append(line, kin{instance: store.Instance{ID: id, Facet: agent.MethodLoad}})
	limits := func(ctx context.Context, l Launch) (Share, error) {
		if l.Instance == "" {
			return Share{math.MaxInt64, math.MaxInt64}, nil
		}
		return c.r.a.o.Jails.Limits(ctx, l)
	}
	for {
		share, err := c.r.a.families.enter(ctx, line, limits)
		if err == nil {
			l.Share = *share
			return func() { c.r.a.families.leave(line) }, nil
		}
		if !errors.Is(err, errCrowded) {
			return nil, err
		}
		facets{c.r.a}.makeRoom(line)
		select {
		case <-time.After(crowdedPause):
		case <-ctx.Done():
			return nil, agent.Errorf(agent.ErrBusy, "load: %v", err)
		}
	}
}

// loadPrefix is the prefix of directories of loaded programs. No instance has such a name.
const loadPrefix = ".load-"

// clearLoads removes directories of loaded programs and copied states that a crash has left.
func clearLoads(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), loadPrefix) || strings.HasPrefix(e.Name(), branchPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

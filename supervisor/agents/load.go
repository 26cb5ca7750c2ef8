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

// Bounds of a program that is loaded.
const (
	// maxCode is how many bytes its modules have together.
	maxCode    = 16 << 20
	maxModules = 100
	maxEnv     = 100
	maxEnvText = 64 << 10
	// MaxLoadOutput is how many bytes of output are returned.
	MaxLoadOutput = 64 << 10
)

// A Load is a program that runs once, in a jail of its own.
type Load struct {
	// Launch is that of the agent which asks for it: the program gets no more than that.
	Launch Launch
	// Main is the name of the first of its modules. Files are all of them, or Dir holds them.
	Dir, Main string
	Files     map[string][]byte
	// Env is its whole environment, each NAME=VALUE.
	Env []string
	// Orders carry the frames of a program that has bindings, and what it writes; nil for one that
	// has none. Models says that it may ask models.
	Orders *Orders
	Models bool
	// State is an empty directory for the jail of a program that has bindings.
	State string
	// Share narrows its limits.
	Share Share
	// Enough is closed when the program is to be ended at once. What it used is still told.
	Enough <-chan struct{}
	// Deadline is when nobody waits for it any more.
	Deadline time.Duration
}

// Loaded is what a program did.
type Loaded struct {
	ExitCode int    `json:"exitCode"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// Limit is the limit that ended it, Trap why its engine did; empty for none.
	Limit string `json:"limit,omitempty"`
	Trap  string `json:"trap,omitempty"`
	// Usage is in milliseconds and bytes.
	Usage struct {
		WallMS     int64 `json:"wall_ms"`
		CPUMS      int64 `json:"cpu_ms"`
		MemoryPeak int64 `json:"memory_peak"`
	} `json:"usage"`
}

// A program is what load takes.
type program struct {
	ExecutionID string `json:"executionId"`
	MainModule  string `json:"mainModule"`
	// Modules are texts, or {"base64": …}.
	Modules map[string]json.RawMessage `json:"modules"`
	// Env are texts, which are variables, and grants of bindings.
	Env map[string]json.RawMessage `json:"env"`
	// GlobalOutbound is null, and nothing else: a loaded program has no network.
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

// environment returns the variables of a program, and its bindings.
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

// code checks a program, and returns its modules as bytes.
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

// load runs a program once, in a fresh jail: of the policy of the agent what a program without
// files and network needs, a piece of what the agent keeps for facets, and only the variables and
// bindings that are given. Nothing of it stays.
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
		// Nothing of the host is in its jail then, which can be one that was made before.
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
		// The agent knows its modules by their names alone.
		return nil, agent.Errorf(agent.ErrFailed, "load: %s",
			strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	return struct {
		ExecutionID string `json:"executionId"`
		Loaded
	}{p.ExecutionID, done}, nil
}

// writeCode writes the modules of a program into a directory, which everybody may read then.
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

// piece waits until a part of what the agent keeps for its facets is free, and takes it.
func (c *calls) piece(ctx context.Context, l *Load) (leave func(), err error) {
	line, err := facets{c.r.a}.line(ctx, c.r.from)
	if err != nil {
		return nil, err
	}
	// It has no row: its number is no instance's.
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

// loadPrefix begins the names of the directories of loaded programs. No instance has such a name.
const loadPrefix = ".load-"

// clearLoads removes the programs that ran when jail-agentd ended, and states that were copied.
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

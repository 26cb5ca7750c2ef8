package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners/agent"
)

// Parse parses the text of a manifest: JSON if source is named agent.json, else TOML. The error is
// a syntax.Errors with all errors.
func Parse(source string, text []byte) (*Manifest, error) {
	r, t, err := open(plainOf(source), source, text)
	if err != nil {
		return nil, err
	}
	m := r.manifest(t)
	if err := syntax.Report(source, text, r.errs); err != nil {
		return nil, err
	}
	m.Source = source
	if found, ok := errors.AsType[syntax.Errors](syntax.Report(source, text, r.warns)); ok {
		m.Warnings = found
	}
	return m, nil
}

func (r *reader) manifest(t table) *Manifest {
	m := &Manifest{}
	r.keys(t, "agent", "type", "name", "runtime", "module", "args", "native", "profile", "policy",
		"channels", "handle", "config", "capabilities", "storage", "tools", "facets", "ai",
		"wake", "limits")
	r.head(t, m)
	r.what(t, m)
	m.Channels = r.texts(t, "channels", true, CheckChannel)
	if !t.has("channels") {
		m.Channels = []string{DefaultChannel}
	} else if len(m.Channels) == 0 && len(r.errs) == 0 {
		r.fail("channels", `leave it out for ["main"]`, "channels is empty")
	}
	m.Handle = m.Name
	if v, ok := r.text(t, "handle"); ok {
		if err := CheckHandle(v); err != nil {
			r.fail("handle", "", "handle: %v", err)
		}
		m.Handle = v
	}
	r.config(t, m)
	r.capabilities(r.sub(t, "capabilities"), m)
	storage := r.sub(t, "storage")
	r.keys(storage, "size")
	m.Storage = r.quantity(storage, "size", policy.Bytes, minStorage, maxStorage, defaultStorage)
	if t.has("storage") && !m.Capabilities.Storage {
		r.warn("storage", "write capabilities.storage = true, or leave the table out",
			"[storage] has no effect: the agent has no storage")
	}
	facets := r.sub(t, "facets")
	r.keys(facets, "memory", "pids")
	m.Facets.Memory = r.quantity(facets, "memory", policy.Bytes, 1<<20, 1<<40, 0)
	m.Facets.PIDs = r.number(facets, "pids", 1, 1<<20, 0)
	if t.has("facets") && !m.Capabilities.Facets {
		r.warn("facets", "write capabilities.facets = true, or leave the table out",
			"[facets] has no effect: the agent has no facets")
	}
	r.tools(t, r.sub(t, "tools"), m)
	r.ai(t, r.sub(t, "ai"), m)
	r.wake(r.sub(t, "wake"), &m.Wake)
	r.limits(r.sub(t, "limits"), m)
	if m.OnHost() {
		r.onHost(t, m)
	}
	return m
}

// onHost reports an error for keys about a jail in the manifest of an agent without one.
func (r *reader) onHost(t table, m *Manifest) {
	if len(m.Native) == 0 {
		r.fail("module", `name a program, as in native = ["./main"]`,
			"module: an agent with runtime = %q is a program of the host", Host)
	}
	for _, key := range []string{"profile", "policy", "limits"} {
		if t.has(key) {
			r.fail(key, "leave it out", "%s bounds a jail, and an agent with runtime = %q has none",
				key, Host)
		}
	}
	if !m.Capabilities.Network {
		r.fail("capabilities.network", "write capabilities.network = true",
			"capabilities.network: an agent with runtime = %q has the network of its user", Host)
	}
	const instead = "leave it out, or run the agent in a jail: leave runtime out"
	if m.Capabilities.Facets {
		r.fail("capabilities.facets", instead,
			"capabilities.facets: facets and loaded programs have a part of the jail of their agent, "+
				"and an agent with runtime = %q has none", Host)
	}
	if len(m.Capabilities.Tools) > 0 {
		r.fail("capabilities.tools", instead,
			"capabilities.tools: tools run under the policy of their agent, and an agent with "+
				"runtime = %q has none", Host)
	}
	m.Profile = ""
}

func (r *reader) head(t table, m *Manifest) {
	if !t.has("agent") {
		r.fail("agent", fmt.Sprintf("write `agent = %d` as the first line", version),
			"the version of the manifest is missing")
	} else if v, ok := t.values["agent"].(int64); !ok || v != version {
		r.fail("agent", fmt.Sprintf("write `agent = %d`", version),
			"agent is the version of the manifest, and there is only %d", version)
	}
	if !t.has("type") {
		r.fail("type", `write type = "agent"`, "type is missing")
	} else {
		r.word(t, "type", "agent")
	}
	if v, ok := r.text(t, "name"); ok {
		if err := CheckName(v); err != nil {
			r.fail("name", "", "name: %v", err)
		}
		m.Name = v
	} else if !t.has("name") {
		r.fail("name", `give it one, as in name = "triage"`, "name is missing")
	}
	m.Runtime = r.word(t, "runtime", sandboxed, Host, "workerd", "node")
	switch m.Runtime {
	case "workerd":
		m.Runtime = sandboxed
	case "node":
		m.Runtime = Host
	}
}

// what reads the keys about what the agent runs and its policy.
func (r *reader) what(t table, m *Manifest) {
	m.Module, _ = r.text(t, "module")
	m.Args = r.texts(t, "args", false, nil)
	m.Native = r.texts(t, "native", false, nil)
	module, native := t.has("module"), t.has("native")
	switch {
	case module && native:
		r.fail("native", "leave one of them out", "module and native exclude each other")
	case !module && !native:
		r.fail("", `name a .wasm file or a command of a bundle, as in module = "triage.wasm"`,
			"module is missing")
	case native && len(m.Native) == 0 && len(r.errs) == 0:
		r.fail("native", `name the program, as in native = ["python3", "main.py"]`,
			"native is empty")
	}
	if t.has("args") && native {
		r.fail("args", "write the arguments behind the program, in native",
			"args are those of a module")
	}
	if isModule(m.Module) && !filepath.IsLocal(m.Module) {
		r.fail("module", "put the file into the agent's directory, and write its name",
			"module: %q is no file below the agent's directory", m.Module)
	} else if !isModule(m.Module) && m.Module != "" && strings.Count(m.Module, "/") > 1 {
		r.fail("module", `a command is bundle/command, as in module = "python/python3"`,
			"module: %q is neither a .wasm file nor a command of a bundle", m.Module)
	}
	m.Profile = defaultProfile
	if v, ok := r.text(t, "profile"); ok {
		if err := syntax.CheckName(v); err != nil {
			r.fail("profile", "", "profile: %v", err)
		}
		m.Profile = v
	}
	v, ok := r.text(t, "policy")
	if !ok {
		return
	}
	if t.has("profile") {
		r.fail("policy", "leave one of them out", "profile and policy exclude each other")
	}
	if path.Ext(v) != ".toml" || !filepath.IsLocal(v) {
		r.fail("policy", "put the file into the agent's directory, and write its name",
			"policy: %q is no .toml file below the agent's directory", v)
	}
	m.Profile, m.Policy = "", v
}

// isModule reports whether module is a .wasm file, and not a command of a bundle.
func isModule(module string) bool { return path.Ext(module) == ".wasm" }

func (r *reader) config(t table, m *Manifest) {
	config := r.sub(t, "config")
	m.Config = json.RawMessage("{}")
	if len(config.values) == 0 {
		return
	}
	text, err := json.Marshal(config.values)
	switch {
	case err != nil:
		r.fail("config", "", "config: %v", err)
	case len(text) > maxConfig:
		r.fail("config", "", "config is %d bytes of JSON, more than %d", len(text), maxConfig)
	default:
		m.Config = text
	}
}

func (r *reader) capabilities(t table, m *Manifest) {
	r.keys(t, "network", "ai", "storage", "facets", "tools", "gatekeeper", "gatekeepers")
	c := &m.Capabilities
	c.Network, c.AI, c.Storage = r.flag(t, "network"), r.flag(t, "ai"), r.flag(t, "storage")
	c.Facets, c.Gatekeeper = r.flag(t, "facets"), r.flag(t, "gatekeeper")
	c.Tools = r.texts(t, "tools", true, func(text string) error {
		_, err := policy.ParseGlob(text)
		return err
	})
	c.Gatekeepers = r.texts(t, "gatekeepers", true, CheckName)
}

// tools reads the table tools.
func (r *reader) tools(file, t table, m *Manifest) {
	r.keys(t, "workspace")
	if dir, ok := r.text(t, "workspace"); ok {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			r.fail(t.path+"workspace", "", "tools.workspace: %q is no clean absolute path", dir)
		}
		m.Tools.Workspace = dir
	}
	if file.has("tools") && len(m.Capabilities.Tools) == 0 {
		r.warn("tools", `name some, as in capabilities.tools = ["core-utils/*"]`,
			"[tools] has no effect: the agent has no tools")
	}
}

// providers are the providers that a role may name as PROVIDER/MODEL. The credential is named like
// the provider.
var providers = map[string]Role{
	"anthropic": {Form: "messages", URL: "https://api.anthropic.com", Credential: "anthropic"},
	"openai":    {Form: "chat", URL: "https://api.openai.com", Credential: "openai"},
}

func (r *reader) ai(file, t table, m *Manifest) {
	r.keys(t, "roles", "tokens_day")
	m.AI.TokensDay = r.number(t, "tokens_day", 1, 1<<40, 0)
	roles := r.sub(t, "roles")
	if len(roles.values) > maxList {
		r.fail("ai.roles", "", "ai.roles has more than %d roles", maxList)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(roles.values)) {
		if m.AI.Roles == nil {
			m.AI.Roles = map[string]Role{}
		}
		if err := CheckChannel(name); err != nil {
			r.fail(roles.path+name, "", "ai.roles: %v", err)
		}
		m.AI.Roles[name] = r.role(roles, name)
	}
	switch {
	case file.has("ai") && !m.Capabilities.AI:
		r.warn("ai", "write capabilities.ai = true, or leave the table out",
			"[ai] has no effect: the agent has no AI")
	case m.Capabilities.AI && len(m.AI.Roles) == 0:
		r.warn("capabilities.ai", `as in [ai] roles = { fast = "anthropic/MODEL" }`,
			"capabilities.ai has no effect without a role")
	}
}

func (r *reader) role(t table, name string) Role {
	at := t.path + name
	if text, ok := t.values[name].(string); ok {
		provider, model, _ := strings.Cut(text, "/")
		role, known := providers[provider]
		if !known || model == "" {
			r.fail(at, `write a table for another host, as in { url = "https://HOST", form = `+
				`"chat", model = "MODEL", credential = "NAME" }`,
				"%s: %q is no PROVIDER/MODEL with a provider of %s", at, text,
				strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
		}
		role.Model = model
		return role
	}
	role := r.sub(t, name)
	r.keys(role, "url", "form", "model", "credential", "max_tokens")
	var out Role
	out.Form = r.word(role, "form", "chat", "messages", "responses")
	out.Model, _ = r.text(role, "model")
	out.Credential, _ = r.text(role, "credential")
	out.MaxTokens = r.number(role, "max_tokens", 1, 1<<30, 0)
	for _, key := range []string{"url", "model"} {
		if !role.has(key) && role.values != nil {
			r.fail(at, "", "%s: %s is missing", at, key)
		}
	}
	out.URL = strings.TrimSuffix(r.address(role, "url", "a model's host"), "/")
	return out
}

func (r *reader) wake(t table, w *Wake) {
	r.keys(t, "heartbeat", "roster", "idle", "deadline", "batch", "retries")
	w.Heartbeat = r.duration(t, "heartbeat", minHeartbeat, maxHeartbeat, 0)
	w.Roster = r.flag(t, "roster")
	w.Idle = r.duration(t, "idle", minTime, maxTime, defaultIdle)
	w.Deadline = r.duration(t, "deadline", minTime, maxTime, defaultDeadline)
	w.Batch = int(r.number(t, "batch", 1, MaxBatch, defaultBatch))
	w.Retries = int(r.number(t, "retries", 0, maxRetries, defaultRetries))
}

func (r *reader) limits(t table, m *Manifest) {
	r.keys(t, policy.LimitNames()...)
	for _, name := range policy.LimitNames() {
		raw, ok := t.values[name]
		if !ok {
			continue
		}
		var text string
		switch v := raw.(type) {
		case string:
			text = v
		case int64:
			text = strconv.FormatInt(v, 10)
		case float64:
			text = strconv.FormatFloat(v, 'f', -1, 64)
		}
		top := policy.TopLimits()
		if err := top.Set(name, text); err != nil {
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			r.fail(t.path+name, "", "limits.%s: %v", name, err)
			continue
		}
		m.Limits = append(m.Limits, name+"="+text)
	}
}

const capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// consists reports whether name has at most most bytes and only lower-case letters, digits and
// more.
func consists(name string, most int, more string) bool {
	return len(name) <= most && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c)
	})
}

// CheckName returns an error if name is not valid for an agent.
func CheckName(name string) error {
	if consists(name, 63, "-") && name != "" && name[0] != '-' {
		return nil
	}
	return fmt.Errorf("%.80q is no name of 1 to 63 lower-case letters, digits and -, such as triage",
		name)
}

// CheckChannel returns an error if name is not valid for a channel or role. It is used in file
// names.
func CheckChannel(name string) error {
	if consists(name, agent.MaxName, "-_.") && name != "" && name[0] != '-' && name[0] != '.' {
		return nil
	}
	return fmt.Errorf("%.80q is no name of 1 to %d lower-case letters, digits, -, _ and ., such as "+
		"team", name, agent.MaxName)
}

// CheckHandle returns an error if the handle, by which messages mention an agent, is not valid.
func CheckHandle(name string) error {
	if consists(name, 63, "-_"+capitals) {
		return nil
	}
	return fmt.Errorf("%.80q is no handle of 1 to 63 letters, digits, - and _", name)
}

package syntax

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Render writes a policy so that Parse with the same kind reads it back. Keys that would
// say what leaving them out says are left out.
//
// A limit of nothing at all and, in a profile, "any variable" of env.set cannot be said
// in a file; they stand there as comments, and Parse asks for what is missing.
func Render(f File) []byte {
	w := &writer{kind: f.Kind}
	p, top := f.Policy.Normal(), policy.Top().Normal()
	w.line("policy = %d", version)
	if f.Name != "" {
		w.line("name = %s", Quote(f.Name))
	}
	if f.About != "" {
		w.line("about = %s", Quote(f.About))
	}
	says := w.says(len(p.Mounts) == 0, p.Mounts.String() == top.Mounts.String())
	if says && len(p.Mounts) == 0 {
		w.line("mount = []")
	}
	w.workspace(p.Workspace)
	if says {
		w.mounts(p.Mounts)
	}
	w.limits("limits", policy.LimitNames(), p.Limits.Get)
	w.section("tools")
	w.globs("allow", p.Tools.Allow, top.Tools.Allow)
	w.globs("modules", p.Tools.Modules, top.Tools.Modules)
	w.globs("native", p.Tools.Native, top.Tools.Native)
	images := top.Tools.Images
	if f.Kind == Ceiling && p.Tools.Native.String() != top.Tools.Native.String() {
		// See draft.open.
		images = nil
	}
	w.globs("images", p.Tools.Images, images)
	w.fetch(p.Fetch, top.Fetch)
	w.section("env")
	w.vars(p.Env.Set)
	w.globs("pass", p.Env.Pass, top.Env.Pass)
	w.globs("allow", p.Env.Allow, top.Env.Allow)
	w.section("syscalls")
	w.strings("groups", p.Syscalls.Groups, p.Syscalls.String() == top.Syscalls.String())
	w.section("audit")
	if p.Audit.Files != policy.FilesNone {
		w.line("files = %s", Quote(p.Audit.Files.String()))
	}
	w.section("session")
	unsaid := policy.Session{Engine: policy.EngineRequest}
	if f.Kind != Profile {
		unsaid = top.Session
	}
	if p.Session.Engine != unsaid.Engine {
		w.line("engine = %s", Quote(p.Session.Engine.String()))
	}
	if p.Session.Loopback != unsaid.Loopback {
		w.line("loopback = %s", Quote(p.Session.Loopback.String()))
	}
	w.section("agent")
	w.strings("bindings", p.Agent.Bindings, p.Agent.String() == top.Agent.String())
	w.section("outer")
	unsaidOuter := policy.TopOuter()
	if f.Kind == Ceiling {
		unsaidOuter = policy.KeepingOuter()
	}
	if p.Outer.String() != unsaidOuter.String() && !p.Tools.Empty() {
		w.line("allow = %s", List(p.Outer.Words()))
	}
	for _, r := range p.Approve {
		w.approve(r)
	}
	for _, t := range f.Tools {
		w.tool(t, top)
	}
	return []byte(w.out.String())
}

// approve writes a rule of approvals, once for each of its tools.
func (w *writer) approve(r policy.ApproveRule) {
	tools := r.Tool.Strings()
	if len(tools) == 0 {
		tools = []string{""}
	}
	for _, tool := range tools {
		w.section("[approve]")
		w.line("action = %s", Quote(r.Action))
		if r.Host != (policy.Host{}) {
			w.line("host = %s", Quote(r.Host.String()))
		}
		if len(r.Methods) > 0 {
			w.line("methods = %s", List(r.Methods.Strings()))
		}
		if tool != "" {
			w.line("tool = %s", Quote(tool))
		}
		w.line("mode = %s", Quote(r.Mode.String()))
	}
}

// tool writes the section of a tool, which leaves out what it does not narrow.
func (w *writer) tool(t policy.ForTool, top policy.Policy) {
	kind := w.kind
	w.kind, w.prefix = Request, "tool."+Quote(t.Tool.String())
	fmt.Fprintf(&w.out, "\n[%s]\n", w.prefix)
	p := t.Policy.Normal()
	w.pending = ""
	if len(p.Mounts) == 0 {
		w.line("mount = []")
	} else if p.Mounts.String() != top.Mounts.String() {
		w.mounts(p.Mounts)
	}
	w.limits("limits", policy.LimitNames(), p.Limits.Get)
	w.fetch(p.Fetch, top.Fetch)
	w.kind, w.prefix = kind, ""
}

type writer struct {
	kind Kind
	out  strings.Builder
	// A section without a key yet.
	pending string
	prefix  string // of all sections
}

func (w *writer) line(format string, args ...any) {
	if w.pending != "" {
		fmt.Fprintf(&w.out, "\n%s\n", w.pending)
		w.pending = ""
	}
	fmt.Fprintf(&w.out, format+"\n", args...)
}

func (w *writer) section(name string) {
	inner, list := strings.CutPrefix(name, "[")
	inner = strings.TrimSuffix(inner, "]")
	if w.prefix != "" {
		inner = w.prefix + "." + inner
	}
	if w.pending = "[" + inner + "]"; list {
		w.pending = "[" + w.pending + "]"
	}
}

// says reports whether something must be written that is nothing, or everything, or
// neither of the two.
func (w *writer) says(nothing, everything bool) bool {
	if w.kind == Profile {
		return !nothing
	}
	return !everything
}

func (w *writer) workspace(ws policy.Workspace) {
	top := policy.TopWorkspace()
	w.section("workspace")
	if w.says(ws.Access == 0, ws.Access == top.Access) {
		w.line("access = %s", Quote(ws.Access.String()))
	}
	if len(ws.Hide) > 0 {
		w.line("hide = %s", List(ws.Hide))
	}
	if len(ws.Protect) > 0 {
		w.line("protect = %s", List(ws.Protect))
	}
	// Without a workspace it has no path, whatever the target says.
	if ws.Access != policy.WorkspaceNone && w.says(ws.Target == 0, ws.Target == top.Target) {
		w.line("target = %s", Quote(ws.Target.String()))
	}
	// Without a shadow there is nothing to commit, whatever the rule says.
	if ws.Access == policy.WorkspaceShadow && w.says(ws.Commit == 0, ws.Commit == top.Commit) {
		w.line("commit = %s", Quote(ws.Commit.String()))
	}
}

func (w *writer) mounts(mounts policy.Mounts) {
	for _, m := range mounts {
		w.section("[mount]")
		if m.Source != "" {
			w.line("source = %s", Quote(m.Source))
		}
		if m.Target != "" {
			w.line("target = %s", Quote(m.Target))
		}
		w.line("access = %s", Quote(m.Access.String()))
		if m.Name != "" {
			w.line("name = %s", Quote(m.Name))
		}
		if m.Access == policy.Cache && m.Size != policy.Unlimited {
			w.line("size = %s", Quote(policy.Bytes.Format(m.Size)))
		}
	}
}

func (w *writer) limits(section string, names []string,
	get func(string) (int64, policy.Unit, bool)) {
	w.section(section)
	for _, name := range names {
		n, unit, _ := get(name)
		w.limit(name, n, unit)
	}
}

func (w *writer) limit(name string, n int64, unit policy.Unit) {
	switch {
	case n == policy.Unlimited:
		if w.kind == Profile {
			w.line("# %s is unlimited", name)
		}
	case n <= 0:
		w.line("# %s is nothing at all", name)
	case unit == policy.Count || unit == policy.Cores:
		w.line("%s = %s", name, unit.Format(n))
	default:
		w.line("%s = %s", name, Quote(unit.Format(n)))
	}
}

func (w *writer) strings(key string, texts []string, everything bool) {
	if w.says(len(texts) == 0, everything) {
		w.line("%s = %s", key, List(texts))
	}
}

func (w *writer) globs(key string, globs, top policy.Globs) {
	w.strings(key, globs.Strings(), globs.String() == top.String())
}

func (w *writer) fetch(f, top policy.Fetch) {
	allTop := len(f.Allow) == 1 && f.Allow[0].String() == top.Allow[0].String()
	if len(f.Allow) == 0 {
		if w.says(true, false) {
			w.section("fetch")
			w.line("allow = []")
		}
		return
	}
	w.section("fetch")
	if w.says(f.Mode == 0, f.Mode == top.Mode) {
		w.line("mode = %s", Quote(f.Mode.String()))
	}
	if w.says(false, allTop) {
		for _, r := range f.Allow {
			w.section("[fetch.allow]")
			w.rule(r)
		}
	}
	for _, r := range f.Deny {
		w.section("[fetch.deny]")
		w.target(r.Host, r.Ports, r.Methods, r.Paths)
	}
	w.limits("fetch.limits", policy.FetchLimitNames(), f.Limits.Get)
	if f.Rate > 0 {
		w.line("rate = %d", f.Rate)
	}
}

// rule writes every key, so that a reader need not know what leaving one out says.
func (w *writer) rule(r policy.FetchRule) {
	w.target(r.Host, r.Ports, r.Methods, r.Paths)
	w.line("credential = %s", Quote(r.Credential))
	if len(r.Types) > 0 {
		w.line("types = %s", List(r.Types.Strings()))
	}
	w.line("websocket = %t", r.WebSocket)
	w.line("tls = %s", Quote(r.TLS.String()))
	for _, name := range policy.FetchBoundNames() {
		if n, unit, _ := r.Bounds.Get(name); n > 0 {
			w.limit(name, n, unit)
		}
	}
}

func (w *writer) target(host policy.Host, ranges policy.Ports, methods, paths policy.Globs) {
	ports := ranges.Strings()
	for i, p := range ports {
		if _, err := strconv.Atoi(p); err != nil {
			ports[i] = Quote(p)
		}
	}
	w.line("host = %s", Quote(host.String()))
	w.line("ports = [%s]", strings.Join(ports, ", "))
	w.line("methods = %s", List(methods.Strings()))
	w.line("paths = %s", List(paths.Strings()))
}

func (w *writer) vars(v policy.Vars) {
	if v.Any {
		if w.kind == Profile {
			w.line("# set is any variable")
		}
		return
	}
	if !w.says(len(v.Values) == 0, false) {
		return
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(v.Values)) {
		pairs = append(pairs, bareKey(name)+" = "+Quote(v.Values[name]))
	}
	if len(pairs) == 0 {
		w.line("set = {}")
		return
	}
	w.line("set = { %s }", strings.Join(pairs, ", "))
}

// bareKey leaves out the quotes where TOML lets a key do without.
func bareKey(name string) string {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' &&
			r != '_'
	}
	if name == "" || strings.ContainsFunc(name, bad) {
		return Quote(name)
	}
	return name
}

// List writes texts as a list of strings of TOML.
func List(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = Quote(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Quote writes a text as a basic string of TOML, whose escapes are not those of Go.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

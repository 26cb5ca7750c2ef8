package syntax

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Render returns a policy as text that Parse with the same kind reads back. Keys with their default
// value are left out.
//
// A limit of 0 and, in a profile, "any variable" of env.set cannot be expressed. They are written
// as comments, and Parse reports the missing keys.
func Render(f File) []byte {
	w := &writer{kind: f.Kind, unsaid: f.Kind.unsaid()}
	p := f.Policy.Normal()
	if f.Kind == Ceiling && p.Tools.Native.String() != w.unsaid.Tools.Native.String() {
		// See draft.fill.
		w.unsaid.Tools.Images = nil
	}
	w.line("policy = %d", version)
	if f.Name != "" {
		w.line("name = %s", Quote(f.Name))
	}
	if f.About != "" {
		w.line("about = %s", Quote(f.About))
	}
	says := p.Mounts.String() != w.unsaid.Mounts.String()
	if says && len(p.Mounts) == 0 {
		w.line("mount = []")
	}
	w.section("workspace")
	w.fields("workspace", p)
	if says {
		w.mounts(p.Mounts)
	}
	for _, section := range []string{"limits", "tools"} {
		w.section(section)
		w.fields(section, p)
	}
	w.fetch(p)
	w.section("env")
	w.vars(p.Env.Set)
	w.fields("env", p)
	for _, section := range []string{"syscalls", "audit", "session", "agent"} {
		w.section(section)
		w.fields(section, p)
	}
	w.section("outer")
	if p.Outer.String() != w.unsaid.Outer.String() && !p.Tools.Empty() {
		w.line("allow = %s", List(p.Outer.Words()))
	}
	for _, r := range p.Approve {
		w.approve(r)
	}
	for _, t := range f.Tools {
		w.out.WriteString(toolSection(t))
	}
	return []byte(w.out.String())
}

// approve writes an approval rule, once for each of its tools.
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

// toolSection returns the section of a tool, without keys that narrow nothing.
func toolSection(t policy.ForTool) string {
	w := &writer{kind: Request, unsaid: Request.unsaid(), prefix: "tool." + Quote(t.Tool.String())}
	fmt.Fprintf(&w.out, "\n[%s]\n", w.prefix)
	p := t.Policy.Normal()
	if len(p.Mounts) == 0 {
		w.line("mount = []")
	} else if p.Mounts.String() != w.unsaid.Mounts.String() {
		w.mounts(p.Mounts)
	}
	w.section("limits")
	w.fields("limits", p)
	w.fetch(p)
	return w.out.String()
}

type writer struct {
	kind   Kind
	unsaid policy.Policy // what need not be written
	out    strings.Builder
	// the header of a section that has no key yet
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

// fields writes the fields of a section that differ from their defaults.
func (w *writer) fields(section string, p policy.Policy) {
	for _, f := range policy.Fields(section) {
		if f.Void(p) {
			continue
		}
		switch v, unsaid := f.At(&p), f.At(&w.unsaid); v := v.(type) {
		case *[]string:
			if !slices.Equal(*v, *unsaid.(*[]string)) {
				w.line("%s = %s", f.Name, List(*v))
			}
		case *policy.Globs:
			if v.String() != unsaid.(*policy.Globs).String() {
				w.line("%s = %s", f.Name, List(v.Strings()))
			}
		case *int64:
			// A rate of 0 means no limit.
			if *v > 0 || f.Amount(p) != policy.Unlimited {
				w.limit(f.Name, *v, f.Unit)
			}
		case policy.Word:
			if v.String() != unsaid.(policy.Word).String() {
				w.line("%s = %s", f.Name, Quote(v.String()))
			}
		}
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

func (w *writer) limit(name string, n int64, unit policy.Unit) {
	switch {
	case n == policy.Unlimited:
		if w.kind == Profile {
			w.line("# %s is unlimited", name)
		}
	case n <= 0:
		w.line("# %s is nothing at all", name)
	default:
		w.line("%s = %s", name, Amount(unit, n))
	}
}

// Amount returns n of a unit as files have it.
func Amount(unit policy.Unit, n int64) string {
	if unit == policy.Count || unit == policy.Cores {
		return unit.Format(n)
	}
	return Quote(unit.Format(n))
}

func (w *writer) fetch(p policy.Policy) {
	w.section("fetch")
	rules := func(p policy.Policy) string { return policy.Fetch{Allow: p.Fetch.Allow}.String() }
	says := rules(p) != rules(w.unsaid)
	if says && len(p.Fetch.Allow) == 0 {
		w.line("allow = []")
	}
	w.fields("fetch", p)
	if says {
		for _, r := range p.Fetch.Allow {
			w.section("[fetch.allow]")
			w.rule(r)
		}
	}
	for _, r := range p.Fetch.Deny {
		w.section("[fetch.deny]")
		w.target(r)
	}
	w.section("fetch.limits")
	w.fields("fetch.limits", p)
}

// rule writes a fetch rule with every key, so that a reader need not know the defaults.
func (w *writer) rule(r policy.FetchRule) {
	w.target(r.Target())
	w.line("credential = %s", Quote(r.Credential))
	if len(r.Types) > 0 {
		w.line("types = %s", List(r.Types.Strings()))
	}
	w.line("websocket = %t", r.WebSocket)
	w.line("tls = %s", Quote(r.TLS.String()))
	for _, b := range policy.FetchBoundFields() {
		if n := *b.At(&r.Bounds); n > 0 {
			w.limit(b.Name, n, b.Unit)
		}
	}
}

func (w *writer) target(r policy.FetchDeny) {
	ports := r.Ports.Strings()
	for i, p := range ports {
		if _, err := strconv.Atoi(p); err != nil {
			ports[i] = Quote(p)
		}
	}
	w.line("host = %s", Quote(r.Host.String()))
	w.line("ports = [%s]", strings.Join(ports, ", "))
	w.line("methods = %s", List(r.Methods.Strings()))
	w.line("paths = %s", List(r.Paths.Strings()))
}

func (w *writer) vars(v policy.Vars) {
	if v.String() == w.unsaid.Env.Set.String() {
		return
	}
	if v.Any {
		w.line("# set is any variable")
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

// bareKey returns a key, with quotes only if TOML needs them.
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

// List returns texts as a TOML list of strings.
func List(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = Quote(t)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Quote returns a text as a TOML basic string, whose escapes differ from Go's.
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

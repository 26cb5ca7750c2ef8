package meaning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// Ways in which one policy differs from another.
const (
	Wider    = "wider"    // it reaches something more
	Narrower = "narrower" // it lost something
)

// A Change is one difference of a second policy from a first.
type Change struct {
	Way  string `json:"way"` // Wider or Narrower
	Part string `json:"part"`
	// What is the end of a sentence that begins with "can newly" or "can no longer".
	What string `json:"what"`
	// Example is something that only one of the two policies allows; "" for a limit or list.
	Example string `json:"example,omitempty"`
	// Rule is the rule that grants or denies it.
	Rule string `json:"rule,omitempty"`
	// Tool is the pattern of the tool section; "" for every tool.
	Tool string `json:"tool,omitempty"`
	// Question is the question about Example.
	Question policy.Question `json:"-"`
}

// A Difference is everything in which a second policy differs from a first.
type Difference struct {
	Changes []Change `json:"changes"`
	// Exact is false if there were too many patterns for an exact comparison, so that a change may
	// be missing.
	Exact bool `json:"exact"`
}

// Has reports whether there is a change in the given way.
func (d Difference) Has(way string) bool {
	return slices.ContainsFunc(d.Changes, func(c Change) bool { return c.Way == way })
}

// differ compares two policies and collects the changes.
type differ struct {
	a, b   policy.Policy
	ea, eb policy.Effective
	seen   map[string]bool
	out    Difference
	tool   string
}

// DiffLayers returns in what b differs from a, with their sections for tools. Both must pass Check.
func DiffLayers(a, b policy.Layer) (Difference, error) {
	d := &differ{seen: map[string]bool{}, out: Difference{Exact: true, Changes: []Change{}}}
	if err := d.compare(a.Policy, b.Policy); err != nil {
		return d.out, err
	}
	ea, err := policy.Resolve(a)
	if err != nil {
		return d.out, err
	}
	eb, err := policy.Resolve(b)
	if err != nil {
		return d.out, err
	}
	for _, tool := range d.toolNames(a, b) {
		d.tool = tool
		if err := d.compare(ea.For(tool).Policy(), eb.For(tool).Policy()); err != nil {
			return d.out, err
		}
	}
	return d.out, nil
}

// toolNames returns a tool for each combination of sections that applies to some tool.
func (d *differ) toolNames(layers ...policy.Layer) []string {
	var globs policy.Globs
	for _, l := range layers {
		for _, t := range l.Tools {
			globs = append(globs, t.Tool)
		}
	}
	var out []string
	for _, form := range []shape{shapePair, shapePath} {
		for _, name := range d.cells(form, globPatterns(globs)) {
			if globs.Match(name) {
				out = append(out, name)
			}
		}
	}
	return out
}

func (d *differ) cells(form shape, patterns []pattern) []string {
	return d.cellsWith(form, patterns, func(string) bool { return true })
}

// cellsWith calls cellsWith and clears Exact if the result is not exact.
func (d *differ) cellsWith(form shape, patterns []pattern, good func(string) bool) []string {
	if len(patterns) == 0 {
		patterns = []pattern{globPattern(policy.MustGlob("**"))}
	}
	names, exact := cellsWith(form, patterns, good)
	d.out.Exact = d.out.Exact && exact
	return names
}

func (d *differ) compare(a, b policy.Policy) (err error) {
	d.a, d.b = a.Normal(), b.Normal()
	if d.ea, err = policy.Resolve(policy.Layer{Name: "first", Policy: d.a}); err != nil {
		return err
	}
	if d.eb, err = policy.Resolve(policy.Layer{Name: "second", Policy: d.b}); err != nil {
		return err
	}
	d.workspace()
	d.files()
	d.tools()
	d.fetch()
	d.env()
	d.audit()
	d.session()
	d.outer()
	d.agent()
	d.approve()
	d.limits()
	return nil
}

// add records a change. Only the first example of each way, part, sentence and rule is kept.
func (d *differ) add(way, part, what, rule string, q policy.Question) {
	key := strings.Join([]string{way, part, what, rule}, "\x00")
	if d.seen[key] {
		return
	}
	d.seen[key] = true
	c := Change{Way: way, Part: part, What: what, Rule: rule, Tool: d.tool, Question: q}
	if q != nil {
		c.Example = q.String()
	}
	d.out.Changes = append(d.out.Changes, c)
}

// ask compares the answers of the two policies, records a change, and returns both answers.
func (d *differ) ask(part, what string, q policy.Question) (x, y policy.Decision) {
	x, y = d.ea.Decide(q), d.eb.Decide(q)
	switch a, b := level(x), level(y); {
	case a < b:
		d.add(Wider, part, what+asked(y), y.Rule, q)
	case a > b:
		d.add(Narrower, part, what+asked(x), lost(x, y), q)
	}
	return x, y
}

// level orders answers: refused, allowed if named, allowed after an approval, allowed.
func level(d policy.Decision) int {
	switch {
	case d.Allowed:
		return 3
	case d.Held:
		return 1
	case d.Ask:
		return 2
	}
	return 0
}

func asked(d policy.Decision) string {
	switch {
	case d.Held:
		return ", if somebody names it"
	case d.Ask:
		return ", after a yes"
	}
	return ""
}

// lost returns why a right was lost: the denying rule, or the granting rule that is gone.
func lost(before, after policy.Decision) string {
	for _, taker := range []string{"workspace.", "fetch.deny", "protected", "syscalls."} {
		if strings.HasPrefix(after.Rule, taker) {
			return after.Rule
		}
	}
	return before.Rule
}

func (d *differ) workspace() {
	a, b := d.a.Workspace, d.b.Workspace
	patterns := namePatterns(false, a.Hide, b.Hide)
	if !slices.Equal(a.Protect, b.Protect) {
		patterns = append(patterns, namePatterns(true, a.Protect, b.Protect)...)
	}
	// Built-in protected names need no pattern, and would hide the effect of a policy's own ones.
	for _, name := range d.cellsWith(shapeName, patterns, func(name string) bool {
		_, held := policy.Protected(name)
		return !held
	}) {
		path := policy.WorkspaceDir + "/" + name
		d.ask("read", "read in the workspace", policy.Open{Path: path, Want: policy.Read})
		d.ask("write", "write to the shadow of the workspace",
			policy.Open{Path: path, Want: policy.Write})
		d.ask("commit", "be committed", policy.Commit{Path: name})
	}
}

func namePatterns(fold bool, lists ...[]string) []pattern {
	var out []pattern
	seen := map[string]bool{}
	for _, list := range lists {
		for _, text := range list {
			if !seen[text] {
				seen[text] = true
				out = append(out, namePattern(text, fold, false))
			}
		}
	}
	return out
}

// files compares which paths outside of the workspace are visible, and which may run.
func (d *differ) files() {
	patterns := globPatterns(d.a.Tools.Native, d.b.Tools.Native)
	seen := map[string]bool{policy.WorkspaceDir: true}
	patterns = append(patterns, treePattern(policy.WorkspaceDir))
	for _, m := range slices.Concat(d.a.Mounts, d.b.Mounts) {
		if m.Target != "" && !seen[m.Target] {
			seen[m.Target] = true
			patterns = append(patterns, treePattern(m.Target))
		}
	}
	for _, path := range d.cells(shapePath, patterns) {
		if !paths.Within(policy.WorkspaceDir, path) {
			x, y := d.ask("read", "read", policy.Open{Path: path, Want: policy.Read})
			d.ask("write", "write", policy.Open{Path: path, Want: policy.Write})
			if x.Allowed && y.Allowed {
				d.shows(path)
			}
		}
		d.ask("exec", "execute", policy.Open{Path: path, Want: policy.Exec})
		d.ask("program", "start the program", policy.Native{Path: path})
	}
}

// shows compares which files of the host are visible at a path in both.
func (d *differ) shows(path string) {
	before, after := sources(d.a.Mounts, path), sources(d.b.Mounts, path)
	q := policy.Open{Path: path, Want: policy.Read}
	for host, label := range after {
		if !seenIn(before, host) {
			d.add(Wider, "read", "see "+label, "", q)
		}
	}
	for host, label := range before {
		if !seenIn(after, host) {
			d.add(Narrower, "read", "see "+label, "", q)
		}
	}
}

// anyCache is the source of a cache of any name. For a named cache the name is appended.
const anyCache = "cache "

// seenIn reports whether seen has a file of the host, its directory with everything below, or a
// cache.
func seenIn(seen map[string]string, host string) bool {
	if _, ok := seen[host]; ok {
		return true
	}
	if _, ok := seen[anyCache]; ok && strings.HasPrefix(host, anyCache) {
		return true
	}
	file := strings.TrimPrefix(host, "* ")
	for other := range seen {
		dir, all := strings.CutPrefix(other, "* ")
		if all && host != "" && paths.Within(dir, file) {
			return true
		}
	}
	return false
}

// sources returns the files of the host and the caches that are visible at a path, with their
// descriptions.
func sources(mounts policy.Mounts, path string) map[string]string {
	out := map[string]string{}
	for _, m := range mounts {
		rest, below := strings.CutPrefix(path, m.Target)
		switch {
		case !below || m.Target != "" && rest != "" && rest[0] != '/':
		case m.Access == policy.Cache:
			out[anyCache+m.Name] = m.String()
		case m.Source == "":
			out[""] = "memory of its own at " + m.Target
		case m.Target == "":
			out["* "+m.Source] = "anything below " + m.Source
		default:
			out[strings.TrimSuffix(m.Source, "/")+rest] = m.Source + " at " + m.Target
		}
	}
	return out
}

func (d *differ) tools() {
	for _, name := range d.cells(shapePair, globPatterns(d.a.Tools.Allow, d.b.Tools.Allow)) {
		bundle, command, _ := strings.Cut(name, "/")
		d.ask("tool", "run the tool", policy.Tool{Bundle: bundle, Command: command})
	}
	for _, path := range d.cells(shapePath, globPatterns(d.a.Tools.Modules, d.b.Tools.Modules)) {
		d.ask("module", "run the module", policy.Module{Path: path})
	}
	for _, name := range d.cells(shapeName, globPatterns(d.a.Tools.Images, d.b.Tools.Images)) {
		d.ask("image", "run programs of the image", policy.Image{Name: name, Program: "/bin/sh"})
	}
	for _, g := range policy.SyscallGroups() {
		switch x, y := d.a.Syscalls.Has(g.Name), d.b.Syscalls.Has(g.Name); {
		case y && !x:
			d.add(Wider, "syscalls", "use the system calls of "+g.Name+": "+g.About,
				"syscalls.groups", nil)
		case x && !y:
			d.add(Narrower, "syscalls", "use the system calls of "+g.Name, "syscalls.groups", nil)
		}
	}
}

func (d *differ) agent() {
	for _, b := range policy.AllBindings() {
		if y := d.b.Agent.Has(b.Name); y != d.a.Agent.Has(b.Name) {
			d.add(way(y), "agent", "as an agent, "+b.About, "agent.bindings", nil)
		}
	}
}

func (d *differ) audit() {
	if x, y := d.a.Audit.Files, d.b.Audit.Files; x != y {
		what := map[policy.FileAudit]string{policy.FilesOpens: "open files without a record",
			policy.FilesChanges: "write files without a record of each"}
		d.add(way(y > x), "audit", what[min(x, y)],
			fmt.Sprintf("audit.files = %q", either(y > x, y, x)), nil)
	}
}

func (d *differ) session() {
	if x, y := d.a.Session.Engine, d.b.Session.Engine; x != y {
		what := map[policy.EngineRule]string{
			policy.EngineRequest: "share a process among invocations of a session that asks for it",
			policy.EngineShared:  "share a process among the invocations of every session"}
		d.add(way(y > x), "session", what[max(x, y)], fmt.Sprintf("session.engine = %q", y), nil)
	}
	if x, y := d.a.Session.Loopback, d.b.Session.Loopback; x != y {
		d.add(way(y > x), "session", "reach a server of another invocation of the session",
			fmt.Sprintf("session.loopback = %q", y), nil)
	}
}

func (d *differ) outer() {
	for _, name := range policy.OuterWords() {
		x, y := d.a.Outer.Allows(name), d.b.Outer.Allows(name)
		if x != y && !d.a.Tools.Empty() && !d.b.Tools.Empty() {
			what := "run inside the outer layer " + name
			if name == policy.OuterNone {
				what = "run without an outer layer"
			}
			d.add(way(y), "outer", what, "outer.allow "+d.b.Outer.String(), nil)
		}
	}
}

func (d *differ) approve() {
	for _, action := range policy.ApproveActions() {
		// If one of them does not grant the action, that difference is already recorded.
		if !d.a.GrantsAction(action) || !d.b.GrantsAction(action) {
			continue
		}
		d.approvals(action, d.a.Approve, d.b.Approve, true)
		d.approvals(action, d.b.Approve, d.a.Approve, false)
	}
}

// approvals records the rules for an action in a that b does not cover. more is set if b does more
// without an approval.
func (d *differ) approvals(action string, a, b policy.Approve, more bool) {
	what := map[policy.ApproveMode]string{policy.ApproveNever: "at all",
		policy.ApproveAsk: "without an approval"}
	for _, r := range a.Normal() {
		if r.Action == action && !b.LessEq(policy.Approve{r}) {
			d.add(way(more), "approve", action+" "+what[r.Mode], "approve "+r.String(), nil)
		}
	}
}

func (d *differ) env() {
	for _, name := range d.cells(shapeWord, globPatterns(d.a.Env.Allow, d.b.Env.Allow)) {
		if policy.CheckEnvName(name) == nil {
			d.ask("env", "be given a variable with the run", policy.EnvVar{Name: name})
		}
	}
	for _, name := range d.cells(shapeWord, globPatterns(d.a.Env.Pass, d.b.Env.Pass)) {
		if policy.CheckEnvName(name) != nil {
			continue
		}
		x, y := d.a.Env.Pass.Match(name), d.b.Env.Pass.Match(name)
		if x != y {
			d.add(way(y), "env", "see the caller's variable "+name,
				fmt.Sprintf("env.pass %q", either(y, d.b, d.a).Env.Pass.Strings()), nil)
		}
	}
	d.constants()
}

// constants compares the variables that the policies set.
func (d *differ) constants() {
	x, y := d.a.Env.Set, d.b.Env.Set
	if x.Any != y.Any {
		d.add(way(y.Any), "env", "have every variable set", "env.set", nil)
		return
	}
	for _, side := range []struct {
		way        string
		mine, from map[string]string
	}{{Wider, y.Values, x.Values}, {Narrower, x.Values, y.Values}} {
		for name, value := range side.mine {
			if other, ok := side.from[name]; !ok || other != value {
				d.add(side.way, "env", fmt.Sprintf("find %s = %q", name, value), "env.set", nil)
			}
		}
	}
	// The order of map iteration is random.
	slices.SortStableFunc(d.out.Changes, func(a, b Change) int {
		if a.Rule != "env.set" || b.Rule != "env.set" {
			return 0
		}
		return strings.Compare(a.Way+a.What, b.Way+b.What)
	})
}

func way(wider bool) string { return either(wider, Wider, Narrower) }

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

func (d *differ) limits() {
	for _, f := range policy.Fields("limits", "fetch.limits") {
		x, y := f.Amount(d.a), f.Amount(d.b)
		if x != y && !f.Void(d.a) && !f.Void(d.b) {
			d.add(way(y > x), "limit", fmt.Sprintf("use %s of %s, and not %s", f.Unit.Format(y),
				strings.TrimPrefix(f.Key, "limits."), f.Unit.Format(x)), f.Key, nil)
		}
	}
	if len(d.a.Fetch.Allow) == 0 || len(d.b.Fetch.Allow) == 0 {
		return
	}
	if x, y := d.a.Fetch.Mode, d.b.Fetch.Mode; x != y {
		d.add(way(y > x), "connect", "send what no rule grants, and have it only recorded",
			fmt.Sprintf("fetch.mode = %q", either(y > x, y, x)), nil)
	}
}

func unbounded(n int64) int64 { return either(n <= 0, policy.Unlimited, n) }

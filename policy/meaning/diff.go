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

// A Change is one way in which a second policy means something else than a first.
type Change struct {
	Way  string `json:"way"` // Wider or Narrower
	Part string `json:"part"`
	// What is a sentence's end: after "can newly", or "can no longer".
	What string `json:"what"`
	// Example is something that only one of the two policies answers with yes, "" where a
	// limit or a list speaks for itself.
	Example string `json:"example,omitempty"`
	// That gives it, or takes it away.
	Rule string `json:"rule,omitempty"`
	// Of whose section it is, "" for every tool.
	Tool string `json:"tool,omitempty"`
	// Question is what Example asks.
	Question policy.Question `json:"-"`
}

// A Difference is all that a second policy means otherwise than a first.
type Difference struct {
	Changes []Change `json:"changes"`
	// Exact is unset where the patterns are too many to be run through together, so that
	// something may have been overlooked.
	Exact bool `json:"exact"`
}

// Has reports whether something changed in one way.
func (d Difference) Has(way string) bool {
	return slices.ContainsFunc(d.Changes, func(c Change) bool { return c.Way == way })
}

// differ compares two policies and gathers what changed.
type differ struct {
	a, b   policy.Policy
	ea, eb policy.Effective
	seen   map[string]bool
	out    Difference
	tool   string
}

// DiffLayers says what b means otherwise than a, with their sections of single tools. Both must
// pass Check.
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

// toolNames returns a tool for each way in which the sections apply.
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

// cellsWith is cells, with names that are good where there are some.
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

// add notes a change once: for each way, part, sentence and rule with one example.
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

// ask compares what the two policies answer, and returns both answers.
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

// level orders answers: no, only what is named, after a yes, yes.
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

// lost says what took something away: the rule that denies, or that the one that gave it is gone.
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
	// What is held back in any case needs no pattern of a policy's own, and would hide what one
	// does.
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

// files compares what is seen outside the workspace, and what of it may run.
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

// shows compares which files of the host are seen at a path that both show.
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

// anyCache is the source of a cache of any name. That of one by name has the name after it.
const anyCache = "cache "

// seenIn reports whether a file, all below a directory, or a cache is among what is seen.
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

// sources are what of the host is seen at a path, each with what it is called.
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
		// Where one of them does not grant the action at all, the part that does says so.
		if !d.a.GrantsAction(action) || !d.b.GrantsAction(action) {
			continue
		}
		d.approvals(action, d.a.Approve, d.b.Approve, true)
		d.approvals(action, d.b.Approve, d.a.Approve, false)
	}
}

// approvals says which rules for an action are in a and that b does not cover: more is done without
// an approval under b.
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

// constants compares the variables that the policies set themselves.
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
	// The order of a map is random.
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

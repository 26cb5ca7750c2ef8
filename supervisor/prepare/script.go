package prepare

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/shell"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// A Script is a parsed shell script with the tools of its commands. They are fixed before anything
// runs; the jail can only choose among them.
type Script struct {
	parsed   *shell.Script
	params   runners.Texts
	tools    []Tool // each module once
	commands map[string]runners.Command
	refused  map[string]string
	missing  map[string]string
	steps    []jail.ScriptCommand
	// the full names of the commands' tools, since bundles may share a module
	programs map[string]string
	// the permissions that pulled bundles ask for, by command
	needs map[string]*bundle.Needs
	// Scopes are the fetch rules of commands that have narrower ones than the script.
	Scopes []fetch.SetupLayer
}

// engineThreads is how many threads the engine needs besides one for each waiting tool.
const engineThreads = 12

// script parses the request's script and finds its tools.
func (f *finder) script() (Tool, error) {
	name, text := f.req.Script.Name, f.req.Script.Text
	parsed, err := shell.Parse(name, text)
	if err != nil {
		return Tool{}, problem.New(problem.Usage, "%w", err).
			WithHint("nothing of the script ran; jail sh runs POSIX shell, less job control")
	}
	sc := &Script{parsed: parsed, params: f.req.Args, commands: map[string]runners.Command{},
		programs: map[string]string{}, needs: map[string]*bundle.Needs{},
		refused: map[string]string{}, missing: map[string]string{}}
	return Tool{Name: "sh", command: "sh", Sum: sha256.Sum256([]byte(text)), Script: sc},
		f.findCommands(sc)
}

// findCommands finds the tools that the script may run.
func (f *finder) findCommands(sc *Script) error {
	names, dynamic := sc.parsed.Names()
	for _, name := range names {
		if name == shell.Xargs {
			// xargs runs a command that an argument names.
			dynamic = true
			continue
		}
		if err := f.addCommand(sc, name); err != nil {
			return err
		}
	}
	if dynamic {
		if err := f.addBundles(sc); err != nil {
			return err
		}
	}
	// The tools of a script share one jail, so the rules for each tool apply to all.
	f.policy = f.policy.For(sc.toolNames()...)
	sc.refuseLarge(memory(f.policy))
	sc.list()
	return sc.narrow(f.policy)
}

// addBundles adds every command that the policy allows, for a script that computes command names at
// run time.
func (f *finder) addBundles(sc *Script) error {
	for _, b := range f.p.o.Bundles.List() {
		for _, c := range b.Manifest.Commands {
			d := f.policy.Decide(policy.Tool{Bundle: b.Name, Command: c.Name})
			if sc.commands[c.Name].Name != "" {
				continue
			}
			if d.Ask {
				sc.refused[c.Name] = d.Rule + ": name it in the script, so that it can be approved"
			}
			if !d.Allowed {
				continue
			}
			if err := f.addCommand(sc, c.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// addCommand adds the tool of a command. A refused or missing one is recorded, and is an error only
// when the script runs it.
func (f *finder) addCommand(sc *Script, name string) error {
	// The needs of a bundle narrow the policy of its own commands alone: see narrow.
	one := *f
	t, err := one.findTool(name)
	var missing *bundle.NotFoundError
	switch e := problem.From(err); {
	case err == nil:
		if one.asked {
			f.asks = append(f.asks, Asked{t.Name, t.digest()})
		}
		sc.add(name, t)
		return nil
	case errors.As(err, &missing), e.Code == problem.NotFound:
		sc.missing[name] = e.Message
		return nil
	case e.Code == problem.Refused && len(e.Denied) > 0:
		sc.refused[name] = e.Denied[0].Rule
		// The rule of a refused import names the remedy itself.
		if e.Hint != "" && e.Denied[0].Layer == "policy" {
			sc.refused[name] += ": " + e.Hint
		}
		return nil
	}
	return err
}

func (sc *Script) add(name string, t Tool) {
	place := -1
	for i := range sc.tools {
		if sc.tools[i].Sum == t.Sum {
			place = i
		}
	}
	if place < 0 {
		place = len(sc.tools)
		sc.tools = append(sc.tools, t)
	} else if t.module != nil {
		t.module.Close()
	}
	sc.commands[name] = runners.Command{Module: place, Name: t.command, Layout: t.layout}
	sc.programs[name] = t.Name
	if t.needs != nil {
		sc.needs[name] = t.needs
	}
}

// refuseLarge moves commands whose modules need more initial memory than limit to the refused ones.
func (sc *Script) refuseLarge(limit int64) {
	for name, c := range sc.commands {
		e := (*problem.Error)(nil)
		if errors.As(sc.tools[c.Module].fits(limit), &e) {
			sc.refused[name] = e.Message
			delete(sc.commands, name)
		}
	}
}

// list fills in the steps: for each command of the text its tool, or why it is refused.
func (sc *Script) list() {
	for _, c := range sc.parsed.Commands() {
		step := jail.ScriptCommand{Line: c.Line, Column: c.Col,
			Text: runlog.Readable([]string{c.Text})[0]}
		switch rule, refused := sc.refused[c.Name]; {
		case c.Name == shell.Xargs:
			step.Tool = "the shell's own"
		case refused:
			step.Refused = rule
		case sc.missing[c.Name] != "":
			step.Refused = sc.missing[c.Name]
		case c.Name != "":
			step.Tool = sc.programs[c.Name]
			step.Needs = sc.kept(c.Name)
		}
		sc.steps = append(sc.steps, step)
	}
}

// toolNames returns the full names of the tools that the script may run.
func (sc *Script) toolNames() []string {
	var out []string
	for _, program := range sc.programs {
		out = append(out, program)
	}
	return out
}

// order returns the order that runs the script. inv is the invocation of each command.
func (sc *Script) order(inv runners.Invocation, pids int64) runners.Order {
	inv.Args, inv.CacheDir = runners.Texts{"sh"}, jail.CacheDir
	return runners.Order{Invocation: inv, Script: &runners.Script{Name: sc.parsed.Name,
		Text: sc.parsed.Text, Params: sc.params,
		Commands: sc.commands, Refused: sc.refused,
		Concurrent: int(max(pids-engineThreads, 1))}}
}

// maxScriptText is how many bytes of a script are recorded. The digest covers all of it.
const maxScriptText = 4 << 10

func (sc *Script) argv() []string {
	text := sc.parsed.Text
	if len(text) > maxScriptText {
		text = text[:maxScriptText] + "…"
	}
	return append([]string{"sh", "-c", text, sc.parsed.Name}, sc.params...)
}

// Executed returns an audit event for each tool that the script ran, with the count. The report
// comes from the jail, so names that the script does not have are ignored.
func (sc *Script) Executed(rep *runners.Report) (all []audit.Event) {
	if rep == nil || sc == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, x := range rep.Executed {
		c, ok := sc.commands[x.Name]
		if !ok || seen[x.Name] || x.Count < 1 {
			continue
		}
		seen[x.Name] = true
		all = append(all, audit.Exec{Program: sc.programs[x.Name],
			Digest: sc.tools[c.Module].digest(), PID: 1, Count: x.Count})
	}
	return all
}

// narrowed adds the needs of a pulled bundle as a last layer, which can only narrow. The workspace
// and tmpfs mounts stay in any case.
func narrowed(eff policy.Effective, name string, needs *bundle.Needs) (policy.Effective, error) {
	if needs == nil {
		return eff, nil
	}
	request := policy.NewRequest()
	for _, host := range needs.Hosts {
		if err := request.Fetch(host); err != nil {
			return eff, err
		}
	}
	p := request.Policy()
	if len(needs.Hosts) == 0 {
		p.Fetch = p.Fetch.Meet(policy.Fetch{Limits: policy.TopFetchLimits(),
			Mode: policy.FetchReport})
	}
	p.Mounts = nil
	for _, m := range eff.Policy().Mounts {
		if m.Access == policy.Tmpfs || needed(needs, m.Target) {
			p.Mounts = append(p.Mounts, m)
		}
	}
	return policy.Resolve(append(eff.Layers(), policy.Layer{Name: "bundle " + name,
		Source: bundle.ManifestFile, Policy: p})...)
}

// needed reports whether a bundle asks for a mount: by its target, or by a path above or below the
// target.
func needed(needs *bundle.Needs, target string) bool {
	return slices.ContainsFunc(needs.Mounts, func(path string) bool {
		return paths.Within(path, target) || paths.Within(target, path)
	})
}

// narrow limits each command of a pulled bundle to the hosts and mounts that its bundle asks for,
// as in a run of its own. The proxy outside enforces the hosts of each scope; which command asks,
// and which mounts it sees, is decided by the engine's process in the jail.
func (sc *Script) narrow(eff policy.Effective) error {
	scopes := map[string]int{}
	for name, c := range sc.commands {
		needs := sc.needs[name]
		if needs == nil {
			continue
		}
		program := sc.programs[name]
		owner, _, _ := strings.Cut(program, "/")
		own, err := narrowed(eff, owner, needs)
		if err != nil {
			return problem.New(problem.Failed, "tool %s: %w", program, err)
		}
		layers := own.Layers()
		layer := layers[len(layers)-1]
		c.Scope = runners.NoFetch
		if len(own.Policy().Fetch.Allow) > 0 {
			if scopes[owner] == 0 {
				sc.Scopes = append(sc.Scopes, fetch.SetupLayer{Name: layer.Name,
					Source: layer.Source, Fetch: layer.Policy.Fetch})
				scopes[owner] = len(sc.Scopes)
			}
			c.Scope = scopes[owner]
		}
		for _, m := range eff.Policy().Mounts {
			if m.Access != policy.Tmpfs && !needed(needs, m.Target) {
				c.Unseen = append(c.Unseen, m.Target)
			}
		}
		sc.commands[name] = c
	}
	return nil
}

// kept returns the needs of a command of a pulled bundle for the plan. nil means that only the
// script's policy limits the command.
func (sc *Script) kept(name string) *jail.ScriptNeeds {
	needs := sc.needs[name]
	if needs == nil {
		return nil
	}
	return &jail.ScriptNeeds{Hosts: append([]string{}, needs.Hosts...), Mounts: append([]string{},
		needs.Mounts...)}
}

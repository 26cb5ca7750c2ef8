package meaning

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// A Source is a layer of a run with its file. File is nil for the flags of a run, and for a host
// without a ceiling.
type Source struct {
	Layer policy.Layer
	File  *syntax.File
}

// A Verdict is the answer of one layer alone.
type Verdict struct {
	Layer   string           `json:"layer"`
	Source  string           `json:"source"`
	Allowed bool             `json:"allowed"`
	Ask     bool             `json:"ask,omitempty"`
	Rule    string           `json:"rule"`
	At      *syntax.Position `json:"at,omitempty"` // of the rule
	Value   string           `json:"value,omitempty"`
}

// An Answer is whether something is allowed, by which layer and rule, and what would change it.
type Answer struct {
	Question string `json:"question"`
	Allowed  bool   `json:"allowed"`
	// Ask is set if it needs an approval.
	Ask bool `json:"ask,omitempty"`
	// Layer, Rule and At are the layer, rule and position that decided.
	Layer  string           `json:"layer"`
	Rule   string           `json:"rule"`
	At     *syntax.Position `json:"at,omitempty"`
	Value  string           `json:"value,omitempty"` // of a limit
	Layers []Verdict        `json:"layers"`
	// Change is the least that would reverse the answer: a step for each layer that must change.
	Change []Step `json:"change,omitempty"`
	// Internal is the operator's entry that makes the host of a connect internal; "" for none.
	Internal string `json:"internal,omitempty"`
}

// A Step is a change to one layer.
type Step struct {
	Layer string `json:"layer"`
	// File is the file to change; "" if the layer has none.
	File  string           `json:"file,omitempty"`
	What  string           `json:"what"` // a sentence
	Lines []string         `json:"lines,omitempty"`
	At    *syntax.Position `json:"at,omitempty"`
	// Verified is set if the change was tried and changes the layer's answer.
	Verified bool        `json:"verified"`
	edit     syntax.Edit // what was tried
}

// Edit returns the change as an edit of the file's text. ok is false if there is none.
func (s Step) Edit() (e syntax.Edit, ok bool) { return s.edit, s.edit.Key != "" }

// commandLine is the source of the layer of a run's flags.
const commandLine = "command line"

// Why returns the answer to a question about a run with these layers.
func Why(a Ask, sources []Source) (Answer, error) {
	eff, err := resolveAll(sources)
	if err != nil {
		return Answer{}, err
	}
	if a.Limit != "" {
		return whyLimit(a, sources, eff), nil
	}
	q, d := decide(a, eff)
	if l, unnamed := unnamed(a, q, d, eff); unnamed {
		d = policy.Decision{Layer: l.Name, Source: l.Source, Rule: policy.RuleInternal}
	}
	out := Answer{Internal: a.Internal, Question: a.String(), Allowed: d.Allowed, Ask: d.Ask,
		Layer: d.Layer, Rule: d.Rule}
	for _, s := range sources {
		v, own := verdict(q, s)
		if d.Rule == policy.RuleInternal && v.Layer == d.Layer {
			v.Allowed, v.Rule, own = false, d.Rule, d
		}
		out.Layers = append(out.Layers, v)
		// If all layers allow it, the profile's rule is named, since the others only let it
		// through.
		if v.Layer == d.Layer || d.Allowed && s.isProfile() {
			out.Layer, out.Rule, out.At = v.Layer, v.Rule, v.At
		}
		flag := s.File == nil && !own.Ask && s.Layer.Source == commandLine
		if d.Allowed == own.Allowed && (s.File != nil || flag && !d.Allowed) {
			out.Change = append(out.Change, turn(q, s, own, v))
		}
	}
	// If all layers allow it, one change is enough to refuse it.
	if d.Allowed && len(out.Change) > 1 {
		out.Change = out.Change[len(out.Change)-1:]
	}
	return out, nil
}

// unnamed returns the layer that grants an internal host only by the host *.
func unnamed(a Ask, q policy.Question, d policy.Decision, eff policy.Effective) (policy.Layer,
	bool) {
	connect, ok := q.(policy.Connect)
	if !ok || a.Internal == "" || !d.Allowed {
		return policy.Layer{}, false
	}
	return eff.Unnamed(connect)
}

func resolveAll(sources []Source) (policy.Effective, error) {
	var layers []policy.Layer
	for _, s := range sources {
		layers = append(layers, s.Layer)
	}
	return policy.Resolve(layers...)
}

// decide returns the first allowed alternative of a question, and its decision. If none is allowed,
// it returns the one about a bundle's command, else the last.
func decide(a Ask, eff policy.Effective) (q policy.Question, d policy.Decision) {
	for _, way := range a.Any {
		x, answer := decideWay(way, eff)
		if answer.Allowed {
			return x, answer
		}
		if _, bundled := q.(policy.Tool); !bundled {
			q, d = x, answer
		}
	}
	return q, d
}

// decideWay returns the first question of a way that is refused, else the first question.
func decideWay(way []policy.Question, eff policy.Effective) (policy.Question, policy.Decision) {
	for _, q := range way {
		if d := eff.Decide(q); !d.Allowed {
			return q, d
		}
	}
	return way[0], eff.Decide(way[0])
}

func verdict(q policy.Question, s Source) (Verdict, policy.Decision) {
	v := Verdict{Layer: s.Layer.Name, Source: s.Layer.Source}
	eff, err := policy.Resolve(s.Layer)
	if err != nil {
		v.Rule = err.Error()
		return v, policy.Decision{}
	}
	d := eff.Decide(q)
	v.Allowed, v.Ask, v.Rule = d.Allowed, d.Ask, d.Rule
	v.At = s.place(d.Rule)
	return v, d
}

// place returns the position of a rule, as a Decision names it, in the file, or nil.
func (s Source) place(rule string) *syntax.Position {
	if s.File == nil {
		return nil
	}
	key, _, _ := strings.Cut(rule, " = ")
	for _, k := range []string{rule, key, firstQuoted(rule)} {
		for _, prefix := range s.prefixes() {
			if at, ok := s.File.At[prefix+k]; ok {
				return &at
			}
		}
	}
	return nil
}

// prefixes returns the prefixes of the layer's keys: the tool section's, or "".
func (s Source) prefixes() []string {
	if _, section, ok := strings.Cut(s.Layer.Name, ", tool "); ok {
		return []string{"tool." + section + "."}
	}
	return []string{""}
}

// firstQuoted returns a rule up to its first quoted item.
func firstQuoted(rule string) string {
	i := strings.IndexByte(rule, '"')
	if i < 0 {
		return rule
	}
	quoted, err := strconv.QuotedPrefix(rule[i:])
	if err != nil {
		return rule
	}
	return rule[:i] + quoted
}

// turn returns the smallest change to one layer that reverses its answer.
func turn(q policy.Question, s Source, d policy.Decision, v Verdict) Step {
	step := Step{Layer: s.Layer.Name, At: v.At}
	if s.File == nil {
		step.What = "leave out the flag that narrows it"
		return step
	}
	step.File = s.File.Source
	if at := v.At; at != nil && !strings.HasPrefix(d.Rule, "protected") {
		step.File = at.File
	}
	if _, _, section := strings.Cut(s.Layer.Name, ", tool "); section {
		step.What = "change the section of that tool"
		return step
	}
	if d.Allowed {
		step.What = "to refuse it, " + refusing(q)
		step.edit = refuseEdit(q)
	} else {
		step.edit, step.What = allowEdit(q, d, s.Layer.Policy)
	}
	if step.edit.Key != "" {
		if step.File != s.File.Source && !step.edit.Table {
			// An edit of the file itself takes precedence over included files.
			step.File = s.File.Source
		}
		step.Lines = step.edit.Lines()
		step.Verified = tried(q, s, step.edit, d.Allowed)
	}
	return step
}

// tried reports whether an edit reverses the answer of its layer.
func tried(q policy.Question, s Source, e syntax.Edit, allowed bool) bool {
	after, err := e.ApplyTo(s.Layer.Policy)
	if err != nil {
		return false
	}
	eff, err := policy.Resolve(policy.Layer{Name: s.Layer.Name, Policy: after})
	return err == nil && eff.Decide(q).Allowed != allowed
}

func refusing(q policy.Question) string {
	switch q.(type) {
	case policy.Open, policy.Commit:
		return "hide it, or take out the rule that gives it"
	case policy.Connect:
		return "deny it, or take out the rule that gives it"
	}
	return "take out the rule that gives it, or list what stays"
}

func refuseEdit(q policy.Question) syntax.Edit {
	switch q := q.(type) {
	case policy.Open:
		if rel, ok := strings.CutPrefix(q.Path, policy.WorkspaceDir+"/"); ok {
			return syntax.AddItem("workspace", "hide", "/"+rel)
		}
	case policy.Commit:
		return syntax.AddItem("workspace", "protect", "/"+q.Path)
	case policy.Connect:
		return syntax.AddDeny(q)
	}
	return syntax.Edit{}
}

// allowEdit returns the smallest edit that makes a profile grant something, and its description.
func allowEdit(q policy.Question, d policy.Decision, p policy.Policy) (syntax.Edit, string) {
	const add = "to allow it, add"
	switch q := q.(type) {
	case policy.Open:
		rel, inside := strings.CutPrefix(q.Path, policy.WorkspaceDir)
		switch {
		case inside && (rel == "" || rel[0] == '/') && strings.HasPrefix(d.Rule, "workspace.hide"):
			return syntax.Edit{}, "take that pattern out of workspace.hide"
		case inside && (rel == "" || rel[0] == '/') && q.Want == policy.Exec:
			return syntax.AddItem("tools", "native", q.Path), add
		case inside && (rel == "" || rel[0] == '/'):
			return syntax.SetKey("workspace", "access", map[bool]string{true: "shadow",
				false: "read"}[q.Want&policy.Write != 0]), "to allow it, set"
		}
		access := q.Want | policy.Read
		return syntax.AddMount(policy.Mount{Source: q.Path, Target: q.Path, Access: access}), add
	case policy.Tool:
		if !p.Syscalls.Has(policy.GroupWASI) {
			return syntax.AddItem("syscalls", "groups", policy.GroupWASI), add
		}
		return syntax.AddItem("tools", "allow", q.Bundle+"/"+q.Command), add
	case policy.Module:
		return syntax.AddItem("tools", "modules", q.Path), add
	case policy.Native:
		if p.Tools.Native.Match(q.Path) {
			return syntax.AddItem("syscalls", "groups", policy.GroupNative), add
		}
		return syntax.AddItem("tools", "native", q.Path), add
	case policy.Image:
		if p.Tools.Images.Match(q.Name) {
			return syntax.AddItem("syscalls", "groups", policy.GroupNative), add
		}
		return syntax.AddItem("tools", "images", q.Name), add
	case policy.Connect:
		if strings.HasPrefix(d.Rule, "fetch.deny") {
			return syntax.Edit{}, "take that rule out of fetch.deny"
		}
		if strings.HasPrefix(d.Rule, "fetch.allow") && !strings.Contains(d.Rule, "two rules") {
			return syntax.AddRule(q), add
		}
		return syntax.Edit{}, "nothing: no policy may grant it"
	case policy.Commit:
		switch {
		case strings.HasPrefix(d.Rule, "workspace.hide"):
			return syntax.Edit{}, "take that pattern out of workspace.hide"
		case d.Held:
			return syntax.Edit{},
				"nothing but the yes of somebody who names it: jail commit --include-protected ID " +
					"-- " + ShellWord(q.Path)
		case strings.HasPrefix(d.Rule, "workspace.access"):
			return syntax.SetKey("workspace", "access", "shadow"), "first set"
		}
		return syntax.SetKey("workspace", "commit", "auto"), "to allow it without anyone's yes, set"
	case policy.EnvVar:
		return syntax.AddItem("env", "allow", q.Name), add
	}
	return syntax.Edit{}, "nothing is known that would"
}

func whyLimit(a Ask, sources []Source, eff policy.Effective) Answer {
	limit := limitOf(a.Limit)
	value := limit.Amount(eff.Policy())
	rule := "no layer bounds it"
	if n, byDefault := eff.Policy().Limits.InForce(a.Limit); byDefault {
		value, rule = n, "no layer bounds it, and this is the default"
	}
	out := Answer{Question: a.String(), Allowed: value > 0 && (a.Amount == 0 || a.Amount <= value),
		Value: limit.Unit.Format(value), Rule: rule}
	for _, s := range sources {
		n := limit.Amount(s.Layer.Policy)
		v := Verdict{Layer: s.Layer.Name, Source: s.Layer.Source, Allowed: a.Amount <= n && n > 0,
			Value: limit.Unit.Format(n), Rule: limit.Key + " = " + limit.Unit.Format(n)}
		if n != policy.Unlimited {
			v.At = s.place(limit.Key)
			if out.Layer == "" && n == value {
				out.Layer, out.Rule, out.At = v.Layer, v.Rule, v.At
			}
		}
		out.Layers = append(out.Layers, v)
		if !v.Allowed && !out.Allowed {
			step := Step{Layer: v.Layer, What: "to allow it, set", At: v.At}
			if s.File == nil {
				step.What = "leave out --limit " + a.Limit
			} else {
				step.File = s.File.Source
				step.edit = syntax.SetLimit(limit.Section, limit.Name, limit.Unit, max(a.Amount, 1))
				step.Lines, step.Verified = step.edit.Lines(), true
			}
			out.Change = append(out.Change, step)
		}
	}
	return out
}

// Text returns the answer as text for a person.
func (a Answer) Text() string {
	var b strings.Builder
	word := map[bool]string{true: "yes", false: "no"}
	switch {
	case a.Value != "":
		fmt.Fprintf(&b, "%s: %s, %s\n", a.Question, word[a.Allowed], a.Value)
	case a.Ask:
		fmt.Fprintf(&b, "%s: after a yes\n", a.Question)
	default:
		fmt.Fprintf(&b, "%s: %s\n", a.Question, word[a.Allowed])
	}
	if a.Layer != "" {
		fmt.Fprintf(&b, "  by %s: %s%s\n", a.Layer, a.Rule, atText(a.At))
	}
	if a.Internal != "" {
		fmt.Fprintf(&b, "  internal: %s\n", a.Internal)
	}
	for _, v := range a.Layers {
		answer := word[v.Allowed]
		if v.Ask {
			answer = "after a yes"
		}
		fmt.Fprintf(&b, "  %s (%s): %s, %s%s\n", v.Layer, v.Source, answer, v.Rule, atText(v.At))
	}
	for _, s := range a.Change {
		where := s.Layer
		if s.File != "" {
			where += ", " + s.File
		}
		fmt.Fprintf(&b, "in %s: %s\n", where, s.What)
		for _, line := range s.Lines {
			b.WriteString("    " + line + "\n")
		}
	}
	return b.String()
}

func atText(at *syntax.Position) string {
	if at == nil {
		return ""
	}
	return " (" + at.File + ":" + strconv.Itoa(at.Line) + ")"
}

// ShellWord returns text quoted as one word for a POSIX shell.
func ShellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("_@%+=:,./-", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

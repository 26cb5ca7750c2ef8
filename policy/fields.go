package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A Field is a key of a policy file whose value is a word, a limit, or a list of names or patterns.
// Code that reads, writes, compares or explains policies iterates over the fields, and handles only
// other keys itself: mounts, rules, variables and outer layers.
type Field struct {
	// For the key "fetch.limits.timeout" the section is "fetch.limits" and the name "timeout".
	Key, Section, Name string
	// At returns a pointer to the value in a policy: a *[]string, a *Globs, a *int64 for a limit,
	// or a Word. It returns nil for a key that is no field.
	At func(*Policy) any
	// Check and CheckGlob return an error for a bad item of a list, or nil.
	Check     func(name string) error
	CheckGlob func(Glob) error
	// Unit and About are the unit and the description of a limit.
	Unit  Unit
	About string
}

// checkName returns an error for a bad pattern of workspace names, or nil.
func checkName(pattern string) error { return CheckNames([]string{pattern}) }

// fields returns the fields, in the order in which they are written and shown.
var fields = sync.OnceValue(func() []Field {
	all := slices.Concat([]Field{
		{Key: "workspace.access", At: func(p *Policy) any { return &p.Workspace.Access }},
		{Key: "workspace.target", At: func(p *Policy) any { return &p.Workspace.Target }},
		{Key: "workspace.hide", At: func(p *Policy) any { return &p.Workspace.Hide },
			Check: checkName},
		{Key: "workspace.protect", At: func(p *Policy) any { return &p.Workspace.Protect },
			Check: checkName},
		{Key: "workspace.commit", At: func(p *Policy) any { return &p.Workspace.Commit }},
	}, limitsOf("limits.", limitFields, func(p *Policy) *Limits { return &p.Limits }), []Field{
		{Key: "tools.allow", At: func(p *Policy) any { return &p.Tools.Allow },
			CheckGlob: CheckToolGlob},
		{Key: "tools.modules", At: func(p *Policy) any { return &p.Tools.Modules },
			CheckGlob: checkModuleGlob},
		{Key: "tools.native", At: func(p *Policy) any { return &p.Tools.Native },
			CheckGlob: CheckNativeGlob},
		{Key: "tools.images", At: func(p *Policy) any { return &p.Tools.Images },
			CheckGlob: checkImageGlob},
		{Key: "fetch.mode", At: func(p *Policy) any { return &p.Fetch.Mode }},
	}, limitsOf("fetch.limits.", fetchLimitFields,
		func(p *Policy) *FetchLimits { return &p.Fetch.Limits }), []Field{
		{Key: fetchRate, At: func(p *Policy) any { return &p.Fetch.Rate },
			About: "requests that may start in one second; unlimited if missing"},
		{Key: "env.pass", At: func(p *Policy) any { return &p.Env.Pass }, CheckGlob: checkEnvGlob},
		{Key: "env.allow", At: func(p *Policy) any { return &p.Env.Allow }, CheckGlob: checkEnvGlob},
		{Key: "syscalls.groups", At: func(p *Policy) any { return &p.Syscalls.Groups },
			Check: CheckSyscallGroup},
		{Key: "audit.files", At: func(p *Policy) any { return &p.Audit.Files }},
		{Key: "session.engine", At: func(p *Policy) any { return &p.Session.Engine }},
		{Key: "session.loopback", At: func(p *Policy) any { return &p.Session.Loopback }},
		{Key: "agent.bindings", At: func(p *Policy) any { return &p.Agent.Bindings },
			Check: CheckBinding},
	})
	for i, f := range all {
		dot := strings.LastIndexByte(f.Key, '.')
		all[i].Section, all[i].Name = f.Key[:dot], f.Key[dot+1:]
	}
	return all
})

// fetchRate is the key of the only limit for which 0 means unlimited.
const fetchRate = "fetch.limits.rate"

func limitsOf[T any](prefix string, limits []LimitField[T], of func(*Policy) *T) (out []Field) {
	for _, l := range limits {
		out = append(out, Field{Key: prefix + l.Name, Unit: l.Unit, About: l.About,
			At: func(p *Policy) any { return l.At(of(p)) }})
	}
	return out
}

// Fields returns the fields of the given sections, or all if none is given.
func Fields(sections ...string) []Field {
	return slices.DeleteFunc(slices.Clone(fields()), func(f Field) bool {
		return len(sections) > 0 && !slices.Contains(sections, f.Section)
	})
}

// FieldOf returns the field of a key.
func FieldOf(key string) Field {
	for _, f := range fields() {
		if f.Key == key {
			return f
		}
	}
	return Field{At: func(*Policy) any { return nil }}
}

// Copy sets the field in to to the value that from has.
func (f Field) Copy(to *Policy, from Policy) {
	switch to, from := f.At(to), f.At(&from); to := to.(type) {
	case *[]string:
		*to = *from.(*[]string)
	case *Globs:
		*to = *from.(*Globs)
	case *int64:
		*to = *from.(*int64)
	case Word:
		to.take(from)
	}
}

// Amount returns the value of a limit in p, or Unlimited if p sets none.
func (f Field) Amount(p Policy) int64 {
	n := *f.At(&p).(*int64)
	if f.Key == fetchRate && n <= 0 {
		return Unlimited
	}
	return n
}

// Void reports whether the field has no effect in p: without a workspace there is no target,
// without a shadow nothing to commit, and without a fetch rule nothing to bound.
func (f Field) Void(p Policy) bool {
	switch f.Key {
	case "workspace.target":
		return p.Workspace.Access == WorkspaceNone
	case "workspace.commit":
		return p.Workspace.Access != WorkspaceShadow
	}
	return strings.HasPrefix(f.Section, "fetch") && len(p.Fetch.Allow) == 0
}

func checkFields(p Policy) (out []error) {
	for _, f := range fields() {
		switch v := f.At(&p).(type) {
		case *[]string:
			out = append(out, tooMany(f.Key, len(*v))...)
			for _, name := range *v {
				out = append(out, keyed(f.Key, f.Check(name))...)
			}
		case *Globs:
			out = append(out, tooMany(f.Key, len(*v))...)
			for _, g := range *v {
				out = append(out, keyed(f.Key, f.CheckGlob(g))...)
			}
		case *int64:
			if *v < 0 {
				out = append(out, fmt.Errorf("%s is negative", f.Key))
			}
		case Word:
			if !v.defined() {
				out = append(out, fmt.Errorf("%s is no value there is", f.Key))
			}
		}
	}
	return out
}

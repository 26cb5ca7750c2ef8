package policytest

import (
	"math"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
)

// The generators draw from small alphabets, so that what they draw overlaps often.

// Path draws a name with slashes, of the alphabet that the globs use.
func Path() *rapid.Generator[string] {
	name := rapid.SampledFrom([]string{"a", "b", "ab", "ba", "aba", "abab", "aab", "bb", "c"})
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(name, 1, 5).Draw(t, "names"), "/")
	})
}

// Glob draws a glob.
func Glob() *rapid.Generator[policy.Glob] {
	whole := rapid.SampledFrom([]string{"a", "b", "ab", "aba", "*", "*", "*"})
	partial := rapid.SampledFrom([]string{"a*", "*a", "ab*", "*ba", "a*a", "a*b", "ab*ba", "aba*"})
	return rapid.Custom(func(t *rapid.T) policy.Glob {
		parts := rapid.SliceOfN(whole, 0, 4).Draw(t, "segments")
		for range rapid.IntRange(0, 2).Draw(t, "partial") {
			if len(parts) > 0 {
				parts[rapid.IntRange(0, len(parts)-1).Draw(t, "at")] = partial.Draw(t, "with star")
			}
		}
		if len(parts) == 0 || rapid.Bool().Draw(t, "deep") {
			parts = slices.Insert(parts, rapid.IntRange(0, len(parts)).Draw(t, "where"), "**")
		}
		return policy.MustGlob(strings.Join(parts, "/"))
	})
}

// Globs draws a set of globs.
func Globs() *rapid.Generator[policy.Globs] { return globsOf(Glob()) }

func globsOf(g *rapid.Generator[policy.Glob]) *rapid.Generator[policy.Globs] {
	return rapid.Map(rapid.SliceOfN(g, 0, 3), func(s []policy.Glob) policy.Globs { return s })
}

func globsFrom(texts ...string) *rapid.Generator[policy.Globs] {
	return globsOf(rapid.Map(rapid.SampledFrom(texts), policy.MustGlob))
}

// Host draws a host pattern, sometimes one that stands for nothing.
func Host() *rapid.Generator[policy.Host] {
	texts := []string{
		"", "*", "example.com", "a.example.com", "b.a.example.com", "evil-example.com",
		"example.com.evil.test",
		"*.example.com", "*.a.example.com", "**.example.com", "**.a.example.com", "*.evil.test",
		"**.com.evil.test",
	}
	return rapid.Map(rapid.SampledFrom(texts), func(s string) policy.Host {
		h, _ := policy.ParseHost(s)
		return h
	})
}

// Ports draws a set of ports.
func Ports() *rapid.Generator[policy.Ports] {
	one := rapid.SampledFrom([]policy.PortRange{{Low: 80, High: 80}, {Low: 443, High: 443},
		{Low: 80, High: 90}, {Low: 85, High: 443}, {Low: 91, High: 100}, {Low: 1, High: 65535}})
	return rapid.Map(rapid.SliceOfN(one, 0, 3),
		func(s []policy.PortRange) policy.Ports { return s })
}

// fetchRule draws a rule, sometimes one that grants nothing.
func fetchRule() *rapid.Generator[policy.FetchRule] {
	return rapid.Custom(func(t *rapid.T) policy.FetchRule {
		return policy.FetchRule{
			Host:    Host().Draw(t, "host"),
			Ports:   Ports().Draw(t, "ports"),
			Methods: globsFrom("GET", "HEAD", "POST", "*").Draw(t, "methods"),
			Paths: globsFrom("/**", "/simple/**", "/simple/*", "/simple/a", "/**/a",
				"**").Draw(t, "paths"),
			Credential: rapid.SampledFrom([]string{"", "one", "two", "*"}).Draw(t, "credential"),
			Types:      globsFrom("text/*", "*/html", "text/html", "**").Draw(t, "types"),
			WebSocket:  rapid.Bool().Draw(t, "websocket"),
			TLS:        policy.TLSMode(rapid.IntRange(0, 1).Draw(t, "tls")),
			Bounds:     fetchBounds().Draw(t, "bounds"),
		}
	})
}

// fetchBounds draws bounds of a rule, of which 0 is none.
func fetchBounds() *rapid.Generator[policy.FetchBounds] {
	few := rapid.SampledFrom([]int64{0, 0, 1, 2, 1 << 30})
	return rapid.Custom(func(t *rapid.T) policy.FetchBounds {
		return policy.FetchBounds{RequestSize: few.Draw(t, "request_size"),
			Requests: few.Draw(t, "requests"), Rate: few.Draw(t, "rate")}
	})
}

// fetchDeny draws a rule that takes away.
func fetchDeny() *rapid.Generator[policy.FetchDeny] {
	return rapid.Custom(func(t *rapid.T) policy.FetchDeny {
		r := fetchRule().Draw(t, "rule")
		return policy.FetchDeny{Host: r.Host, Ports: r.Ports, Methods: r.Methods, Paths: r.Paths}
	})
}

// Fetch draws a fetch part.
func Fetch() *rapid.Generator[policy.Fetch] {
	return rapid.Custom(func(t *rapid.T) policy.Fetch {
		return policy.Fetch{
			Allow:  rapid.SliceOfN(fetchRule(), 0, 2).Draw(t, "allow"),
			Limits: FetchLimits().Draw(t, "limits"),
			Deny:   rapid.SliceOfN(fetchDeny(), 0, 2).Draw(t, "deny"),
			Rate:   rapid.SampledFrom([]int64{0, 1, 50}).Draw(t, "rate"),
			Mode:   policy.FetchMode(rapid.IntRange(0, 1).Draw(t, "mode")),
		}
	})
}

func amount() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.SampledFrom([]int64{0, 1, 2, math.MaxInt64}),
		rapid.Int64Range(0, 1<<40))
}

// Limits draws limits.
func Limits() *rapid.Generator[policy.Limits] {
	return rapid.Custom(func(t *rapid.T) (l policy.Limits) {
		for _, name := range policy.LimitNames() {
			l.Put(name, amount().Draw(t, name))
		}
		return l
	})
}

// FetchLimits draws fetch limits.
func FetchLimits() *rapid.Generator[policy.FetchLimits] {
	return rapid.Custom(func(t *rapid.T) (l policy.FetchLimits) {
		for _, name := range policy.FetchLimitNames() {
			l.Put(name, amount().Draw(t, name))
		}
		return l
	})
}

// Workspace draws a workspace part.
func Workspace() *rapid.Generator[policy.Workspace] {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{".env", "**/*.pem", "secret", "build/out"}),
		0, 3)
	return rapid.Custom(func(t *rapid.T) policy.Workspace {
		return policy.Workspace{
			Access: rapid.SampledFrom([]policy.WorkspaceAccess{policy.WorkspaceNone,
				policy.WorkspaceRead, policy.WorkspaceShadow}).Draw(t, "access"),
			Hide:    names.Draw(t, "hide"),
			Protect: names.Draw(t, "protect"),
			Commit: rapid.SampledFrom([]policy.CommitRule{policy.CommitNever, policy.CommitAsk,
				policy.CommitAuto}).Draw(t, "commit"),
			Target: rapid.SampledFrom([]policy.WorkspaceTarget{policy.TargetWorkspace,
				policy.TargetSame}).Draw(t, "target"),
		}
	})
}

// Mounts draws mounts, some of them without a target.
func Mounts() *rapid.Generator[policy.Mounts] {
	rights := []policy.Rights{policy.Read, policy.Read | policy.Exec, policy.Read | policy.Write,
		policy.Read | policy.Exec | policy.Write}
	one := rapid.Custom(func(t *rapid.T) policy.Mount {
		target := rapid.SampledFrom([]string{"", "/data", "/data/a", "/data/a/b", "/usr",
			"/usr/share"}).Draw(t, "target")
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			return policy.Mount{Target: target, Access: policy.Tmpfs}
		case 1, 2:
			return policy.Mount{Target: target, Access: policy.Cache,
				Name: rapid.SampledFrom([]string{"", "go-build", "npm"}).Draw(t, "name"),
				Size: rapid.SampledFrom([]int64{0, 1 << 20, 1 << 30,
					policy.Unlimited}).Draw(t, "size")}
		}
		return policy.Mount{
			Source: rapid.SampledFrom([]string{"/", "/usr", "/usr/share", "/data", "/data/a",
				"/data/a/b"}).Draw(t, "source"),
			Target: target,
			Access: rapid.SampledFrom(rights).Draw(t, "access"),
		}
	})
	return rapid.Map(rapid.SliceOfN(one, 0, 4), func(s []policy.Mount) policy.Mounts { return s })
}

// Tools draws a tools part.
func Tools() *rapid.Generator[policy.Tools] {
	return rapid.Custom(func(t *rapid.T) policy.Tools {
		return policy.Tools{
			Allow: globsFrom("core-utils/*", "core-utils/grep", "python/*", "*/grep",
				"**").Draw(t, "allow"),
			Modules: globsFrom("**", "/opt/**", "**/*.wasm", "/opt/a.wasm").Draw(t, "modules"),
			Native:  globsFrom("/usr/bin/*", "/usr/bin/git", "**", "/usr/**").Draw(t, "native"),
			Images:  globsFrom("*", "debian", "**", "oci:/srv/**").Draw(t, "images"),
		}
	})
}

// Env draws an environment part.
func Env() *rapid.Generator[policy.Env] {
	names := globsFrom("*", "TERM", "LC_*", "LC_ALL", "*_ALL")
	return rapid.Custom(func(t *rapid.T) policy.Env {
		return policy.Env{Set: Vars().Draw(t, "set"), Pass: names.Draw(t, "pass"),
			Allow: names.Draw(t, "allow")}
	})
}

// Vars draws constants.
func Vars() *rapid.Generator[policy.Vars] {
	name, value := rapid.SampledFrom([]string{"LANG", "HOME", "A"}), rapid.SampledFrom([]string{"",
		"x", "y"})
	return rapid.Custom(func(t *rapid.T) policy.Vars {
		return policy.Vars{Any: rapid.IntRange(0, 3).Draw(t, "any") == 0,
			Values: rapid.MapOfN(name, value, 0, 3).Draw(t, "values")}
	})
}

// Syscalls draws groups, some of which do not exist.
func Syscalls() *rapid.Generator[policy.Syscalls] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"wasi", "native", "no-such-group"}),
		0, 3),
		func(s []string) policy.Syscalls { return policy.Syscalls{Groups: s} })
}

// Outer draws layers around a jail, a name that is no layer included.
func Outer() *rapid.Generator[policy.Outer] {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{policy.OuterCrun, policy.OuterRunc,
		policy.OuterRunsc, policy.OuterNone}), 0, 4)
	return rapid.Custom(func(t *rapid.T) policy.Outer {
		return policy.Outer{Layers: names.Draw(t, "layers"), Must: rapid.Bool().Draw(t, "must")}
	})
}

// Session draws what invocations may share, undefined values included.
func Session() *rapid.Generator[policy.Session] {
	return rapid.Custom(func(t *rapid.T) policy.Session {
		return policy.Session{Engine: policy.EngineRule(rapid.IntRange(0, 3).Draw(t, "engine")),
			Loopback: policy.LoopbackRule(rapid.IntRange(0, 2).Draw(t, "loopback"))}
	})
}

// Agent draws bindings, few of which do not exist: what no policy may have is left out where whole
// policies are drawn.
func Agent() *rapid.Generator[policy.Agents] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"ai", "host", "pubsub", "storage", "ai",
		"host", "pubsub", "storage", "ai", "host", "pubsub", "storage", "no-such-binding"}), 0, 2),
		func(s []string) policy.Agents { return policy.Agents{Bindings: s} })
}

// Approve draws rules that hold actions back.
func Approve() *rapid.Generator[policy.Approve] {
	one := rapid.Custom(func(t *rapid.T) policy.ApproveRule {
		r := policy.ApproveRule{
			Action: rapid.SampledFrom(policy.ApproveActions()).Draw(t, "action"),
			Mode:   policy.ApproveMode(rapid.IntRange(0, 2).Draw(t, "mode")),
		}
		switch r.Action {
		case policy.ActionFetch:
			target := fetchRule().Draw(t, "target")
			r.Host, r.Methods = target.Host, target.Methods
		case policy.ActionTool:
			tool := rapid.SampledFrom([]string{"**", "**/a", "a/*", "a/b", "/usr/bin/c"}).Draw(t,
				"tool")
			r.Tool = policy.MustGlobs(tool)
		}
		return r
	})
	return rapid.Map(rapid.SliceOfN(one, 0, 3),
		func(s []policy.ApproveRule) policy.Approve { return s })
}

// Audit draws what is recorded, undefined values included.
func Audit() *rapid.Generator[policy.Audit] {
	return rapid.Map(rapid.IntRange(0, 4),
		func(n int) policy.Audit { return policy.Audit{Files: policy.FileAudit(n)} })
}

// Policy draws a whole policy, such as a caller could build by hand: it need not pass
// Check.
func Policy() *rapid.Generator[policy.Policy] {
	return rapid.Custom(func(t *rapid.T) policy.Policy {
		return policy.Policy{
			Workspace: Workspace().Draw(t, "workspace"),
			Mounts:    Mounts().Draw(t, "mounts"),
			Limits:    Limits().Draw(t, "limits"),
			Tools:     Tools().Draw(t, "tools"),
			Fetch:     Fetch().Draw(t, "fetch"),
			Env:       Env().Draw(t, "env"),
			Syscalls:  Syscalls().Draw(t, "syscalls"),
			Audit:     Audit().Draw(t, "audit"),
			Session:   Session().Draw(t, "session"),
			Outer:     Outer().Draw(t, "outer"),
			Approve:   Approve().Draw(t, "approve"),
			Agent:     Agent().Draw(t, "agent"),
		}
	})
}

// sayable draws the limits of each unit that a file can say.
var sayable = map[policy.Unit]*rapid.Generator[int64]{
	policy.Count: rapid.Int64Range(1, 1<<31),
	policy.Bytes: rapid.Int64Range(1, 1<<40),
	policy.Duration: rapid.Map(rapid.Int64Range(1, 1e9), func(ms int64) int64 {
		return ms * int64(time.Millisecond)
	}),
	policy.Cores: rapid.Int64Range(1, 4096000),
}

// Checked draws a policy that passes Check. Most policies that Policy draws have some value that no
// policy may have, which would leave too few: it has none of the values that are undefined.
func Checked() *rapid.Generator[policy.Policy] {
	return rapid.Map(Policy(), func(p policy.Policy) policy.Policy {
		p.Audit.Files = min(p.Audit.Files, policy.FilesNone)
		p.Session.Engine = min(p.Session.Engine, policy.EngineShared)
		p.Session.Loopback = min(p.Session.Loopback, policy.LoopbackShared)
		p.Syscalls.Groups = slices.DeleteFunc(p.Syscalls.Groups, func(name string) bool {
			return policy.CheckSyscallGroup(name) != nil
		})
		p.Agent.Bindings = slices.DeleteFunc(p.Agent.Bindings, func(name string) bool {
			return policy.CheckBinding(name) != nil
		})
		return p
	}).Filter(func(p policy.Policy) bool { return p.Check() == nil })
}

// Valid draws a policy that passes Check and whose limits a file can say.
func Valid() *rapid.Generator[policy.Policy] {
	return rapid.Custom(func(t *rapid.T) policy.Policy {
		p := Checked().Draw(t, "policy")
		for _, name := range policy.LimitNames() {
			_, unit, _ := p.Limits.Get(name)
			n := sayable[unit].Draw(t, name)
			if slices.Contains(policy.OptionalLimits(), name) &&
				rapid.Bool().Draw(t, name+" is missing") {
				n = policy.Unlimited
			}
			p.Limits.Put(name, n)
		}
		p.Fetch.Limits = policy.FetchLimits{Requests: 1, BytesIn: 1 << 20, BytesOut: 7,
			Concurrent: 8, Timeout: time.Second}
		return p.Normal()
	})
}

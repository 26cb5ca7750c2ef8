package policy

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Open asks for rights on a file at an absolute path in the jail. Device nodes and the process
// list, which every jail has, are not part of a policy.
type Open struct {
	Path string
	Want Rights
}

func (q Open) String() string { return q.Want.String() + " " + q.Path }

func (q Open) decide(p Policy) Decision {
	if !cleanAbsolute(q.Path) || q.Want == 0 || !q.Want.SubsetOf(Read|Exec|Write) {
		return deny("%q is no clean absolute path, or nothing is wanted of it", q.Path)
	}
	if rel, ok := beneath(WorkspaceDir, q.Path); ok {
		return q.decideWorkspace(p, rel)
	}
	rights, from := p.Mounts.rightsAt(q.Path)
	if from.memory() && p.Tools.Native.Match(q.Path) {
		// A compiler's output in /tmp may run if the policy names it.
		rights |= Exec
	}
	if q.Want.SubsetOf(rights) {
		return allow("mount %s", quoteMounts(from))
	}
	if len(from) == 0 {
		return deny("no mount holds %s", q.Path)
	}
	return deny("mount %s grants %s only", quoteMounts(from), rights)
}

func quoteMounts(mounts Mounts) string {
	texts := make([]string, len(mounts))
	for i, m := range mounts {
		texts[i] = strconv.Quote(m.String())
	}
	return strings.Join(texts, ", ")
}

func (q Open) decideWorkspace(p Policy, rel string) Decision {
	if rel != "" {
		if pattern, hidden := Hidden(p.Workspace.Hide).find(rel); hidden {
			return deny("workspace.hide %q", pattern)
		}
	}
	rights := p.Workspace.rights()
	if rights != 0 && p.Tools.Native.Match(q.Path) {
		rights |= Exec
	}
	if !q.Want.SubsetOf(rights) {
		return deny("workspace.access = %q", p.Workspace.Access)
	}
	return allow("workspace.access = %q", p.Workspace.Access)
}

// Tool asks to run a command of a bundle.
type Tool struct{ Bundle, Command string }

func (q Tool) String() string { return "run " + q.Bundle + "/" + q.Command }

func (q Tool) decide(p Policy) Decision {
	if !plainName(q.Bundle) || !plainName(q.Command) {
		return deny("%q is no bundle and command", q.Bundle+"/"+q.Command)
	}
	return decideRun(p, "tools.allow", p.Tools.Allow, q.Bundle+"/"+q.Command, GroupWASI)
}

// Module asks to run a WebAssembly file at an absolute path of the host.
type Module struct{ Path string }

func (q Module) String() string { return "run " + q.Path }

func (q Module) decide(p Policy) Decision {
	if !cleanAbsolute(q.Path) {
		return deny("%q is no clean absolute path", q.Path)
	}
	return decideRun(p, "tools.modules", p.Tools.Modules, q.Path, GroupWASI)
}

// Native asks to run a program of the host at an absolute path.
type Native struct{ Path string }

func (q Native) String() string { return "run " + q.Path }

func (q Native) decide(p Policy) Decision {
	if !cleanAbsolute(q.Path) {
		return deny("%q is no clean absolute path", q.Path)
	}
	return decideRun(p, "tools.native", p.Tools.Native, q.Path, GroupNative)
}

// Image asks to run a program of an image at an absolute path of its root.
type Image struct{ Name, Program string }

func (q Image) String() string { return "run " + q.Program + " of image " + q.Name }

func (q Image) decide(p Policy) Decision {
	if !cleanAbsolute(q.Program) {
		return deny("%q is no clean absolute path", q.Program)
	}
	d := decideRun(p, "tools.images", p.Tools.Images, q.Name, GroupNative)
	if !d.Allowed {
		return d
	}
	return p.Approve.ForTool(q.Program).hold(d)
}

func decideRun(p Policy, key string, globs Globs, name, group string) Decision {
	glob, ok := globs.find(name)
	if !ok {
		return deny("%s = %q does not hold %s", key, globs.Strings(), name)
	}
	if !p.Syscalls.Has(group) {
		return deny("syscalls.groups = %q does not hold %s", p.Syscalls.Groups, group)
	}
	return p.Approve.ForTool(name).hold(allow("%s %q", key, glob))
}

// hold returns d, changed to what an approval rule for the action makes of it.
func (r ApproveRule) hold(d Decision) Decision {
	switch r.Mode {
	case ApproveNever:
		return deny("approve %q", r)
	case ApproveAsk:
		return ask("approve %q", r)
	}
	return d
}

// Connect asks for a request. Without a method it asks about host and port alone, which is all that
// is known before the request is seen.
type Connect struct {
	Host   string
	Port   uint16
	Method string // upper case
	// in canonical form, starts with a slash
	Path string
	// Tunnel asks for a stream of the client's own TLS, of which only the host name is visible. It
	// has neither method nor path.
	Tunnel bool
	// WebSocket asks for a request that becomes a stream in both directions.
	WebSocket bool
}

func (q Connect) String() string {
	text := q.Host + ":" + strconv.Itoa(int(q.Port)) + q.Path
	if q.Method != "" {
		text = q.Method + " " + text
	}
	switch {
	case q.Tunnel:
		text = "tunnel " + text
	case q.WebSocket:
		text = "websocket " + text
	}
	return "connect " + text
}

func (q Connect) decide(p Policy) Decision {
	if _, err := ParseHostName(q.Host); err != nil {
		return deny("%v", err)
	}
	if q.Port == 0 {
		return deny("port 0 is no port")
	}
	if q.Method != "" {
		if err := CheckMethod(q.Method); err != nil || q.Method == "*" {
			return deny("method %q is not granted by any policy", q.Method)
		}
		if err := checkPath(q.Path); err != nil {
			return deny("%v", err)
		}
	} else if q.Path != "" {
		return deny("path %q is asked about without a method", q.Path)
	}
	if metadataHost(q.Host) {
		return deny("host %q is a cloud metadata service, which no policy may grant", q.Host)
	}
	if no, ok := p.Fetch.denied(q); ok {
		return deny("fetch.deny %q", no)
	}
	hold := p.Approve.Fetch(q)
	// The methods are still unknown if only a host is asked about.
	asked := q.Method != "" || q.Tunnel
	if asked && hold.Mode == ApproveNever {
		return deny("approve %q", hold)
	}
	rule, credential, err := p.Fetch.find(q)
	switch {
	case errors.Is(err, errTwoCredentials):
		return deny("fetch.allow: two rules attach different credentials to this request")
	case err != nil:
		return deny("fetch.allow has no rule for %s", strings.TrimPrefix(q.String(), "connect "))
	}
	d := allow("fetch.allow %q", rule)
	d.Credential = credential
	d.Fetch = &rule
	if asked && hold.Mode == ApproveAsk {
		d.Allowed, d.Ask, d.Rule = false, true, fmt.Sprintf("approve %q", hold)
	}
	return d
}

// Commit asks to commit a changed path of the shadow, relative to the workspace.
type Commit struct{ Path string }

func (q Commit) String() string { return "commit " + q.Path }

func (q Commit) decide(p Policy) Decision {
	w := p.Workspace
	if !cleanAbsolute(WorkspaceDir + "/" + q.Path) {
		return deny("%q is no clean path in the workspace", q.Path)
	}
	if w.Access != WorkspaceShadow {
		return deny("workspace.access = %q", w.Access)
	}
	if w.Commit == CommitNever {
		return deny("workspace.commit = %q", w.Commit)
	}
	approval := ApproveRule{Action: ActionCommit, Mode: p.Approve.Mode(ActionCommit)}
	if approval.Mode == ApproveNever {
		return deny("approve %q", approval)
	}
	if pattern, hidden := Hidden(w.Hide).find(q.Path); hidden {
		return deny("workspace.hide %q", pattern)
	}
	if risk, held := w.HeldBack(q.Path); held {
		return Decision{Ask: true, Held: true,
			Rule: fmt.Sprintf("protected %q: %s", risk.Pattern, risk.Reason)}
	}
	if approval.Mode == ApproveAsk {
		return ask("approve %q", approval)
	}
	if w.Commit == CommitAsk {
		return ask("workspace.commit = %q", w.Commit)
	}
	return allow("workspace.commit = %q", w.Commit)
}

// EnvVar asks whether the caller may set a variable for the run.
type EnvVar struct{ Name string }

func (q EnvVar) String() string { return "set " + q.Name }

func (q EnvVar) decide(p Policy) Decision {
	if err := CheckEnvName(q.Name); err != nil {
		return deny("%v", err)
	}
	glob, ok := p.Env.Allow.find(q.Name)
	if !ok {
		return deny("env.allow = %q does not hold %s", p.Env.Allow.Strings(), q.Name)
	}
	return allow("env.allow %q", glob)
}

func cleanAbsolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

// plainName reports whether s is one literal segment of a path.
func plainName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

package syntax

import "github.com/jail-sandbox/jail/policy"

// Key describes one key of a policy file, for hints, documentation and editors.
type Key struct {
	// Path is as in "limits.memory"; "mount." and "fetch.allow." are lists of tables.
	Path    string `json:"key"`
	Example string `json:"example"` // of a value
	About   string `json:"about"`
}

var plainKeys = []Key{
	{"policy", "1", "version of the policy language: 1"},
	{"name", `"python"`, "name of the policy"},
	{"about", `"…"`, "one sentence that says what the policy is for"},
	{"include", `["base"]`, "profiles whose keys this policy inherits"},
	{"workspace.access", "none | read | shadow", "what a tool gets of the workspace"},
	{"workspace.hide", `[".env"]`, "patterns of names that the tool does not see"},
	{"workspace.protect", `["Makefile"]`,
		"patterns of names that a commit skips unless they are asked for"},
	{"workspace.commit", "never | ask | auto",
		"whether changes may be committed: never, after a question, or without one"},
	{"workspace.target", "/workspace | same",
		"where the tool finds the workspace: at /workspace, or at the path of the " +
			"directory itself"},
	{"mount.source", `"/usr/share/dict"`, "directory or file of the host"},
	{"mount.target", `"/data/dict"`, "where it appears in the jail"},
	{"mount.access", "read | read+exec | write | write+exec | tmpfs | cache",
		"what the tool may do with it; cache is a directory that later runs of the same " +
			"user and profile have, too"},
	{"mount.name", `"go-build"`, "name of a cache; in a ceiling, every name if missing"},
	{"mount.size", `"2GiB"`, "size limit of a cache; in a ceiling, any size if missing"},
	{"tools.allow", `["core-utils/*"]`, "bundle commands that may run"},
	{"tools.modules", `["**"]`, "WebAssembly files of the caller that may run"},
	{"tools.native", `["/usr/bin/git"]`, "host programs that may run"},
	{"tools.images", `["debian", "oci:/srv/images/**"]`,
		"OCI images whose root file system a run may have with --image: names, and directories in " +
			"the OCI image layout; all programs of such an image may run"},
	{"fetch.allow.host", `"example.com"`,
		"a host name; *.NAME for one label more, **.NAME for any number, * for every public host"},
	{"fetch.allow.ports", "[443]", "ports; in a profile, 443 if missing"},
	{"fetch.allow.methods", `["GET", "HEAD"]`,
		"methods; in a profile, GET and HEAD if missing"},
	{"fetch.allow.paths", `["/simple/**"]`, "paths; in a profile, every path if missing"},
	{"fetch.allow.credential", `""`, "name of a credential that the proxy attaches"},
	{"fetch.allow.types", `["text/*"]`,
		"media types that a response may have; every type if missing"},
	{"fetch.allow.websocket", "false", "whether a request may become a WebSocket"},
	{"fetch.allow.tls", "intercept | opaque",
		"whether the proxy terminates TLS (intercept) or passes it through " +
			"without seeing it (opaque)"},
	{"fetch.allow.request_size", `"1MiB"`, "largest body of one request"},
	{"fetch.allow.response_size", `"10MiB"`, "largest body of one response"},
	{"fetch.allow.requests", "10", "requests to one host"},
	{"fetch.allow.bytes_in", `"10MiB"`, "bytes received from one host"},
	{"fetch.allow.bytes_out", `"1MiB"`, "bytes sent to one host"},
	{"fetch.allow.concurrent", "2", "concurrent requests to one host"},
	{"fetch.allow.rate", "5", "requests to one host that may start in one second"},
	{"fetch.allow.timeout", `"10s"`, "time for one request"},
	{"fetch.deny.host", `"evil.example"`,
		"a host that is refused even if a rule grants it: a name, *.NAME, **.NAME or *"},
	{"fetch.deny.ports", "[443]", "ports; every port if missing"},
	{"fetch.deny.methods", `["POST"]`, "methods; every method if missing"},
	{"fetch.deny.paths", `["/private/**"]`, "paths; every path if missing"},
	{"fetch.mode", "enforce | report",
		"whether a request that no rule grants is refused (enforce) or only recorded (report)"},
	{"env.set", `{ LANG = "C.UTF-8" }`, "variables with a fixed value"},
	{"env.pass", `["TERM"]`, "variables copied from the caller"},
	{"env.allow", `["*"]`, "variables that a caller may set with --env"},
	{"tool.NAME.mount", "[[…]]", "what one tool sees of the mounts, with the keys of mount"},
	{"tool.NAME.fetch.allow", "[[…]]",
		"what one tool may fetch of what is granted, with the keys of fetch.allow"},
	{"tool.NAME.fetch.deny", "[[…]]", "what one tool may not fetch, with the keys of fetch.deny"},
	{"syscalls.groups", `["wasi"]`, "groups of system calls that are allowed"},
	{"audit.files", "none | changes | opens",
		"which file accesses of a run are recorded; none if missing"},
	{"session.engine", "own | request | shared",
		"whether the WebAssembly invocations of a session share one process; request if missing"},
	{"session.loopback", "own | shared",
		"whether the host programs of a session reach each other on one loopback interface; " +
			"own if missing"},
	{"outer.layer", "none | bwrap | crun | runc | runsc",
		"outer layer that every run must have: a sandbox around the jail, or none"},
	{"outer.allow", `["none", "runsc"]`,
		"outer layers that a run may choose from with --outer, none among them or not; every one " +
			"if missing, and in a ceiling every one that has Landlock inside"},
	{"agent.bindings", `["host", "storage"]`,
		"what a run may do as an agent: ai, host, pubsub, storage; without any it can be none"},
	{"approve.action", "workspace.commit | fetch | tool | gate | git.push | pr.create | policy.grant",
		"action that this rule holds back until somebody approves it; tool:NAME for one tool"},
	{"approve.host", "*.example.com", "host of the fetches; every host if missing"},
	{"approve.methods", `["POST"]`, "methods of the fetches; every method if missing"},
	{"approve.tool", "curl",
		"tool that is started: NAME, BUNDLE/COMMAND or an absolute path, each a pattern; " +
			"every tool if missing"},
	{"approve.mode", "never | ask | auto",
		"whether the action is refused, waits for an approval, or needs none"},
	{"version", "1",
		"revision of the file; a signed profile is never replaced by one with a lower number"},
	{"signed.by", `["ops+5e4f8c11+Ae…"]`,
		"in a ceiling: keys; one of them must have signed each profile of the operator"},
	{"signed.images", "true",
		"in a ceiling: whether only images that a publisher has signed may be used"},
	{"profiles.NAME.users", `["alice"]`,
		"in a ceiling: users who may use a profile; \"*\" as NAME stands for every other profile"},
	{"profiles.NAME.groups", `["dev"]`, "in a ceiling: groups whose members may use a profile"},
	{"permissions.read.users", `["auditor"]`,
		"in a ceiling: users who may see the runs and records of everybody"},
	{"permissions.read.groups", `["adm"]`,
		"in a ceiling: groups whose members may see the runs and records of everybody"},
	{"permissions.approve.users", `["carol"]`,
		"in a ceiling: users who decide on actions that wait for an approval; " +
			"the owner of each, if missing"},
	{"permissions.approve.groups", `["ops"]`,
		"in a ceiling: groups whose members decide on actions that wait for an approval"},
	{"permissions.run.users", `["alice"]`,
		"in a ceiling: users who may run tools and review their changes; " +
			"everybody who may connect, if missing"},
	{"permissions.run.groups", `["dev"]`,
		"in a ceiling: groups whose members may run tools and review their changes"},
	{"permissions.administer.users", `["carol"]`,
		"in a ceiling: users who may install tools and review " +
			"the runs of others, except root's"},
	{"permissions.administer.groups", `["ops"]`,
		"in a ceiling: groups whose members may install tools and review " +
			"the runs of others, except root's"},
}

// Keys returns all keys of a policy file.
func Keys() []Key {
	out := append([]Key(nil), plainKeys...)
	for _, f := range policy.Fields("limits", "fetch.limits") {
		example := map[policy.Unit]string{
			policy.Count: "32", policy.Bytes: `"256MiB"`, policy.Duration: `"30s"`,
			policy.Cores: "1.5",
		}[f.Unit]
		out = append(out, Key{f.Key, example, f.About},
			Key{"tool.NAME." + f.Key, example, f.About + ", of one tool"})
	}
	return append(out, withoutKeys()...)
}

package syntax

import "github.com/jail-sandbox/jail/policy"

// Key describes one key of a policy file, for hints, documentation and editors.
type Key struct {
	// "limits.memory"; "mount." and "fetch.allow." are lists of tables
	Path string
	// What its value looks like.
	Type  string
	About string
}

var plainKeys = []Key{
	{"policy", "1", "version of the language"},
	{"name", `"python"`, "name of the policy"},
	{"about", `"…"`, "what it is for, in a sentence"},
	{"include", `["base"]`, "policies whose items this one takes over"},
	{"workspace.access", "none | read | shadow", "what a tool gets of the workspace"},
	{"workspace.hide", `[".env"]`, "names that are not there for the tool"},
	{"workspace.protect", `["Makefile"]`, "names whose commit needs an explicit yes"},
	{"workspace.commit", "never | ask | auto", "what it takes for changes to become real"},
	{"mount.source", `"/usr/share/dict"`, "directory or file of the host"},
	{"mount.target", `"/data/dict"`, "where it appears in the jail"},
	{"mount.access", "read | read+exec | write | write+exec | tmpfs", "what may be done with it"},
	{"tools.allow", `["core-utils/*"]`, "commands of bundles that may run"},
	{"tools.modules", `["**"]`, ".wasm files that a caller may name"},
	{"tools.native", `["/usr/bin/git"]`, "programs of the host that may run"},
	{"fetch.allow.host", `"example.com"`, "a name, *. or **. and a name, or *"},
	{"fetch.allow.ports", "[443]", "ports; a profile that says none means 443"},
	{"fetch.allow.methods", `["GET", "HEAD"]`,
		"methods; a profile that says none means GET and HEAD"},
	{"fetch.allow.paths", `["/simple/**"]`, "paths; a profile that says none means all"},
	{"fetch.allow.credential", `""`, "name of a credential that the proxy attaches"},
	{"fetch.allow.types", `["text/*"]`, "media types that an answer may have; none said means all"},
	{"fetch.allow.websocket", "false", "whether a request may become a stream in both directions"},
	{"fetch.allow.tls", "intercept | opaque", "whether a client's own TLS may pass through unseen"},
	{"fetch.allow.request_size", `"1MiB"`, "the body of one request"},
	{"fetch.allow.response_size", `"10MiB"`, "the body of one answer"},
	{"fetch.allow.requests", "10", "requests to one host"},
	{"fetch.allow.bytes_in", `"10MiB"`, "bytes received from one host"},
	{"fetch.allow.bytes_out", `"1MiB"`, "bytes sent to one host"},
	{"fetch.allow.concurrent", "2", "requests at one time to one host"},
	{"fetch.allow.rate", "5", "requests to one host that start in one second"},
	{"fetch.allow.timeout", `"10s"`, "time for one request"},
	{"fetch.deny.host", `"evil.example"`,
		"what is refused whatever grants it: a name, *. or **. and a name, or *"},
	{"fetch.deny.ports", "[443]", "ports; none said means all"},
	{"fetch.deny.methods", `["POST"]`, "methods; none said means all"},
	{"fetch.deny.paths", `["/private/**"]`, "paths; none said means all"},
	{"fetch.mode", "enforce | report",
		"whether what no rule grants is refused, or sent and recorded"},
	{"fetch.limits.rate", "50", "requests that start in one second; none said means no bound"},
	{"env.set", `{ LANG = "C.UTF-8" }`, "variables with a fixed value"},
	{"env.pass", `["TERM"]`, "variables taken over from the caller"},
	{"env.allow", `["*"]`, "variables to which a caller may give a value with the run"},
	{"tool.NAME.mount", "[[…]]", "what one tool sees of the mounts, as in mount"},
	{"tool.NAME.fetch.allow", "[[…]]",
		"what one tool may fetch of what is granted, as in fetch.allow"},
	{"tool.NAME.fetch.deny", "[[…]]", "what one tool may not fetch, as in fetch.deny"},
	{"syscalls.groups", `["wasi"]`, "groups of system calls"},
	{"audit.files", "none | changes | opens",
		"what is put on record of the files that a run opens or writes; none said means none"},
	{"version", "1",
		"counts the changes of the file; what is signed never goes back to a lower one"},
	{"signed.by", `["ops+5e4f8c11+Ae…"]`,
		"in a ceiling: keys of which one must have signed each profile of the operator"},
	{"profiles.NAME.users", `["alice"]`,
		"in a ceiling: who may use a profile; \"*\" as NAME means the rest"},
	{"profiles.NAME.groups", `["dev"]`, "in a ceiling: whose members may use a profile"},
	{"permissions.read.users", `["auditor"]`,
		"in a ceiling: who may look at the runs of all users and read all records"},
	{"permissions.read.groups", `["adm"]`,
		"in a ceiling: whose members may look at the runs of all users and read all records"},
	{"permissions.run.users", `["alice"]`,
		"in a ceiling: who may run tools and decide on what they left; where it is not said, all who may connect"},
	{"permissions.run.groups", `["dev"]`,
		"in a ceiling: whose members may run tools and decide on what they left"},
	{"permissions.administer.users", `["carol"]`,
		"in a ceiling: who may decide on the runs of other users, but for root's, and install tools"},
	{"permissions.administer.groups", `["ops"]`,
		"in a ceiling: whose members may decide on the runs of other users, but for root's, and install tools"},
}

// Keys returns every key there is.
func Keys() []Key {
	out := append([]Key(nil), plainKeys...)
	for _, info := range policy.LimitInfos() {
		example := map[policy.Unit]string{
			policy.Count: "32", policy.Bytes: `"256MiB"`, policy.Duration: `"30s"`,
			policy.Cores: "1.5",
		}[info.Unit]
		section, name, nested := cutLast(info.Name)
		path := "limits." + name
		if nested {
			path = section + "." + path
		}
		out = append(out, Key{path, example, info.About})
		out = append(out, Key{"tool.NAME." + path, example, info.About + ", of one tool"})
	}
	return append(out, withoutKeys()...)
}

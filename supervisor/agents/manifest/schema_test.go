package manifest

import (
	"encoding/json"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners/agent"
)

// A key describes one key of agent.toml.
type key struct {
	Path, About string
}

// keys returns every key there is, in the order in which a manifest is written.
func keys() []key {
	return []key{
		{"agent", "version of the manifest: 1"},
		{"type", "what the directory holds: an agent"},
		{"name", "name of the agent: lower-case letters, digits and -"},
		{"runtime", "sandboxed if missing; host is for agents of the host's " +
			"own folder, which have all rights of root and are programs. workerd and node are " +
			"other words for the two"},
		{"module",
			"a .wasm file of the directory, or a command of a bundle, such as python/python3"},
		{"args", "arguments of the module; files relative to the directory"},
		{"native",
			"a program of the host and its arguments, in place of module"},
		{"profile", "profile that bounds the agent; agent if missing"},
		{"policy", "a policy file of the directory, in place of profile"},
		{"channels", "channels that the agent is on, each with an instance of its " +
			"own; main if missing"},
		{"handle", "name by which a message mentions the agent, as @triage; name if " +
			"missing"},
		{"config", "any values, which the agent gets as JSON"},
		{"capabilities.network", "whether the agent may fetch what the policy grants"},
		{"capabilities.ai", "whether the agent has the binding AI"},
		{"capabilities.storage", "whether the agent has the binding STORAGE"},
		{"capabilities.facets", "whether the agent may have facets, and load code"},
		{"capabilities.tools", "commands of bundles that the agent may run, as far " +
			"as its policy grants them; none if missing"},
		{"tools.workspace", "directory that they work on a shadow of; without one they " +
			"have memory below /tmp alone"},
		{"capabilities.gatekeeper", "whether the agent may be a gatekeeper of " +
			"gatekeepers.toml"},
		{"capabilities.gatekeepers", "gatekeepers of gatekeepers.toml that the agent " +
			"may use, if their agents name it"},
		{"storage.size", "largest size of the agent's database; 64MiB if missing"},
		{"facets.memory", "memory that is for the facets together, out of the agent's " +
			"own; if missing all but 128MiB, at least a half and at most three quarters"},
		{"facets.pids", "processes and threads that are for the facets together, out of " +
			"the agent's own; if missing all but 16, at least a half and at most three quarters"},
		{"ai.roles",
			"models by names of the agent's: PROVIDER/MODEL, or a table of url, form (chat, " +
				"messages or responses), model, credential and max_tokens"},
		{"ai.tokens_day", "tokens of a day; unlimited if missing"},
		{"wake.heartbeat", "time between two ticks; none if missing"},
		{"wake.roster", "whether an event says that a member joins or leaves the channel"},
		{"wake.idle", "time without an event after which the agent sleeps"},
		{"wake.deadline", "time for one event"},
		{"wake.batch", "events delivered at one time"},
		{"wake.retries", "times that a failed event is delivered again before it is a dead " +
			"letter"},
		{"limits.NAME", "a limit of a policy, which this narrows"},
		// The sections.
		{"capabilities", "bindings that the agent asks for; what is false is not there"},
		{"storage", "the agent's database"},
		{"tools", "what the tools of the agent work on"},
		{"facets", "what the facets of the agent have of it"},
		{"ai", "the agent's models"},
		{"wake", "when the agent is awake"},
		{"limits", "limits of the agent's jail"},
	}
}

type object = map[string]any

// schema returns a JSON Schema (2020-12) of agent.toml, for editors. It refuses less than Parse: it
// cannot say how large a size may be, for example.
func schema() []byte {
	about := map[string]string{}
	for _, k := range keys() {
		about[k.Path] = k.About
	}
	with := func(path string, s object) object {
		if about[path] != "" {
			s["description"] = about[path]
		}
		return s
	}
	closed := func(props object) object {
		return object{"type": "object", "additionalProperties": false, "properties": props}
	}
	section := func(name string, props object) object {
		for key, s := range props {
			with(name+"."+key, s.(object))
		}
		return with(name, closed(props))
	}
	text := func(pattern string) object { return object{"type": "string", "pattern": pattern} }
	list := func(item object) object {
		return object{"type": "array", "maxItems": maxList, "items": item}
	}
	flag := func() object { return object{"type": "boolean"} }
	number := func(least, most int) object {
		return object{"type": "integer", "minimum": least, "maximum": most}
	}
	duration := func() object {
		return text(`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)
	}
	channel := object{"type": "string", "maxLength": agent.MaxName,
		"pattern": "^[a-z0-9_][a-z0-9._-]*$"}
	args := func() object {
		return list(object{"type": "string", "minLength": 1, "maxLength": maxText})
	}
	role := closed(object{"url": text("^https?://[^/?#@]+(/[^?#]*)?$"),
		"form": object{"enum": []string{"chat", "messages", "responses"}}, "model": text("."),
		"credential": text("."), "max_tokens": number(1, 1<<30)})
	role["required"] = []string{"url", "model"}
	limits := object{}
	for _, f := range policy.Fields("limits") {
		limits[f.Name] = object{"type": []string{"string", "number"}, "description": f.About}
	}
	channels := list(channel)
	channels["minItems"], channels["uniqueItems"] = 1, true
	native := args()
	native["minItems"] = 1
	root := closed(object{
		"agent": with("agent", object{"const": version}),
		"type":  with("type", object{"const": "agent"}),
		"name":  with("name", text("^[a-z0-9][a-z0-9-]{0,62}$")),
		"runtime": with("runtime",
			object{"enum": []string{sandboxed, Host, "workerd", "node"}}),
		"module":   with("module", object{"type": "string", "minLength": 1, "maxLength": maxText}),
		"args":     with("args", args()),
		"native":   with("native", native),
		"profile":  with("profile", text("^[a-z0-9_][a-z0-9_-]*(/[a-z0-9_][a-z0-9_-]*)*$")),
		"policy":   with("policy", text(`\.toml$`)),
		"channels": with("channels", channels),
		"handle":   with("handle", text("^[A-Za-z0-9_-]{1,63}$")),
		"config":   with("config", object{"type": "object"}),
		"capabilities": section("capabilities", object{"network": flag(), "ai": flag(),
			"storage": flag(), "facets": flag(), "tools": args(), "gatekeeper": flag(),
			"gatekeepers": list(text("^[a-z0-9][a-z0-9-]{0,62}$"))}),
		"tools":   section("tools", object{"workspace": text("^/")}),
		"storage": section("storage", object{"size": text("^[0-9]+(B|KiB|MiB|GiB|TiB)$")}),
		"facets": section("facets", object{"memory": text("^[0-9]+(B|KiB|MiB|GiB|TiB)$"),
			"pids": number(1, 1<<20)}),
		"ai": section("ai", object{"tokens_day": number(1, 1<<40),
			"roles": object{"type": "object", "propertyNames": channel,
				"additionalProperties": object{"oneOf": []object{text("^(anthropic|openai)/."),
					role}}}}),
		"wake": section("wake", object{"heartbeat": duration(), "roster": flag(), "idle": duration(),
			"deadline": duration(), "batch": number(1, MaxBatch), "retries": number(0, maxRetries)}),
		"limits": with("limits", closed(limits)),
	})
	root["required"] = []string{"agent", "type", "name"}
	root["oneOf"] = []object{{"required": []string{"module"}}, {"required": []string{"native"}}}
	root["if"] = object{"required": []string{"runtime"},
		"properties": object{"runtime": object{"enum": []string{Host, "node"}}}}
	root["then"] = object{"required": []string{"native", "capabilities"}, "properties": object{
		"capabilities": object{"required": []string{"network"},
			"properties": object{"network": object{"const": true}}},
		"profile": false, "policy": false, "limits": false}}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = "https://jail-sandbox.github.io/jail/agent.schema.json"
	root["title"] = "Manifest of an agent of jail"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		// It is made of maps, lists and texts.
		panic("manifest: bug: " + err.Error())
	}
	return append(out, '\n')
}

package syntax

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// schemaID names the schema of policy files.
const schemaID = "https://jail-sandbox.github.io/jail/policy.schema.json"

type object = map[string]any

// Schema returns a JSON Schema (2020-12) of policy files, for editors. It is made from the
// types of a policy, and refuses less than Parse does: what it cannot say is what two keys
// mean together, how large a size may be, and whose file it is.
func Schema() []byte {
	root := structSchema(reflect.TypeFor[policy.Policy](), "")
	props := root["properties"].(object)
	props["mount"] = props["mounts"]
	delete(props, "mounts")
	props["policy"] = object{"const": version, "description": about("policy")}
	props["name"] = object{"type": "string", "maxLength": 128,
		"pattern": `^[a-z0-9_][a-z0-9_-]*(/[a-z0-9_][a-z0-9_-]*)*$`, "description": about("name")}
	props["about"] = object{"type": "string", "maxLength": 500, "description": about("about")}
	props["include"] = object{"type": "array", "items": props["name"],
		"description": about("include")}
	section := tableOf(object{"limits": props["limits"], "mount": props["mount"],
		"fetch": props["fetch"]})
	props["tool"] = object{"type": "object", "additionalProperties": section,
		"propertyNames": object{"pattern": "^(/|[^/]+/|\\*\\*/)"},
		"description":   "what narrows the runs of single tools, met with the rest"}
	props["without"] = withoutSchema()
	props["version"] = object{"type": "integer", "minimum": 1, "maximum": maxVersion,
		"description": about("version")}
	signed := tableOf(object{"by": describedTexts("signed.by"),
		"images": object{"type": "boolean", "description": about("signed.images")}})
	signed["minProperties"] = 1
	props["signed"] = signed
	props["profiles"] = object{"type": "object",
		"additionalProperties": audienceSchema("profiles.NAME")}
	permissions := object{}
	for _, name := range []string{"read", "run", "administer", "approve"} {
		permissions[name] = audienceSchema("permissions." + name)
	}
	props["permissions"] = tableOf(permissions)
	root["required"] = []string{"policy"}
	root["$schema"], root["$id"] = "https://json-schema.org/draft/2020-12/schema", schemaID
	root["title"] = "Policy of jail"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		// It is made of maps, lists and texts.
		panic("syntax: bug: " + err.Error())
	}
	return append(text, '\n')
}

func about(path string) string {
	for _, k := range Keys() {
		if k.Path == path {
			return k.About
		}
	}
	return ""
}

func describedTexts(path string) object {
	out := texts()
	out["description"] = about(path)
	return out
}

func audienceSchema(path string) object {
	return tableOf(object{"users": describedTexts(path + ".users"),
		"groups": describedTexts(path + ".groups")})
}

func tableOf(props object) object {
	return object{"type": "object", "additionalProperties": false, "properties": props}
}

func listOf(items object) object { return object{"type": "array", "items": items} }

func texts() object {
	return object{"type": "array", "uniqueItems": true,
		"items": object{"type": "string", "minLength": 1, "maxLength": 4096}}
}

// globs are texts without what has no meaning in a pattern.
func globs(pattern string) object {
	out := texts()
	out["items"].(object)["pattern"] = pattern
	return out
}

const plainGlob = `^[^?\[\]{}\\]+$`

// schemaOf is what a file says in place of a value of a type.
func schemaOf(t reflect.Type, path string) object {
	if c, ok := reflect.New(t).Interface().(choice); ok {
		return object{"enum": c.Choices()}
	}
	switch t {
	case reflect.TypeFor[policy.Host]():
		return object{"type": "string",
			"pattern": `^(\*|(\*\.|\*\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?)$`}
	case reflect.TypeFor[policy.Ports]():
		return listOf(object{"oneOf": []object{{"type": "integer", "minimum": 1, "maximum": 65535},
			{"type": "string", "pattern": `^(\*|[1-9][0-9]{0,4}-[1-9][0-9]{0,4})$`}}})
	case reflect.TypeFor[policy.Vars]():
		return object{"type": "object", "additionalProperties": object{"type": "string"},
			"propertyNames": object{"pattern": `^[!-~]+$`}}
	case reflect.TypeFor[policy.Limits](), reflect.TypeFor[policy.FetchLimits]():
		return limitsSchema(path)
	case reflect.TypeFor[policy.Globs]():
		return globs(globForm(path))
	case reflect.TypeFor[[]string]():
		known := map[string][]policy.Named{"syscalls.groups": policy.SyscallGroups(),
			"agent.bindings": policy.AllBindings()}
		if all := known[path]; all != nil {
			return object{"type": "array", "uniqueItems": true,
				"items": object{"enum": policy.NamesOf(all)}}
		}
		return globs(plainGlob)
	}
	switch t.Kind() {
	case reflect.Slice:
		return listOf(schemaOf(t.Elem(), path))
	case reflect.Struct:
		return structSchema(t, path)
	case reflect.Bool:
		return object{"type": "boolean"}
	}
	return object{"type": "string", "minLength": 1}
}

// globForm is how a pattern of a list must begin, or look.
func globForm(path string) string {
	switch path {
	case "tools.modules":
		return `^(/|\*\*|\$\{(home|workspace)\}/)`
	case "tools.native":
		return `^(/[^?\[\]{}\\]*[^?\[\]{}\\/]|\*\*)$`
	case "tools.images":
		return `^(\*\*|[^/?\[\]{}\\]+|oci:/[^?\[\]{}\\]*[^?\[\]{}\\/])$`
	case "fetch.allow.methods", "fetch.deny.methods":
		return `^(\*|[A-Z_-]+)$`
	case "fetch.allow.paths", "fetch.deny.paths":
		return `^(/([A-Za-z0-9._~!$&'()*,=:@/-]|%[0-9A-F]{2})*|\*\*)$`
	case "fetch.allow.types":
		return `^(\*\*|[a-z0-9*+._-]+/[a-z0-9*+._-]+)$`
	}
	return plainGlob
}

func structSchema(t reflect.Type, path string) object {
	props := object{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		key := join(path, name)
		// A rule has them among its own.
		if f.Type == reflect.TypeFor[policy.FetchBounds]() {
			for _, b := range policy.FetchBoundFields() {
				props[b.Name] = described(unitSchema(b.Unit), join(path, b.Name))
			}
			continue
		}
		// It stands among the limits.
		if path == "fetch" && name == "rate" {
			continue
		}
		props[name] = described(schemaOf(f.Type, strings.TrimPrefix(key, "mounts.")), key)
	}
	out := tableOf(props)
	switch t {
	case reflect.TypeFor[policy.Mount]():
		out["required"] = []string{"access"}
		props["source"] = described(object{"type": "string",
			"pattern": `^(/|\$\{(home|workspace)\}(/|$))`}, "mount.source")
		props["target"] = described(object{"type": "string", "pattern": `^/.`}, "mount.target")
		props["name"] = described(object{"type": "string",
			"pattern": `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`}, "mount.name")
		props["size"] = described(unitSchema(policy.Bytes), "mount.size")
	case reflect.TypeFor[policy.ApproveRule]():
		out["required"] = []string{"action", "mode"}
		// With the name of one tool, too.
		action := props["action"].(object)
		delete(action, "type")
		action["anyOf"] = []object{{"enum": policy.ApproveActions()},
			{"type": "string", "pattern": "^" + policy.ApproveToolPrefix + "."}}
	case reflect.TypeFor[policy.FetchRule](), reflect.TypeFor[policy.FetchDeny]():
		out["required"] = []string{"host"}
		if c, ok := props["credential"]; ok {
			c.(object)["pattern"] = `^(\*|[A-Za-z0-9._-]{0,128})$`
			delete(c.(object), "minLength")
		}
	}
	return out
}

func described(s object, path string) object {
	if text := about(strings.Replace(path, "mounts", "mount", 1)); text != "" {
		s["description"] = text
	}
	return s
}

func limitsSchema(path string) object {
	props := object{}
	for _, f := range policy.Fields(path) {
		props[f.Name] = described(unitSchema(f.Unit), f.Key)
	}
	return tableOf(props)
}

func unitSchema(u policy.Unit) object {
	switch u {
	case policy.Bytes:
		return object{"type": "string", "pattern": `^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)$`}
	case policy.Duration:
		return object{"type": "string",
			"pattern": `^((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`}
	case policy.Cores:
		return object{"type": "number", "exclusiveMinimum": 0, "maximum": 4096}
	}
	return object{"type": "integer", "minimum": 1, "maximum": 1 << 31}
}

func withoutSchema() object {
	props := object{}
	for _, l := range withoutLists {
		s := texts()
		s["description"] = about("without." + join(l.section, l.key))
		if l.section == "" {
			props[l.key] = s
			continue
		}
		section, ok := props[l.section].(object)
		if !ok {
			section = tableOf(object{})
			props[l.section] = section
		}
		section["properties"].(object)[l.key] = s
	}
	out := tableOf(props)
	out["description"] = "what is taken out of what is inherited"
	return out
}

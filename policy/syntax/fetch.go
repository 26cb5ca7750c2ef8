package syntax

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/jail-sandbox/jail/policy"
)

// fetchReader reads the fetch rules of one file.
type fetchReader struct {
	values
	kind Kind
}

func (r *fetchReader) rule(key string, v *node) {
	rule := r.kind.emptyRule()
	before := len(*r.errs)
	known := r.target(&rule.Host, &rule.Ports, &rule.Methods, &rule.Paths)
	known["credential"] = func(k string, v *node) {
		if text, ok := r.str(k, v); ok && r.report(k, v, policy.CheckCredential(text)) {
			rule.Credential = text
		}
	}
	known["types"] = func(k string, v *node) {
		if rule.Types = r.globs(k, v, policy.CheckTypeGlob); len(rule.Types) == 0 {
			r.errs.add(v.pos, "leave it out for every type",
				"%s is empty, so no answer has a type that it lets through", k)
		}
	}
	known["websocket"] = func(k string, v *node) { r.flag(k, v, &rule.WebSocket) }
	known["tls"] = r.oneOf(&rule.TLS)
	for _, b := range policy.FetchBoundFields() {
		known[b.Name] = func(k string, v *node) { r.limit(k, v, b.Unit, b.At(&rule.Bounds)) }
	}
	r.table(key, v, known)
	switch {
	case len(*r.errs) > before:
	case v.get("host") == nil:
		r.errs.add(v.pos, "name one, as in host = \"example.com\"", "%s: host is missing", key)
	default:
		r.draft.policy.Fetch.Allow = append(r.draft.policy.Fetch.Allow, rule)
		r.says("fetch.allow", rule.String(), v.pos)
	}
}

// target reads the keys that select the requests of a rule.
func (r *fetchReader) target(host *policy.Host, ports *policy.Ports, methods,
	paths *policy.Globs) map[string]func(string, *node) {
	return map[string]func(string, *node){
		"host": func(k string, v *node) {
			if text, ok := r.str(k, v); ok {
				h, err := policy.ParseHost(text)
				r.report(k, v, err)
				*host = h
			}
		},
		"ports": func(k string, v *node) { *ports = r.ports(k, v) },
		"methods": func(k string, v *node) {
			*methods = r.globs(k, v,
				func(g policy.Glob) error { return policy.CheckMethod(g.String()) })
		},
		"paths": func(k string, v *node) { *paths = r.globs(k, v, policy.CheckURLGlob) },
	}
}

// deny reads a denying rule. Missing keys stand for everything.
func (r *fetchReader) deny(key string, v *node) {
	rule := policy.DenyHost(policy.Host{})
	before := len(*r.errs)
	r.table(key, v, r.target(&rule.Host, &rule.Ports, &rule.Methods, &rule.Paths))
	switch {
	case len(*r.errs) > before:
	case v.get("host") == nil:
		r.errs.add(v.pos, "name one, as in host = \"example.com\"", "%s: host is missing", key)
	case len(rule.Ports) == 0 || len(rule.Methods) == 0 || len(rule.Paths) == 0:
		r.errs.add(v.pos, "leave the empty list out for all",
			"%s: an empty list takes nothing away", key)
	default:
		r.draft.policy.Fetch.Deny = append(r.draft.policy.Fetch.Deny, rule)
		r.says("fetch.deny", rule.String(), v.pos)
	}
}

// ports reads numbers, ranges such as "8000-8100", and "*".
func (r *fetchReader) ports(key string, v *node) policy.Ports {
	var out policy.Ports
	r.each(key, v, "numbers", func(itemKey string, item *node) {
		if item.kind != unstable.Integer && item.kind != unstable.String {
			r.wrongType(itemKey, item, "a number, such as 443")
			return
		}
		text := item.text
		if n, ok := item.integer(); ok && item.kind == unstable.Integer {
			text = fmt.Sprint(n)
		}
		ports, err := policy.ParsePorts(text)
		if item.kind == unstable.String && err == nil && text != "*" && !strings.Contains(text,
			"-") {
			err = fmt.Errorf("%q is a string: write the number without quotes", text)
		}
		if r.report(itemKey, item, err) {
			out = append(out, ports...)
		}
	})
	return out
}

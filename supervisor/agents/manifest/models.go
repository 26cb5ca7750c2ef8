package manifest

import (
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// Models is the content of a user's models.toml: the models for jail agent chat and jail worker.
type Models struct {
	// Roles are the models, by the user's name for each.
	Roles map[string]Role
	// Default is the name of the role that is used unless another is named.
	Default string
	// Search is the URL of a web search with the placeholder {query}; empty for none.
	Search string
}

// LoadModels reads models.toml, strictly. A missing file means no models. If the file is invalid,
// the error is a syntax.Errors with all errors.
func LoadModels(path string) (Models, error) {
	r, t, text, err := openFile(path)
	if err != nil {
		return Models{}, err
	}
	m := Models{Roles: map[string]Role{}}
	r.keys(t, "roles", "default", "agent")
	roles := r.sub(t, "roles")
	for _, name := range slices.Sorted(maps.Keys(roles.values)) {
		if err := CheckChannel(name); err != nil {
			r.fail(roles.path+name, "", "roles: %v", err)
		}
		m.Roles[name] = r.role(roles, name)
	}
	if v, ok := r.text(t, "default"); ok {
		if _, known := m.Roles[v]; !known {
			r.fail("default", "", "default: there is no role %q", v)
		}
		m.Default = v
	} else if len(m.Roles) == 1 {
		m.Default = slices.Collect(maps.Keys(m.Roles))[0]
	}
	agent := r.sub(t, "agent")
	r.keys(agent, "search")
	if v, ok := r.text(agent, "search"); ok {
		if !strings.HasPrefix(v, "https://") && !strings.HasPrefix(v, "http://") ||
			strings.Count(v, "{query}") != 1 {
			r.fail("agent.search", "write it as https://HOST/PATH?q={query}",
				"agent.search: %q is no URL with one {query} in it", v)
		}
		m.Search = v
	}
	return m, syntax.Report(path, text, r.errs)
}

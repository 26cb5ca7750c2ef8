package manifest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// Kinds of gatekeepers.
const (
	KindSQLite  = "sqlite"
	KindOpenAPI = "openapi"
	KindAgent   = "agent"
)

// A Gatekeeper is a table of gatekeepers.toml: a resource of the owner, and the agents that may use
// it.
type Gatekeeper struct {
	Name string
	// Kind is sqlite, openapi or agent.
	Kind  string
	About string
	// Agents are the names of the agents that may use the gatekeeper.
	Agents []string
	// ByPolicy lets the policy of an agent decide which actions need an approval. If false, all do.
	ByPolicy bool
	// File is the absolute path of the database or the OpenAPI document.
	File string
	// Tables are the tables and views that agents may use; all if empty.
	Tables []string
	// URL is the base URL of the API. If empty, the document's is used.
	URL string
	// Credential is the name of a credential of the fetch proxy; empty for none.
	Credential string
	// Operations are the operations of the API that agents may use; all if empty.
	Operations []string
	// Agent is the name of the agent that is the gatekeeper.
	Agent string
}

// LoadGatekeepers reads gatekeepers.toml, strictly. It returns none if the file does not exist. If
// the file is invalid, the error is a syntax.Errors with all errors.
func LoadGatekeepers(path string) ([]Gatekeeper, error) {
	r, t, text, err := openFile(path)
	if err != nil {
		return nil, err
	}
	r.keys(t, "gatekeeper")
	of := r.sub(t, "gatekeeper")
	var all []Gatekeeper
	for _, name := range slices.Sorted(maps.Keys(of.values)) {
		if err := CheckName(name); err != nil {
			r.fail(of.path+name, "", "gatekeeper: %v", err)
		}
		g := r.gatekeeper(r.sub(of, name))
		g.Name = name
		if slices.Contains(append(g.Agents, g.Agent), name) {
			// The approval queue uses an agent's name for the agent's own proposals.
			r.fail(of.path+name, "give the gatekeeper another name", "gatekeeper %q has the name of an "+
				"agent that may use it, or is it", name)
		}
		if g.File != "" && !filepath.IsAbs(g.File) {
			g.File = filepath.Join(filepath.Dir(path), g.File)
		}
		all = append(all, g)
	}
	if err := syntax.Report(path, text, r.errs); err != nil {
		return nil, err
	}
	return all, nil
}

func (r *reader) gatekeeper(t table) (g Gatekeeper) {
	g.Kind = r.word(t, "kind", KindSQLite, KindOpenAPI, KindAgent)
	if !t.has("kind") {
		r.fail(t.path+"kind", "write kind = \"sqlite\", \"openapi\" or \"agent\"", "%skind is missing",
			t.path)
	}
	g.About, _ = r.text(t, "about")
	g.Agents = r.texts(t, "agents", true, CheckName)
	g.ByPolicy = r.word(t, "approve", "ask", "policy") == "policy"
	known := []string{"kind", "about", "agents", "approve"}
	file := "file"
	switch g.Kind {
	case KindAgent:
		file = "agent"
	case KindOpenAPI:
		file = "document"
		known = append(known, file, "url", "credential", "operations")
		g.Credential, _ = r.text(t, "credential")
		g.Operations = r.texts(t, "operations", true, nil)
		g.URL = r.address(t, "url", "an API")
	default:
		known = append(known, file, "tables")
		g.Tables = r.texts(t, "tables", true, nil)
	}
	if g.Kind == KindAgent {
		known = append(known, file)
		g.Agent, _ = r.text(t, file)
	} else {
		g.File, _ = r.text(t, file)
	}
	r.keys(t, known...)
	if !t.has(file) {
		r.fail(t.path+file, fmt.Sprintf("name it, as in %s = %q", file,
			map[string]string{KindSQLite: "/srv/crm.db", KindOpenAPI: "crm.json",
				KindAgent: "crm-keeper"}[g.Kind]),
			"%s%s is missing", t.path, file)
	}
	return g
}

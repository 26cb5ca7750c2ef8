package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGatekeepers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gatekeepers.toml")
	if all, err := LoadGatekeepers(path); err != nil || len(all) > 0 {
		t.Errorf("without a file: %+v, %v", all, err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`[gatekeeper.crm]
kind = "sqlite"
file = "crm.db"
agents = ["triage"]
approve = "policy"
[gatekeeper.api]
kind = "openapi"
document = "/srv/api.json"
credential = "api"
`)
	all, err := LoadGatekeepers(path)
	if err != nil || len(all) != 2 || all[0].Name != "api" || all[0].File != "/srv/api.json" ||
		all[0].ByPolicy || len(all[0].Agents) > 0 || all[1].File != filepath.Join(dir, "crm.db") ||
		!all[1].ByPolicy {
		t.Errorf("%+v, %v", all, err)
	}
	for text, want := range map[string]string{
		"file = \"a\"":                                                   "kind is missing",
		"kind = \"sqlite\"":                                              "file is missing",
		"kind = \"openapi\"\nfile = \"a\"":                               "unknown key",
		"kind = \"sqlite\"\nfile = \"a\"\nurl = \"b\"":                   "unknown key",
		"kind = \"mysql\"\nfile = \"a\"":                                 "no value that it can have",
		"kind = \"sqlite\"\nfile = \"a\"\napprove = \"auto\"":            "no value that it can have",
		"kind = \"sqlite\"\nfile = \"a\"\nagents = [\"*\"]":              "no name",
		"kind = \"sqlite\"\nfile = \"a\"\nagents = [\"crm\"]":            "has the name of an agent",
		"kind = \"openapi\"\ndocument = \"a\"\nurl = \"https://u:p@h/\"": "no URL of an API",
	} {
		write("[gatekeeper.crm]\n" + text + "\n")
		if all, err := LoadGatekeepers(path); err == nil || !strings.Contains(err.Error(), want) ||
			len(all) > 0 {
			t.Errorf("%s: %+v, %v, want %q", text, all, err, want)
		}
	}
}

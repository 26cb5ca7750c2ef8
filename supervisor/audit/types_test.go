package audit_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// TestTypesAreListed: each record type that event.go declares is one of Types, which filters, the
// completion and the console offer, and is described in jail-audit(5).
func TestTypesAreListed(t *testing.T) {
	source, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	man, err := os.ReadFile("../../docs/man/jail-audit.5")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tType\w+ +(?:Type +)?= "(.+)"$`).
		FindAllSubmatch(source, -1)
	if len(declared) != len(audit.Types()) {
		t.Errorf("event.go declares %d types, and Types has %d", len(declared), len(audit.Types()))
	}
	for _, d := range declared {
		name := string(d[1])
		if !slices.Contains(audit.Types(), audit.Type(name)) {
			t.Errorf("Types has no %s", name)
		}
		if !regexp.MustCompile(`(?m)^\.BR?\b.*[ "]` + regexp.QuoteMeta(name) + `(?:[ "]|$)`).
			Match(man) {
			t.Errorf("docs/man/jail-audit.5 has no %s", name)
		}
	}
}

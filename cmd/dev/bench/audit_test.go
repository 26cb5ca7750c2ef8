package main

import (
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/index"
)

// One reading for all questions finds what a reading for each does.
func TestCountEach(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	l, err := audit.Open(audit.Options{Dir: log, KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	var batch []audit.Entry
	for n := range 10 * recordsPerRun {
		batch = append(batch, entry(n))
	}
	if _, _, err := l.AppendAll(batch); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	questions := []question{{"a run", audit.Filter{Run: "run-00000003"}},
		{"a tool", audit.Filter{Tool: "sed", Types: []audit.Type{audit.TypeRunFinished}}},
		{"nothing", audit.Filter{Host: "x"}}}
	counts, err := countEach(t.Context(), log, questions)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range questions {
		n, err := countAll(index.Search{Dir: log, No: true}.Scan(t.Context(), q.f))
		if err != nil || counts[i] != n {
			t.Errorf("%s: %d records, want %d, %v", q.what, counts[i], n, err)
		}
	}
	if counts[0] != recordsPerRun || counts[1] == 0 || counts[2] != 0 {
		t.Errorf("%v", counts)
	}
}

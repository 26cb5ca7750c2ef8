package run_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestEmbedding runs the programs of docs/embedding.md as they stand there.
func TestEmbedding(t *testing.T) {
	h := cmdtest.New(t)
	text, err := os.ReadFile(cmdtest.Tree("docs", "embedding.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```\n").FindAllStringSubmatch(
		string(text), -1) {
		blocks[m[1]] = m[2] + "\n"
	}
	file := func(name, language string) string {
		path := filepath.Join(h.Root, name)
		if err := os.WriteFile(path, []byte(blocks[language]), 0o644); err != nil ||
			blocks[language] == "" {
			t.Fatalf("the block in %s: %v", language, err)
		}
		return path
	}
	guide := filepath.Join(h.Work, "guide.md")
	if err := os.WriteFile(guide, []byte("colour\nsound\ncolour\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(h.Root, "embed")
	build := exec.Command("go", "build", "-trimpath", "-o", program, file("main.go", "go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, cmd := range map[string]*exec.Cmd{"go": h.Program(program),
		"python": h.Program("python3", file("run.py", "python"))} {
		if o := h.Run(cmd); o.Code != 0 || o.Out != "0 2\n" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	o := h.Run(h.Program("sh", file("ci.sh", "sh")))
	if now, _ := os.ReadFile(guide); o.Code != 0 || strings.Contains(string(now), "colour") {
		t.Errorf("sh: %+v, and the file is %q", o, now)
	}
	// What was kept for a revert.
	h.Discard("ci-edit")
}

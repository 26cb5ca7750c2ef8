package cmd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

var (
	docsLink    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	docsHeading = regexp.MustCompile(`^#{1,6} (.+)$`)
	notInAnchor = regexp.MustCompile("[^a-z0-9_ -]")
)

// TestDocsLinks follows each relative link of the Markdown files of the repository: its file is
// there, and its fragment is a heading of that file, by GitHub's rules for anchors.
func TestDocsLinks(t *testing.T) {
	links := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, link := range docsLink.FindAllStringSubmatch(string(text), -1) {
			file, fragment, _ := strings.Cut(link[1], "#")
			if strings.Contains(link[1], "://") || link[1] == "" {
				continue
			}
			links++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", path, link[1], err)
			} else if fragment != "" && !docsAnchors(t, target)[fragment] {
				t.Errorf("%s: link %s: %s has no such heading", path, link[1], target)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// TestDocsLimits holds that the table of docs/limits.md has each limit of policies.
func TestDocsLimits(t *testing.T) {
	text, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		keys, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, key := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(keys, -1) {
			documented[key[1]] = documented[key[1]] || strings.HasPrefix(line, "|")
		}
	}
	for _, name := range policy.LimitNames() {
		if !documented[name] {
			t.Errorf("docs/limits.md: the table has no row for the limit %s", name)
		}
	}
}

// TestFindYourWay looks for each file that the table of README names.
func TestFindYourWay(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Find your way\n")
	table, _, _ = strings.Cut(table, "\n## ")
	files := regexp.MustCompile("`([a-z][^` ]*/[^` ]*\\.go)`").FindAllStringSubmatch(table, -1)
	for _, file := range files {
		if _, err := os.Stat(filepath.Join("..", file[1])); err != nil {
			t.Error(err)
		}
	}
	if len(files) < 10 {
		t.Errorf("only %d files are named", len(files))
	}
}

// docsAnchors returns the anchors of the headings of a Markdown file.
func docsAnchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	anchors, fenced := map[string]bool{}, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if heading := docsHeading.FindStringSubmatch(line); heading != nil && !fenced {
			anchor := notInAnchor.ReplaceAllString(strings.ToLower(heading[1]), "")
			anchors[strings.ReplaceAll(anchor, " ", "-")] = true
		}
	}
	return anchors
}

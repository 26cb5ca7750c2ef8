package console

import (
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/workspace"
)

// What changed in a repository stands in words, and git's own files behind a link; where it is not
// understood, they are listed.
func TestGitInAReview(t *testing.T) {
	object := modified(".git/objects/ab/cd", 0)
	object[0].Change.Git = workspace.GitObjects
	object[0].Change.Kind = workspace.Added
	held := modified(".git/refs/heads/held", 0)
	held[0].Change.Git, held[0].Change.Conflict = workspace.GitRefs, "changed on both sides"
	for name, x := range map[string]struct {
		report  gitrepo.Report
		query   string
		has, no []string
	}{
		"understood": {gitrepo.Report{Path: ".git", Lines: []string{`main 1..2: "<b>x</b>"`}}, "",
			[]string{"main 1..2: &#34;&lt;b&gt;x&lt;/b&gt;&#34;",
				"1 change of objects, logs and refs", `/runs/r/review?all=1"`,
				".git/refs/heads/held", "<code>a</code>"},
			[]string{".git/objects/ab/cd"}},
		"all": {gitrepo.Report{Path: ".git", Lines: []string{"main 1..2"}}, "?all=1",
			[]string{".git/objects/ab/cd", "main 1..2"}, []string{"of objects, logs and refs"}},
		"another repository": {gitrepo.Report{Path: "lib/.git", Lines: []string{"main 1..2"}}, "",
			[]string{"lib/.git: main 1..2"}, []string{".git/objects/ab/cd"}},
		"not understood": {gitrepo.Report{Path: ".git", NotUnderstood: "x",
			Lines: []string{"not understood: x"}}, "",
			[]string{"not understood: x", ".git/objects/ab/cd"},
			[]string{"of objects, logs and refs"}},
	} {
		f := &fake{digest: "sha256:aa", git: []gitrepo.Report{x.report}}
		f.lines = slices.Concat(object, held, modified("a", 1))
		body := newClient(t, Options{Daemon: f}).get("/runs/r/review" + x.query).Body.String()
		for _, want := range x.has {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %s", name, want, body)
			}
		}
		for _, no := range x.no {
			if strings.Contains(body, no) {
				t.Errorf("%s: %s is there", name, no)
			}
		}
	}
}

package syntax_test

import (
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

const hostRules = "policy = 1\nversion = 3\n[signed]\nby = [\"ops+5e4f8c11+AeAA\"]\n" +
	"[profiles.build]\nusers = [\"alice\", \"1000\"]\ngroups = [\"dev\"]\n[profiles.\"*\"]\n" +
	"users = [\"root\"]\n[permissions.read]\nusers = [\"auditor\", \"1200\"]\ngroups = [\"adm\"]\n" +
	"[permissions.run]\ngroups = [\"dev\"]\n[permissions.administer]\nusers = [\"carol\"]\n" +
	"[limits]\npids = 7\n"

// What a ceiling says of policy files is read beside what it says of runs, and grants and takes
// nothing there.
func TestHostRules(t *testing.T) {
	file, err := syntax.Parse(syntax.Ceiling, "ceiling.toml", []byte(hostRules), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := syntax.Host{SignedBy: []string{"ops+5e4f8c11+AeAA"},
		Profiles: map[string]syntax.Audience{
			"build": {Users: []string{"alice", "1000"}, Groups: []string{"dev"}},
			"*":     {Users: []string{"root"}}},
		Read:       syntax.Audience{Users: []string{"auditor", "1200"}, Groups: []string{"adm"}},
		Run:        &syntax.Audience{Groups: []string{"dev"}},
		Administer: syntax.Audience{Users: []string{"carol"}}}
	if !reflect.DeepEqual(file.Host, want) || file.Version != 3 {
		t.Errorf("%+v, version %d", file.Host, file.Version)
	}
	only := policy.Top()
	only.Limits.PIDs, only.Outer = 7, policy.KeepingOuter()
	if file.Policy.Digest() != only.Digest() {
		t.Errorf("it changes what runs may do: %s", file.Policy)
	}
	if none, err := syntax.Parse(syntax.Ceiling, "ceiling.toml", []byte("policy = 1\n"),
		nil); err != nil || none.Host.SignedBy != nil || none.Host.Profiles != nil ||
		none.Host.Run != nil {
		t.Errorf("%+v, %v", none.Host, err)
	}
	// Who is to run tools is said by the section, also where it names nobody.
	if nobody, err := syntax.Parse(syntax.Ceiling, "ceiling.toml",
		[]byte("policy = 1\n[permissions.run]\n"), nil); err != nil || nobody.Host.Run == nil {
		t.Errorf("%+v, %v", nobody.Host, err)
	}
	// An empty list of keys admits nothing, and is not the same as none.
	if nobody, err := syntax.Parse(syntax.Ceiling, "ceiling.toml",
		[]byte("policy = 1\n[signed]\nby = []\n"), nil); err != nil || nobody.Host.SignedBy == nil {
		t.Errorf("%+v, %v", nobody.Host, err)
	}
}

// Nobody but the ceiling itself speaks for the host: no profile, no request, no fragment that a
// ceiling includes.
func TestHostRulesAreTheCeilings(t *testing.T) {
	for _, text := range []string{"policy = 1\n[permissions.read]\nusers = [\"alice\"]\n",
		"policy = 1\n[permissions.run]\nusers = [\"alice\"]\n",
		"policy = 1\n[permissions.administer]\nusers = [\"alice\"]\n",
		"policy = 1\n[signed]\nby = [\"ops+5e4f8c11+AeAA\"]\n",
		"policy = 1\n[profiles.build]\nusers = [\"alice\"]\n"} {
		for _, kind := range []syntax.Kind{syntax.Profile, syntax.Request} {
			if _, err := syntax.Parse(kind, "x.toml", []byte(text), nil); err == nil ||
				!strings.Contains(err.Error(), "is for the host's ceiling to say") {
				t.Errorf("%s: %v", kind, err)
			}
		}
		find := func(name string) (string, []byte, error) {
			if name == "part" {
				return "part.toml", []byte(text), nil
			}
			return "", nil, fs.ErrNotExist
		}
		if _, err := syntax.Parse(syntax.Ceiling, "ceiling.toml",
			[]byte("policy = 1\ninclude = [\"part\"]\n"), find); err == nil ||
			!strings.Contains(err.Error(), "part.toml:2:") {
			t.Errorf("included by a ceiling: %v", err)
		}
	}
	for text, says := range map[string]string{
		"policy = 1\nversion = -1\n": "version must be a " +
			"whole number from 1 on",
		"policy = 1\nversion = 1.5\n": "version must be a " +
			"whole number from 1 on",
		"policy = 1\n[signed]\n":                                           "signed.by is missing",
		"policy = 1\n[signed]\nby = [\"ops\"]\n":                           "is no public key",
		"policy = 1\n[signed]\nby = [\"PRIVATE+KEY+ops+5e4f8c11+AeAA\"]\n": "is no public key",
		"policy = 1\n[profiles]\nbuild = 3\n":                              "must be a table",
		"policy = 1\n[profiles.Build]\nusers = [\"a\"]\n":                  "is no name",
		"policy = 1\n[profiles.build]\nusers = [\"a b\"]\n":                "no name or number",
		"policy = 1\n[profiles.build]\nusers = [\"*\"]\n":                  "no name or number",
		"policy = 1\n[profiles.build]\nuser = [\"a\"]\n":                   "unknown key",
	} {
		if _, err := syntax.Parse(syntax.Ceiling, "ceiling.toml", []byte(text), nil); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestCeilingOfImages: a ceiling that bounds the programs of the host and does not name images
// grants none, and what Render writes of a ceiling means the same.
func TestCeilingOfImages(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "[**]",
		"[tools]\nallow = [\"core-utils/*\"]\n":  "[**]",
		"[tools]\nnative = [\"/usr/bin/git\"]\n": "[]",
		"[tools]\nnative = []\n":                 "[]",
		"[tools]\nnative = []\nimages = [\"debian\"]\n":             "[debian]",
		"[tools]\nnative = [\"/usr/bin/git\"]\nimages = [\"**\"]\n": "[**]",
		"[tools]\nnative = [\"**\"]\nimages = [\"**\"]\n":           "[**]",
	} {
		f, err := syntax.Parse(syntax.Ceiling, "ceiling.toml", []byte("policy = 1\n"+text), nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		back, err := syntax.Parse(syntax.Ceiling, "rendered.toml", syntax.Render(f), nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, syntax.Render(f))
		}
		got, again := fmt.Sprint(f.Policy.Tools.Images.Strings()), fmt.Sprint(back.Policy.Tools.Images.Strings())
		if got != want || again != want {
			t.Errorf("%s: images %s, rendered %s, want %s", text, got, again, want)
		}
	}
}

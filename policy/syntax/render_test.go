package syntax_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
	"github.com/jail-sandbox/jail/policy/syntax"
)

func TestRenderReadsBack(t *testing.T) {
	for _, kind := range []syntax.Kind{syntax.Ceiling, syntax.Request} {
		rapid.Check(t, func(t *rapid.T) {
			p := policytest.Valid().Draw(t, "policy")
			text := syntax.Render(syntax.File{Kind: kind, Name: "x", About: `a "b" \ c`, Policy: p})
			f, err := syntax.Parse(kind, "x.toml", text, nil)
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if !policytest.Same(f.Policy, p) || f.Name != "x" || f.About != `a "b" \ c` {
				t.Fatalf("%s\nreads as\n%s\nfrom\n%s", p, f.Policy, text)
			}
			if again := syntax.Render(f); string(again) != string(text) {
				t.Fatalf("written again as\n%s\nnot\n%s", again, text)
			}
		})
	}
}

// What a profile can say is written and read back whole.
func TestRenderProfileReadsBack(t *testing.T) {
	profile := policytest.Valid().Filter(func(p policy.Policy) bool {
		for _, m := range p.Mounts {
			if m.Target == "" || m.Access == policy.Cache &&
				(m.Name == "" || m.Size == policy.Unlimited) {
				return false
			}
		}
		t := p.Tools
		wasi := len(t.Allow) == 0 && len(t.Modules) == 0 || p.Syscalls.Has(policy.GroupWASI)
		return !p.Env.Set.Any && wasi && (len(t.Native)+len(t.Images) == 0 || p.Syscalls.Has(policy.GroupNative))
	})
	rapid.Check(t, func(t *rapid.T) {
		p := profile.Draw(t, "policy")
		text := syntax.Render(syntax.File{Kind: syntax.Profile, Policy: p})
		f, err := syntax.Parse(syntax.Profile, "x.toml", text, nil)
		if err != nil || !policytest.Same(f.Policy, p) {
			t.Fatalf("%v: %s\nreads as\n%s\nfrom\n%s", err, p, f.Policy, text)
		}
	})
}

func TestRenderTopAndNothing(t *testing.T) {
	top := policy.Top()
	top.Outer = policy.KeepingOuter()
	if text := string(syntax.Render(syntax.File{Kind: syntax.Ceiling,
		Policy: top})); text != "policy = 1\n" {
		t.Errorf("the top as a ceiling is\n%s", text)
	}
	text := string(syntax.Render(syntax.File{Kind: syntax.Profile, Policy: policy.Top()}))
	for _, want := range []string{"# memory is unlimited", "# set is any variable", `ports = ["*"]`,
		`credential = "*"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the top as a profile lacks %q:\n%s", want, text)
		}
	}
	text = string(syntax.Render(syntax.File{Kind: syntax.Profile}))
	if !strings.Contains(text, "# memory is nothing at all") || strings.Contains(text, "[tools]") {
		t.Errorf("nothing as a profile is\n%s", text)
	}
}

func TestRenderQuotes(t *testing.T) {
	p := policy.Policy{Env: policy.Env{Set: policy.Vars{Values: map[string]string{
		"A": "\"\\\n\t\x01\x7fé", "B.C": ""}}}}
	text := syntax.Render(syntax.File{Kind: syntax.Ceiling, Policy: p})
	f, err := syntax.Parse(syntax.Ceiling, "x.toml", append([]byte(nil), text...), nil)
	if err != nil && !strings.Contains(err.Error(), "limits") {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got := f.Policy.Env.Set; got.String() != p.Env.Set.String() {
		t.Errorf("%s is read as %s", p.Env.Set, got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, s := range []string{
		"policy = 1", "policy = 1\n[[mount]]\nsource = \"/a\"", "a.b.c = {d = [1, {e = 2}]}",
		"[[a]]\n[a.b]\n[[a.b.c]]\n[[a]]", "[a]\n[a]", "x = [[[[",
		"x = \"\\uD800\"", "\"\" = 1", "policy = 1\n[fetch]\nallow = [{host = \"*\"}]",
		"policy = 1\r\n", "x = 1979-05-27T07:32:00Z", "policy = 1\n[env]\nset.A = \"b\"",
	} {
		f.Add([]byte(s))
	}
	find := files(map[string]string{"base": whole})
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, kind := range []syntax.Kind{syntax.Profile, syntax.Ceiling, syntax.Request} {
			file, err := syntax.Parse(kind, "x.toml", text, find)
			if err != nil {
				if err.Error() == "" {
					t.Fatal("an error says nothing")
				}
				continue
			}
			if err := file.Policy.Check(); err != nil {
				t.Fatalf("%s lets through what does not pass: %v", kind, err)
			}
			out := syntax.Render(file)
			again, err := syntax.Parse(kind, "y.toml", out, nil)
			if err != nil || !policytest.Same(again.Policy, file.Policy) {
				t.Fatalf("%v: %s\nreads as\n%s\nfrom\n%s", err, file.Policy, again.Policy, out)
			}
		}
	})
}

package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// Each rule about characters is asked about each character, so that none stands at the wrong side
// of an edge.
func TestCharacters(t *testing.T) {
	const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"0123456789"
	var first []rune
	for r := range rune(0x180) {
		first = append(first, r)
	}
	printable := ""
	for r := '!'; r < 0x7f; r++ {
		printable += string(r)
	}
	without := func(all, some string) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune(some, r) {
				return -1
			}
			return r
		}, all)
	}
	glob := func(check func(policy.Glob) error, before, after string) func(string) error {
		return func(c string) error {
			g, err := policy.ParseGlob(before + c + after)
			if err != nil {
				return err
			}
			return check(g)
		}
	}
	top := resolve(t, policy.Layer{Name: "top", Policy: policy.Top()})
	inPath := without(printable, `\?#;[]{}"<>^|+%`+"`")
	for name, c := range map[string]struct {
		check func(c string) error
		good  string
	}{
		"host": {func(c string) error {
			_, err := policy.ParseHostName("a" + c + "b.example")
			return err
		}, lower + upper + digits + "-."},
		"type":   {glob(policy.CheckTypeGlob, "text/a", "b"), lower + digits + "*+-._"},
		"method": {func(c string) error { return policy.CheckMethod("A" + c) }, upper + "-_"},
		"credential": {func(c string) error { return policy.CheckCredential("a" + c) },
			lower + upper + digits + "-_."},
		"variable": {func(c string) error { return policy.CheckEnvName("A" + c) },
			without(printable, `=/*?[]{}\`)},
		"variables":    {glob(policy.FieldOf("env.pass").CheckGlob, "A", "B"), without(printable, `=/?[]{}\`)},
		"request path": {glob(policy.CheckURLGlob, "/a", "b"), inPath},
		"asked path": {func(c string) error {
			if d := top.Decide(policy.Connect{Host: "a.example", Port: 443, Method: "GET",
				Path: "/a" + c}); !d.Allowed {
				return fmt.Errorf("%s", d.Rule)
			}
			return nil
		}, inPath},
		"value": {policy.CheckEnvValue, ""},
	} {
		// All of the first, and those of which Unicode makes one of these: the small letter of the
		// sign for kelvin is a k.
		for _, r := range append(first, '\u212a', '\u3002', '\uff0e', '\uff41', '\ufffd') {
			if name == "value" && r != 0 {
				// All but NUL are good.
				continue
			}
			if err := c.check(string(r)); (err == nil) != strings.ContainsRune(c.good, r) {
				t.Errorf("%s with %q: %v", name, r, err)
			}
		}
	}
}

// Each bound of a length is asked about what is just within it, and what is just beyond.
func TestLengths(t *testing.T) {
	label := strings.Repeat("a", 63)
	glob := func(text string) error { _, err := policy.ParseGlob(text); return err }
	name := func(text string) error { return policy.CheckNames([]string{text}) }
	host := func(text string) error { _, err := policy.ParseHostName(text); return err }
	for what, c := range map[string]struct {
		check func(string) error
		make  func(n int) string
		most  int
	}{
		"host": {host, func(n int) string {
			return strings.Repeat(label+".", 3) + strings.Repeat("a", n-192)
		}, 253},
		"label": {host, func(n int) string {
			return strings.Repeat("a", n) + ".example"
		}, 63},
		"last label": {host, func(n int) string { return strings.Repeat("a", n) }, 63},
		"variable": {policy.CheckEnvName, func(n int) string {
			return strings.Repeat("A", n)
		}, 255},
		"value": {policy.CheckEnvValue, func(n int) string {
			return strings.Repeat("A", n)
		}, 128 << 10},
		"credential": {policy.CheckCredential, func(n int) string {
			return strings.Repeat("A", n)
		}, 128},
		"pattern":  {glob, func(n int) string { return strings.Repeat("a", n) }, 4096},
		"segments": {glob, func(n int) string { return strings.Repeat("a/", n-1) + "a" }, 64},
		"mixed segments": {glob, func(n int) string { return strings.Repeat("a*/", n-1) + "a*" },
			2},
		"a mixed segment": {glob, func(n int) string { return strings.Repeat("a", n-1) + "*" }, 64},
		"stars":           {glob, func(n int) string { return "a" + strings.Repeat("*", n) }, 1},
		"double stars":    {glob, func(n int) string { return strings.Repeat("**/", n-1) + "**" }, 1},
		"segments of name": {name, func(n int) string { return strings.Repeat("a/", n-1) + "a" },
			62},
		"stars of name": {name, func(n int) string { return strings.Repeat("*", n) + "a" }, 1},
		"hidden names": {many(func(p *policy.Policy,
			texts []string) {
			p.Workspace.Hide = texts
		}), counted, 256},
		"protected names": {many(func(p *policy.Policy,
			texts []string) {
			p.Workspace.Protect = texts
		}), counted, 256},
		"tools": {many(func(p *policy.Policy,
			texts []string) {
			p.Tools.Allow = each("a/", texts)
		}), counted, 256},
		"modules": {many(func(p *policy.Policy,
			texts []string) {
			p.Tools.Modules = each("/", texts)
		}), counted, 256},
		"programs": {many(func(p *policy.Policy,
			texts []string) {
			p.Tools.Native = each("/", texts)
		}), counted, 256},
		"variables passed": {many(func(p *policy.Policy, texts []string) {
			p.Env.Pass = each("", texts)
		}), counted, 256},
		"variables given": {many(func(p *policy.Policy, texts []string) {
			p.Env.Allow = each("", texts)
		}), counted, 256},
		"mounts": {many(func(p *policy.Policy, texts []string) {
			for _, text := range texts {
				p.Mounts = append(p.Mounts,
					policy.Mount{Source: "/" + text, Target: "/" + text, Access: policy.Read})
			}
		}), counted, 256},
		"constants": {many(func(p *policy.Policy, texts []string) {
			p.Env.Set.Values = map[string]string{}
			for _, text := range texts {
				p.Env.Set.Values[text] = ""
			}
		}), counted, 256},
		"rules": {many(func(p *policy.Policy, texts []string) {
			for range texts {
				p.Fetch.Allow = append(p.Fetch.Allow, policy.TopFetchRule())
			}
		}), counted, 256},
		"denying rules": {many(func(p *policy.Policy, texts []string) {
			for range texts {
				p.Fetch.Deny = append(p.Fetch.Deny, policy.DenyHost(policy.AnyHost))
			}
		}), counted, 256},
		"ports of a rule": {many(func(p *policy.Policy, texts []string) {
			for i := range texts {
				p.Fetch.Allow[0].Ports = append(p.Fetch.Allow[0].Ports,
					policy.OnePort(uint16(i+1))...)
			}
		}), counted, 255}, // and the one that was there
		"methods of a rule": {many(func(p *policy.Policy, texts []string) {
			p.Fetch.Allow[0].Methods = make(policy.Globs, len(texts))
			for i := range texts {
				p.Fetch.Allow[0].Methods[i] = policy.MustGlob("GET")
			}
		}), counted, 256},
		"paths of a rule": {many(func(p *policy.Policy,
			texts []string) {
			p.Fetch.Allow[0].Paths = each("/", texts)
		}), counted, 256},
		"types of a rule": {many(func(p *policy.Policy,
			texts []string) {
			p.Fetch.Allow[0].Types = each("text/", texts)
		}), counted, 256},
	} {
		if err := c.check(c.make(c.most)); err != nil {
			t.Errorf("%s: %d: %.200v", what, c.most, err)
		}
		if err := c.check(c.make(c.most + 1)); err == nil {
			t.Errorf("%s: %d are let through", what, c.most+1)
		}
	}
	for unit, c := range map[policy.Unit]struct{ least, most, under, over string }{
		policy.Count:    {"1", "2147483648", "0", "2147483649"},
		policy.Bytes:    {"1B", "1125899906842624B", "0B", "1125899906842625B"},
		policy.Duration: {"1ms", "8784h", "999us", "8784h1ns"},
		policy.Cores:    {"0.001", "4096", "0.0004", "4096.001"},
	} {
		for _, text := range []string{c.least, c.most} {
			if _, err := unit.Parse(text); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		for _, text := range []string{c.under, c.over} {
			if n, err := unit.Parse(text); err == nil {
				t.Errorf("%s is taken for %d", text, n)
			}
		}
	}
}

// counted are n words in one text, of which each is another.
func counted(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "a%d ", i)
	}
	return out.String()
}

// many checks a policy that has a list of so many words somewhere.
func many(put func(*policy.Policy, []string)) func(string) error {
	return func(text string) error {
		p := policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{policy.TopFetchRule()}}}
		put(&p, strings.Fields(text))
		if len(p.Fetch.Allow) > 1 {
			p.Fetch.Allow = p.Fetch.Allow[1:]
		}
		return p.Check()
	}
}

func each(before string, texts []string) (out policy.Globs) {
	for _, text := range texts {
		out = append(out, policy.MustGlob(before+text))
	}
	return out
}

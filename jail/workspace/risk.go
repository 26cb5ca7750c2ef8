package workspace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/secret"
)

// Risk says why a change needs attention: programs of the host may run or obey its content, or the
// change is not what it seems to be.
type Risk struct {
	// One of hooks, editor, agent, shell, autostart, policy, link, fold, secret, executable,
	// binary, package-manager, ci, set-id or split.
	Class policy.Class `json:"class"`
	Why   string       `json:"why"`
	// Hold: a commit holds it back until a path names it.
	Hold bool `json:"hold,omitempty"`
}

// Classes of risk, in addition to the classes of names in package policy.
const (
	// A file that becomes executable, or a script that becomes a binary.
	Executable policy.Class = "executable"
	// A link that leads out of the workspace.
	Outward policy.Class = "link"
	// A name that some file systems take for another one.
	Folds policy.Class = "fold"
	// Content that looks like a credential.
	Secret policy.Class = "secret"
	// Set-user-id, set-group-id or sticky bits, which are never committed.
	SetID policy.Class = "set-id"
	// A file with several links, each of which becomes a file of its own.
	Split policy.Class = "split"
	// The policy protects it.
	Named policy.Class = "policy"
	// No known risk; only for selecting.
	Plain policy.Class = "plain"
)

// RiskClasses returns all classes of risk, the gravest first.
func RiskClasses() []policy.Class {
	return []policy.Class{policy.Hooks, policy.Editor, policy.Agent, policy.Shell, policy.Autostart,
		Named, Outward, Folds, Secret, Executable,
		policy.Binary, policy.PackageManager, policy.CI, SetID, Split}
}

// has reports whether a change has a risk of this class, or for Plain, whether it has none.
func (c Change) has(class policy.Class) bool {
	return class == Plain && len(c.Risks) == 0 ||
		slices.ContainsFunc(c.Risks, func(r Risk) bool { return r.Class == class })
}

func (c *Change) risk(class policy.Class, hold bool, why string, args ...any) {
	c.Risks = append(c.Risks, Risk{class, fmt.Sprintf(why, args...), hold})
}

// nameRisks adds the risks of the change's name. Deletions have them, too.
func (c *Change) nameRisks() {
	if c.Path == "" {
		return
	}
	if r, ok := policy.Protected(string(c.Path)); ok {
		c.risk(r.Class, true, "%s", r.Reason)
	} else if r, ok := policy.Flagged(string(c.Path)); ok {
		c.risk(r.Class, false, "%s", r.Reason)
	}
}

// nodeRisks adds the risks of the change's types, modes and content. content has the findings in
// the new content.
func (c *Change) nodeRisks(after sys.Stat, content findings) {
	a, b := c.After, c.Before
	if a.Mode&0o7000 != 0 && a.Type == File {
		c.risk(SetID, false, "its mode has set-id or sticky bits, which are left out")
	}
	if a.Type == File && a.Mode&0o111 != 0 && (b == nil || b.Type != File || b.Mode&0o111 == 0) {
		c.risk(Executable, false, "becomes executable")
	}
	if a.Type == Link && c.Outside {
		c.risk(Outward, true, "the link leads out of the workspace, to %s", a.Target)
	}
	if c.Kind == Mode {
		return
	}
	if content.kind != "" {
		c.risk(policy.Binary, false, "is %s", content.kind)
		if content.script {
			c.risk(Executable, false, "was a script, and becomes %s", content.kind)
		}
	}
	if content.gitConfig {
		c.risk(policy.Hooks, true, "reads like a configuration of git that runs a command")
	}
	for _, what := range content.secrets {
		c.risk(Secret, false, "has what looks like %s", what)
	}
	if a.Type == File && after.Nlink > 1 {
		c.risk(Split, false, "has %d names in the shadow, each of which becomes a file of its own",
			after.Nlink)
	}
	if b != nil && b.Type == File && c.seen.Nlink > 1 {
		c.risk(Split, false,
			"has %d names outside of the shadow, and the others keep the old content", c.seen.Nlink)
	}
}

// foldKey returns a key that is equal for names that some file systems take for the same: it
// ignores case, invisible characters, and Unicode composition and width.
func foldKey(name string) string { return policy.FoldName(norm.NFKC.String(name)) }

// findings are the risks in the content of a file.
type findings struct {
	// kind of binary code, such as "a WebAssembly module"; "" for none.
	kind string
	// script: the old content was a script.
	script    bool
	gitConfig bool
	secrets   []string
}

var magics = []struct{ magic, kind string }{
	{"\x7fELF", "an ELF program or library"},
	{"\x00asm", "a WebAssembly module"},
	{"MZ", "a Windows program"},
	{"\xcf\xfa\xed\xfe", "a Mach-O program"},
	{"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"},
	{"!<arch>\n", "an archive of objects"},
}

func codeKind(head []byte) string {
	for _, m := range magics {
		if bytes.HasPrefix(head,
			[]byte(m.magic)) && (m.magic != "MZ" || bytes.IndexByte(head, 0) >= 0) {
			return m.kind
		}
	}
	return ""
}

// gitKeys are git settings that name a command, without their sections.
var gitKeys = []string{"fsmonitor", "sshcommand", "hookspath", "gitproxy", "textconv", "askpass",
	"pager", "editor", "clean", "smudge", "process", "external"}

// gitConfigLike reports whether the beginning of a file looks like a git configuration that runs a
// command, as in a renamed repository.
func gitConfigLike(head []byte) bool {
	text := strings.ToLower(string(head))
	if !strings.Contains(text, "[core") && !strings.Contains(text, "[filter") &&
		!strings.Contains(text, "[diff") && !strings.Contains(text, "[includeif") {
		return false
	}
	for line := range strings.SplitSeq(text, "\n") {
		key, _, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && slices.Contains(gitKeys, strings.TrimSpace(key)) {
			return true
		}
	}
	return strings.Contains(text, "[includeif")
}

// look sets kind and gitConfig from the beginning of a file.
func (f *findings) look(head []byte) {
	f.kind = codeKind(head)
	f.gitConfig = gitConfigLike(head[:min(len(head), sniffed)])
}

// longestToken bounds the length of a token in bytes.
const longestToken = 160

// scanner finds tokens, such as API keys, in content that is written to it in pieces.
type scanner struct {
	tail []byte
	// found has the tokens found so far.
	found map[string]bool
}

func newScanner() *scanner { return &scanner{found: map[string]bool{}} }

// maxTokens bounds the tokens that are found in one file.
const maxTokens = 100

// Write scans p. It never fails.
func (s *scanner) Write(p []byte) (int, error) {
	window := p
	if len(s.tail) > 0 {
		window = append(s.tail, p[:min(len(p), longestToken)]...)
		s.scan(window)
		window = p
	}
	s.scan(window)
	s.tail = append([]byte(nil), p[max(0, len(p)-longestToken):]...)
	return len(p), nil
}

func (s *scanner) scan(b []byte) {
	for _, t := range secret.Forms {
		if t.Whole == 0 && t.Part > 0 {
			continue
		}
		for rest := b; len(s.found) < maxTokens; {
			i := bytes.Index(rest, []byte(t.Prefix))
			if i < 0 {
				break
			}
			rest = rest[i:]
			n := tokenLength(t, rest)
			if n > 0 && (i == 0 || !alnum(b[len(b)-len(rest)-1])) {
				s.found[string(rest[:min(n, longestToken)])] = true
			}
			rest = rest[len(t.Prefix):]
		}
	}
}

// tokenLength returns the length of the token of form t at the beginning of b, 0 if there is none.
func tokenLength(t secret.Form, b []byte) int {
	n := len(t.Prefix)
	for n < len(b) && n < longestToken && (alnum(b[n]) || strings.IndexByte(t.More, b[n]) >= 0) {
		n++
	}
	if n-len(t.Prefix) < t.Whole {
		return 0
	}
	return n
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// fresh returns the kinds of the tokens that s has and old does not. old may be nil.
func (s *scanner) fresh(old *scanner) (out []string) {
	// The forms of one kind follow each other.
	for _, t := range secret.Forms {
		for text := range s.found {
			if strings.HasPrefix(text, t.Prefix) && !old.has(text) && !slices.Contains(out, t.What) {
				out = append(out, t.What)
			}
		}
	}
	return out
}

// has reports whether a token in s is a prefix of text, or text is one of it. s may be nil.
func (s *scanner) has(text string) bool {
	if s == nil {
		return false
	}
	for known := range s.found {
		if strings.HasPrefix(known, text) || strings.HasPrefix(text, known) {
			return true
		}
	}
	return false
}

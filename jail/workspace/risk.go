package workspace

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// A Risk says why a change is more than a change to a file: the host would run or obey what it says, or it does not what it seems to do.
type Risk struct {
	Class policy.Class `json:"class"`
	Why   string       `json:"why"`
	// Hold: a commit holds it back until someone names it.
	Hold bool `json:"hold,omitempty"`
}

// Classes of risk beside those that names have; see policy.Class.
const (
	Executable policy.Class = "executable" // a file that becomes executable, or a script that becomes a binary
	Outward    policy.Class = "link"       // a link that leads out of the workspace
	Folds      policy.Class = "fold"       // a name that some file systems take for another one
	Secret     policy.Class = "secret"     // content that looks like a credential
	SetID      policy.Class = "set-id"     // set-user-id, set-group-id or sticky bits, which are never committed
	Split      policy.Class = "split"      // a file with several names, of which each becomes a file of its own
	Named      policy.Class = "policy"     // the policy protects it
	Plain      policy.Class = "plain"      // no risk is known; only for selecting
)

// RiskClasses are all classes of risk, the gravest first.
func RiskClasses() []policy.Class {
	return []policy.Class{policy.Hooks, policy.Editor, policy.Agent, policy.Shell, policy.Autostart, Named, Outward, Folds, Secret, Executable,
		policy.Binary, policy.PackageManager, policy.CI, SetID, Split}
}

// Has reports whether a change has a risk of that class; Plain is that it has none.
func (c Change) Has(class policy.Class) bool {
	for _, r := range c.Risks {
		if r.Class == class {
			return true
		}
	}
	return class == Plain && len(c.Risks) == 0
}

func (c *Change) risk(class policy.Class, hold bool, why string, args ...any) {
	c.Risks = append(c.Risks, Risk{class, fmt.Sprintf(why, args...), hold})
}

// nameRisks adds what the name alone says, of deletions too.
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

// nodeRisks adds what the two sides say. content is what was found while the new content was hashed.
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
		c.risk(Split, false, "has %d names in the shadow, each of which becomes a file of its own", after.Nlink)
	}
	if b != nil && b.Type == File && c.seen.Nlink > 1 {
		c.risk(Split, false, "has %d names outside of the shadow, and the others keep the old content", c.seen.Nlink)
	}
}

// foldKey is the same for all names that some file system takes for one: without regard to case, to characters that cannot be seen, and to how
// Unicode composes and widens characters.
func foldKey(name string) string { return policy.FoldName(norm.NFKC.String(name)) }

// Findings are what the content of a file tells about it.
type findings struct {
	kind      string // of code that nobody can read
	script    bool   // the old content was a script
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
		if bytes.HasPrefix(head, []byte(m.magic)) && (m.magic != "MZ" || bytes.IndexByte(head, 0) >= 0) {
			return m.kind
		}
	}
	return ""
}

// gitKeys are settings of git that name a command, in the section that they are in.
var gitKeys = []string{"fsmonitor", "sshcommand", "hookspath", "gitproxy", "textconv", "askpass", "pager", "editor", "clean", "smudge", "process", "external"}

// gitConfigLike reports whether a file reads like a git configuration with a command in it, as one in a renamed repository would.
func gitConfigLike(head []byte) bool {
	text := strings.ToLower(string(head))
	if !strings.Contains(text, "[core") && !strings.Contains(text, "[filter") && !strings.Contains(text, "[diff") && !strings.Contains(text, "[includeif") {
		return false
	}
	for line := range strings.SplitSeq(text, "\n") {
		key, _, ok := strings.Cut(strings.TrimSpace(line), "=")
		for _, k := range gitKeys {
			if ok && strings.TrimSpace(key) == k {
				return true
			}
		}
	}
	return strings.Contains(text, "[includeif")
}

// look reads what the beginning of a file tells.
func (f *findings) look(head []byte) {
	f.kind = codeKind(head)
	f.gitConfig = gitConfigLike(head[:min(len(head), sniffed)])
}

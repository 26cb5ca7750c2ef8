package approvals

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
)

// External is an action that a program outside of any jail proposes. All but policy grants are
// carried out by their proposer, who claims the action once it is approved (claim.go). One field is
// set, or none for the other types.
type External struct {
	// Of the type gate.
	Gate *Gate `json:"gate,omitempty"`
	// Of the type git.push.
	Push *Push `json:"push,omitempty"`
	// Of the type pr.create.
	PullRequest *PullRequest `json:"pull_request,omitempty"`
	// Of the type policy.grant.
	PolicyGrant *PolicyGrant `json:"policy_grant,omitempty"`
}

// A Gate is an action of a gatekeeper on its resource.
type Gate struct {
	// The name of the gatekeeper: a-z, 0-9 and -.
	Gatekeeper string `json:"gatekeeper"`
	// The name of the gatekeeper's action: letters, digits, and _ . - between them.
	Action string `json:"action"`
	// The resource: a URL or a name, at most 1 KiB.
	Resource string `json:"resource"`
	// Further arguments: the text of a JSON object without duplicate keys, at most 16 KiB.
	Args string `json:"args,omitempty"`
	// Whether the gatekeeper can undo it.
	Reversible bool `json:"reversible,omitempty"`
}

// A Push updates a branch of a remote repository to a commit, without force.
type Push struct {
	// The URL of the repository, with http or https and without a user, a query or a fragment.
	Remote string `json:"remote"`
	// The branch: refs/heads/NAME.
	Ref string `json:"ref"`
	// The new commit of the branch, in hexadecimal digits.
	Commit string `json:"commit"`
	// The commit of the branch before the push; empty if the push creates the branch.
	Was string `json:"was,omitempty"`
	// The name of the credential for the push.
	Credential string `json:"credential,omitempty"`
	// The first 20 protected names that the push changes. The daemon sets it.
	Protected []string `json:"protected,omitempty"`
}

// A PullRequest asks for a branch to be merged.
type PullRequest struct {
	// The URL of the repository, as for a push.
	Repository string `json:"repository"`
	// The branch to merge, and the branch to merge it into.
	Head string `json:"head"`
	Base string `json:"base"`
	// The commit of the head, in hexadecimal digits.
	Commit string `json:"commit"`
	// One line of at most 256 bytes.
	Title string `json:"title"`
	// At most 16 KiB.
	Body  string `json:"body,omitempty"`
	Draft bool   `json:"draft,omitempty"`
	// The name of the credential for it.
	Credential string `json:"credential,omitempty"`
}

// Bounds of external actions, in bytes.
const (
	maxURL   = 1 << 10
	maxTitle = 256
	maxText  = 16 << 10
	// maxName bounds names of credentials and of what a gatekeeper does.
	maxName = 128
)

// A task is the description of an external action of some type.
type task interface {
	// kind returns the type of the action.
	kind() string
	// check returns an error for a malformed field.
	check() error
	// String returns the daemon's description of the action.
	String() string
	// target returns the text that must be equal for a grant to cover the action.
	target() string
	size() int
}

// task returns the field that is set, or nil if the action is not external.
func (e External) task() task {
	switch {
	case e.Gate != nil:
		return e.Gate
	case e.Push != nil:
		return e.Push
	case e.PullRequest != nil:
		return e.PullRequest
	case e.PolicyGrant != nil:
		return e.PolicyGrant
	}
	return nil
}

// carried reports whether the proposer carries the action out. Policy grants are applied by jail.
func (e External) carried() bool { return e.task() != nil && e.PolicyGrant == nil }

// check returns an error unless exactly one field is set, of this type and well formed.
func (e External) check(kind string) error {
	n := 0
	for _, set := range []bool{e.Gate != nil, e.Push != nil, e.PullRequest != nil,
		e.PolicyGrant != nil} {
		if set {
			n++
		}
	}
	if t := e.task(); n == 1 && t.kind() == kind {
		return t.check()
	}
	return fmt.Errorf("an action of the type %s has its own description and no other: one of gate, "+
		"push, pull_request and policy_grant", kind)
}

// trimmed returns a copy of e without its long texts.
func (e External) trimmed() External {
	if g := e.Gate; g != nil {
		short := *g
		short.Args = ""
		e.Gate = &short
	}
	if r := e.PullRequest; r != nil {
		short := *r
		short.Body = ""
		e.PullRequest = &short
	}
	return e
}

func (*Gate) kind() string { return policy.ActionGate }

func (g *Gate) check() error {
	return errors.Join(checkName("gate.gatekeeper", g.Gatekeeper, gatekeeperName()),
		checkName("gate.action", g.Action, plainName()),
		checkLine("gate.resource", g.Resource, maxURL, true), checkArgs("gate.args", g.Args))
}

func (g *Gate) String() string {
	text := fmt.Sprintf("have the gatekeeper %s do %s to %s", g.Gatekeeper, g.Action,
		runners.Printable(g.Resource, 300))
	if g.Args != "" {
		text += " with " + runners.Printable(g.Args, 300)
	}
	return text
}

func (g *Gate) target() string { return g.Gatekeeper + " " + g.Action + " " + g.Resource }

func (g *Gate) size() int {
	return len(g.Gatekeeper) + len(g.Action) + len(g.Resource) + len(g.Args)
}

func (*Push) kind() string { return policy.ActionPush }

func (p *Push) check() error {
	err := errors.Join(checkURL("push.remote", p.Remote), checkBranch("push.ref", p.Ref),
		checkCommit("push.commit", p.Commit), checkCredential("push.credential", p.Credential))
	if p.Was != "" {
		err = errors.Join(err, checkCommit("push.was", p.Was))
	}
	if p.Protected != nil {
		err = errors.Join(err, errors.New("push.protected: the daemon says that, of the names of "+
			"\"changed\""))
	}
	if err == nil && p.Was == p.Commit {
		err = errors.New("push.was: the branch is that commit already")
	}
	return err
}

func (p *Push) String() string {
	text := fmt.Sprintf("push commit %s to %s of %s", p.Commit, p.Ref, p.Remote)
	if p.Was == "" {
		text += ", which is a new branch there"
	} else {
		text += ", which is " + p.Was + " there"
	}
	if len(p.Protected) > 0 {
		text += "; protected names are changed: " + few(p.Protected)
	}
	return withCredential(text, p.Credential)
}

func (p *Push) target() string { return p.Remote + " " + p.Ref + " " + p.Credential }

func (p *Push) size() int {
	return len(p.Remote) + len(p.Ref) + len(p.Commit) + len(p.Was) + len(p.Credential) +
		sizeOf(p.Protected)
}

func (*PullRequest) kind() string { return policy.ActionPullRequest }

func (r *PullRequest) check() error {
	err := errors.Join(checkURL("pull_request.repository", r.Repository),
		checkBranch("pull_request.head", headsPrefix+r.Head),
		checkBranch("pull_request.base", headsPrefix+r.Base),
		checkCommit("pull_request.commit", r.Commit),
		checkLine("pull_request.title", r.Title, maxTitle, true),
		checkText("pull_request.body", r.Body, maxText),
		checkCredential("pull_request.credential", r.Credential))
	if err == nil && r.Head == r.Base {
		err = errors.New("pull_request.head: it is the base, too")
	}
	return err
}

func (r *PullRequest) String() string {
	kind := "pull request"
	if r.Draft {
		kind = "draft of a pull request"
	}
	return withCredential(fmt.Sprintf("open a %s in %s to merge %s (commit %s) into %s, titled %q",
		kind, r.Repository, r.Head, r.Commit, r.Base, r.Title), r.Credential)
}

func (r *PullRequest) target() string { return r.Repository + " " + r.Base + " " + r.Credential }

func (r *PullRequest) size() int {
	return len(r.Repository) + len(r.Head) + len(r.Base) + len(r.Commit) + len(r.Title) +
		len(r.Body) + len(r.Credential)
}

func withCredential(text, name string) string {
	if name == "" {
		return text
	}
	return text + ", with the credential " + name
}

// pattern returns a function that compiles a regular expression on its first call.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Syntax of names.
var (
	gatekeeperName = pattern(`^[a-z0-9][a-z0-9-]{0,62}$`)
	plainName      = pattern(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)
	commitName     = pattern(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	profileName    = pattern(`^[a-z0-9][a-z0-9_-]{0,62}$`)
)

// IsActionName reports whether a name is valid as the Action of a Gate.
func IsActionName(name string) bool { return len(name) <= maxName && plainName().MatchString(name) }

const headsPrefix = "refs/heads/"

func checkName(field, name string, form *regexp.Regexp) error {
	if len(name) > maxName || !form.MatchString(name) {
		return fmt.Errorf("%s: %.80q is no name of the form %s", field, name, form)
	}
	return nil
}

func checkCredential(field, name string) error {
	if name == "" {
		return nil
	}
	return checkName(field, name, plainName())
}

func checkCommit(field, name string) error {
	if !commitName().MatchString(name) || strings.Trim(name, "0") == "" {
		return fmt.Errorf("%s: %.80q is no commit: 40 or 64 digits of 0-9 and a-f, not all 0", field,
			name)
	}
	return nil
}

func checkBranch(field, ref string) error {
	if !strings.HasPrefix(ref, headsPrefix) || !gitrepo.ValidRef(ref) || len(ref) > maxTitle {
		return fmt.Errorf("%s: %.80q is no branch that git takes", field, ref)
	}
	return checkLine(field, ref, maxTitle, true)
}

func checkURL(field, text string) error {
	u, err := url.Parse(text)
	// Spaces could make the summary of the action read like another action.
	if err != nil || len(text) > maxURL || strings.ContainsFunc(text, unicode.IsSpace) ||
		u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		strings.HasSuffix(text, "#") || strings.Trim(u.Path, "/") == "" {
		return fmt.Errorf("%s: %.80q is no URL of a repository: http or https, a host and a path, and "+
			"no user, query or fragment", field, text)
	}
	return checkLine(field, text, maxURL, true)
}

// checkLine returns an error unless a text is a single line of at most most bytes that passes
// checkText. If needed is true, it must not be blank.
func checkLine(field, text string, most int, needed bool) error {
	if needed && strings.TrimSpace(text) == "" {
		return fmt.Errorf("%s is missing", field)
	}
	if strings.ContainsAny(text, "\n\t") {
		return fmt.Errorf("%s: %.80q is more than one line", field, text)
	}
	return checkText(field, text, most)
}

// checkText returns an error for a text of more than most bytes, and for a text that people would
// not see as it is: not UTF-8, or with control or invisible characters, such as bidirectional
// controls.
func checkText(field, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%s has %d bytes, at most %d", field, len(text), most)
	}
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) ||
			unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r))
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, hidden) {
		return fmt.Errorf("%s: %.80q is not UTF-8 or has characters that nobody sees", field, text)
	}
	return nil
}

// maxDepth bounds the nesting of objects and lists in the arguments of a gatekeeper.
const maxDepth = 32

// checkArgs returns an error unless a text is empty or one JSON object without duplicate keys at
// any level: with duplicates, decoders could read something else than people see.
func checkArgs(field, text string) error {
	if text == "" {
		return nil
	}
	if err := checkText(field, text, maxText); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	first, err := d.Token()
	if err != nil || first != json.Delim('{') {
		return fmt.Errorf("%s: %.80q is no JSON object", field, text)
	}
	if err := checkObject(d, first, maxDepth); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: something follows the object", field)
	}
	return nil
}

// checkObject reads an object or list after its opening token, and checks keys and depth.
func checkObject(d *json.Decoder, opened json.Token, depth int) error {
	if depth == 0 {
		return fmt.Errorf("more than %d objects and lists in each other", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		if opened == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			// Most decoders ignore the case of keys. ToUpper folds ſ to S, and ToLower folds the
			// Kelvin sign to k.
			name := strings.ToLower(strings.ToUpper(key.(string)))
			if seen[name] {
				return fmt.Errorf("the key %.80q is there twice", key)
			}
			seen[name] = true
		}
		value, err := d.Token()
		if err != nil {
			return err
		}
		if value == json.Delim('{') || value == json.Delim('[') {
			if err := checkObject(d, value, depth-1); err != nil {
				return err
			}
		}
	}
	_, err := d.Token()
	return err
}

package syntax

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Host is a ceiling's settings for policy files and users, apart from the policy of runs. It grants
// nothing to a run.
type Host struct {
	// SignedBy are verifier keys, one of which must have signed each of the operator's profiles.
	// Nil requires no signature, and an empty list refuses all.
	SignedBy []string
	// SignedImages requires that each image was added by name, with a signature of a publisher
	// whose keys are in use.
	SignedImages bool
	// Profiles are the audiences of profiles, by name. "*" is for all others, and for policy files
	// of callers. Nil allows everything to everybody.
	Profiles map[string]Audience
	// Read may see the runs and records of all users, as root may.
	Read Audience
	// Run may run tools and decide on their results, as root may. Nil means all who may connect.
	Run *Audience
	// Administer may decide on runs of other users except root's, and install tools, as root may.
	Administer Audience
	// Approve decides on actions that wait for an approval, as root may. Nil means their owners.
	Approve *Audience
}

// An Audience is a set of users and groups of the host, by name or number.
type Audience struct {
	Users  []string
	Groups []string
}

// Others is the name in Host.Profiles for all profiles without an entry.
const Others = "*"

// Bounds of a ceiling's settings.
const (
	maxVersion = 1 << 53
	// bytes of the name of a user or group
	maxAudience = 128
)

// ceilingOnly reports whether a key is in a ceiling itself and not in an include. Otherwise it adds
// an error.
func (r *reader) ceilingOnly(key string, v *node) bool {
	if r.kind != Ceiling || r.included {
		r.errs.add(v.pos, "it belongs into /etc/jail/ceiling.toml itself",
			"%s is for the host's ceiling to say", key)
		return false
	}
	return true
}

func (r *reader) fileVersion(key string, v *node) {
	n, ok := v.integer()
	if v.kind != unstable.Integer || !ok || n < 1 || n > maxVersion {
		r.errs.add(v.pos, "count up from 1 with each change", "%s must be a whole number from 1 on",
			key)
		return
	}
	r.draft.version = n
}

// keyForm matches a verifier key of a signed note:
// https://pkg.go.dev/golang.org/x/mod/sumdb/note.
var keyForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^\s+]{1,100}\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{1,200}$`)
})

func (r *reader) signed(key string, v *node) {
	if !r.ceilingOnly(key, v) {
		return
	}
	if v.get("by") == nil && v.get("images") == nil && v.table != nil {
		r.errs.add(v.pos, "name the keys, as in by = [\"ops+5e4f8c11+Ae…\"]", "%s.by is missing",
			key)
	}
	r.table(key, v, map[string]func(string, *node){"images": func(k string, v *node) {
		r.flag(k, v, &r.draft.host.SignedImages)
	}, "by": func(k string, v *node) {
		keys := r.texts(k, v, func(text string) error {
			if !keyForm().MatchString(text) {
				return fmt.Errorf("%.60q is no public key such as jail tool key new prints", text)
			}
			return nil
		})
		r.draft.host.SignedBy = append([]string{}, keys...)
	}})
}

func (r *reader) audiences(key string, v *node) {
	if !r.ceilingOnly(key, v) {
		return
	}
	if v.table == nil {
		r.wrongType(key, v, "a table by profiles, as in [profiles.build]")
		return
	}
	if r.tooMany(key, v, len(v.keys)) {
		return
	}
	r.draft.host.Profiles = map[string]Audience{}
	for _, name := range v.keys {
		item, itemKey := v.get(name), key+"."+Quote(name)
		r.draft.at[itemKey] = v.keyAt[name]
		if name != Others {
			if err := CheckName(name); err != nil {
				r.errs.add(v.keyAt[name], "", "%s: %v", itemKey, err)
				continue
			}
		}
		var a Audience
		r.audience(itemKey, item, &a)
		r.draft.host.Profiles[name] = a
	}
}

func (r *reader) permissions(key string, v *node) {
	if !r.ceilingOnly(key, v) {
		return
	}
	who := func(a func() *Audience) func(string, *node) {
		return func(k string, v *node) {
			r.draft.at[k] = v.pos
			r.audience(k, v, a())
		}
	}
	host := &r.draft.host
	r.table(key, v, map[string]func(string, *node){
		"read":       who(func() *Audience { return &host.Read }),
		"run":        who(func() *Audience { host.Run = &Audience{}; return host.Run }),
		"administer": who(func() *Audience { return &host.Administer }),
		"approve":    who(func() *Audience { host.Approve = &Audience{}; return host.Approve }),
	})
}

func (r *reader) audience(key string, v *node, a *Audience) {
	r.table(key, v, map[string]func(string, *node){
		"users":  func(k string, v *node) { a.Users = r.texts(k, v, checkAudience) },
		"groups": func(k string, v *node) { a.Groups = r.texts(k, v, checkAudience) },
	})
}

func checkAudience(name string) error {
	if name == "" || len(name) > maxAudience || strings.ContainsAny(name, ":,*") ||
		strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("it is no name or number of a user or group")
	}
	return nil
}

// Package policies finds, reads and writes the profiles and policy files that commands name.
package policies

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

// Load reads the shipped profiles and the host's own.
func Load(env *cli.Env) (*profiles.Set, error) {
	set, err := profiles.Load(env.Config.Profiles)
	if err != nil {
		return nil, exit.Failed(err, "", "profiles: %v", err)
	}
	return set.For(places()), nil
}

// places returns the values of a policy's variables for a run that starts in the working directory.
func places() syntax.Places {
	p := syntax.Places{Home: asuser.Home(uint32(os.Geteuid()))}
	if dir, err := os.Getwd(); err == nil {
		p.Workspace = dir
	}
	return p
}

// NamesFile reports whether arg is the path of a policy file and not the name of a profile. The
// name of a fragment may have a slash, as tools/python has.
func NamesFile(arg string) bool {
	return strings.HasSuffix(arg, ".toml") || filepath.IsAbs(arg) || strings.HasPrefix(arg, "./") ||
		strings.HasPrefix(arg, "../")
}

// KindOf returns the kind of a policy file, by its name.
func KindOf(path string) syntax.Kind {
	switch filepath.Base(path) {
	case "ceiling.toml":
		return syntax.Ceiling
	case prepare.WorkspaceFile:
		return syntax.Request
	}
	return syntax.Profile
}

// OpenAlone loads the profiles and opens one policy.
func OpenAlone(env *cli.Env, arg string) (set *profiles.Set, file syntax.File, err error) {
	if set, err = Load(env); err == nil {
		file, err = Open(set, arg)
	}
	return set, file, err
}

// Open reads a policy file, or a profile or fragment by its name.
func Open(set *profiles.Set, arg string) (syntax.File, error) {
	if !NamesFile(arg) {
		p, err := set.Show(arg)
		switch {
		case errors.Is(err, profiles.ErrNotFound):
			return syntax.File{},
				exit.NotFound("jail profile list; a file is named by a path, as ./my.toml",
					"no profile is called %.80q", arg)
		case err == nil:
			err = p.Err
		}
		if err != nil {
			return syntax.File{}, exit.Usage("", "%v", err)
		}
		return p.File, nil
	}
	text, err := Read(arg)
	if err != nil {
		return syntax.File{}, err
	}
	file, err := set.Parse(KindOf(arg), arg, text)
	if err != nil {
		return file, exit.Usage("", "%v", err)
	}
	return file, nil
}

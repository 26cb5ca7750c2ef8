package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor"
)

func (a *app) policyCommand() *cobra.Command {
	return a.group("policy", "check, explain, learn, compare and test policies", a.policyCheckCommand(), a.policyShowCommand(), a.policyExplainCommand(),
		a.policyDiffCommand(), a.policyTestCommand(), a.policyLearnCommand(), a.policyScoreCommand(), a.policySchemaCommand(), a.policySignCommand())
}

func (a *app) loadProfiles() (*profiles.Set, error) {
	set, err := profiles.Load(a.config.Profiles)
	if err != nil {
		return nil, failed(err, "", "profiles: %v", err)
	}
	return set.For(a.places()), nil
}

// places are what the variables of a policy stand for in a run that started here.
func (a *app) places() syntax.Places {
	p := syntax.Places{Home: asuser.Home(uint32(os.Geteuid()))}
	if dir, err := os.Getwd(); err == nil {
		p.Workspace = dir
	}
	return p
}

// namesFile tells the path of a policy file from the name of a profile. A name of a fragment may have a slash, as tools/python.
func namesFile(arg string) bool {
	return strings.HasSuffix(arg, ".toml") || filepath.IsAbs(arg) || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../")
}

// kindOf is what a file is used as, by its name.
func kindOf(path string) syntax.Kind {
	switch filepath.Base(path) {
	case "ceiling.toml":
		return syntax.Ceiling
	case supervisor.WorkspaceFile:
		return syntax.Request
	}
	return syntax.Profile
}

// ceiling reads the host's ceiling. Without one everything may be granted.
func (a *app) ceiling(set *profiles.Set) (policy.Layer, error) {
	layer := policy.Layer{Name: "ceiling", Source: profiles.BuiltIn, Policy: policy.Top()}
	text, err := profiles.ReadTrusted(a.config.Ceiling)
	if errors.Is(err, fs.ErrNotExist) {
		return layer, nil
	}
	if err != nil {
		return layer, failed(err, "", "ceiling: %v", err)
	}
	file, err := set.Parse(syntax.Ceiling, a.config.Ceiling, text)
	if err != nil {
		return layer, failed(err, "jail policy check "+a.config.Ceiling, "%v", err)
	}
	return file.Layer(layer.Name, a.config.Ceiling), nil
}

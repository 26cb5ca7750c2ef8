package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

func (a *app) policyShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [flags] NAME|FILE",
		Short: "show what a profile or policy file grants, whole",
		Long: `Show what a profile or policy file grants, in its normal form, with all that it includes.
With --effective, what is left of it under the ceiling of this host: that is what a run gets, before its own flags narrow it.`,
		Example: "  jail policy show default\n  jail policy show --effective ./my.toml",
		Args:    exactly("NAME|FILE"),
	}
	effective := cmd.Flags().Bool("effective", false, "meet the ceiling of this host")
	asJSON := jsonFlag(cmd, "print an object with the policy and its digest")
	a.completeFirst(cmd, a.profileNames)
	cmd.RunE = func(_ *cobra.Command, args []string) error { return a.showPolicy(args[0], *effective, *asJSON) }
	return cmd
}

func (a *app) showPolicy(arg string, effective, asJSON bool) error {
	set, err := a.loadProfiles()
	if err != nil {
		return err
	}
	file, err := openPolicy(set, arg)
	if err != nil {
		return err
	}
	if effective {
		if file, err = a.met(set, file); err != nil {
			return err
		}
	}
	view := struct {
		Name     string        `json:"name,omitempty"`
		About    string        `json:"about,omitempty"`
		Source   string        `json:"source"`
		Kind     string        `json:"kind"`
		Digest   string        `json:"digest"`
		Policy   policy.Policy `json:"policy"`
		Warnings []string      `json:"warnings,omitempty"`
	}{file.Name, file.About, file.Source, file.Kind.String(), file.Policy.Digest(), file.Policy, nil}
	if file.Kind == syntax.Profile {
		view.Warnings = file.Policy.Warnings()
	}
	return a.show(asJSON, view, func(w io.Writer) error {
		_, err := w.Write(syntax.Render(file))
		return err
	})
}

// openPolicy reads a policy file, or a profile or fragment by its name.
func openPolicy(set *profiles.Set, arg string) (syntax.File, error) {
	if !namesFile(arg) {
		p, err := set.Show(arg)
		switch {
		case errors.Is(err, profiles.ErrNotFound):
			return syntax.File{}, notFound("jail profile list; a file is named by a path, as ./my.toml", "no profile is called %q", arg)
		case err == nil:
			err = p.Err
		}
		if err != nil {
			return syntax.File{}, usage("", "%v", err)
		}
		return p.File, nil
	}
	text, err := readPolicy(arg)
	if err != nil {
		return syntax.File{}, err
	}
	file, err := set.Parse(kindOf(arg), arg, text)
	if err != nil {
		return file, usage("", "%v", err)
	}
	return file, nil
}

// met is the file with what the ceiling leaves of it.
func (a *app) met(set *profiles.Set, file syntax.File) (syntax.File, error) {
	ceiling, err := a.ceiling(set)
	if err != nil {
		return file, err
	}
	eff, err := policy.Resolve(ceiling, policy.Layer{Name: file.Kind.String(), Source: file.Source, Policy: file.Policy})
	if err != nil {
		return file, usage("", "%v", err)
	}
	file.Policy = eff.Policy()
	return file, nil
}

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

// A finding is something that is wrong with a policy file, or that weakens a jail.
type finding struct {
	Severity string `json:"severity"` // error or warning
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
}

func (f finding) String() string {
	text := f.File
	if f.Line > 0 {
		text += fmt.Sprintf(":%d:%d", f.Line, f.Column)
	}
	if f.Severity == "warning" {
		text += ": warning"
	}
	text += ": " + f.Message
	if f.Hint != "" {
		text += ": " + f.Hint
	}
	return text
}

func (a *app) policyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] FILE...",
		Short: "say all that is wrong with policy files",
		Long: `Say all that is wrong with policy files, with file, line and column, and warn of what weakens a jail.
Exits with 0 if nothing is wrong, and with 1 if something is. Warnings are no errors.`,
		Example: "  jail policy check my.toml /etc/jail/ceiling.toml",
		Args:    atLeast("FILE"),
	}
	as := cmd.Flags().String("as", "", "what the files are: profile, ceiling or request `KIND` (default profile, and ceiling for ceiling.toml)")
	asJSON := jsonFlag(cmd, "print a list of objects")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		kind, err := parseKind(*as)
		if err != nil {
			return err
		}
		return a.checkPolicies(args, kind, *asJSON)
	}
	return cmd
}

// parseKind returns which kind of file it is to be, nil for as it is called.
func parseKind(text string) (*syntax.Kind, error) {
	for _, k := range []syntax.Kind{syntax.Profile, syntax.Ceiling, syntax.Request} {
		if text == k.String() {
			return &k, nil
		}
	}
	if text != "" {
		return nil, usage("", "--as %s: want profile, ceiling or request", text)
	}
	return nil, nil
}

func (a *app) checkPolicies(paths []string, kind *syntax.Kind, asJSON bool) error {
	set, err := a.loadProfiles()
	if err != nil {
		return err
	}
	found := []finding{}
	var unread error // the exit code of the first file that cannot be read; the others are checked all the same
	for _, path := range paths {
		k := kindOf(path)
		if kind != nil {
			k = *kind
		}
		one, err := checkPolicy(path, k, set)
		if err != nil {
			e := describe(err)
			a.complain(e)
			if unread == nil {
				unread = code(e.Exit())
			}
		}
		found = append(found, one...)
	}
	err = a.show(asJSON, found, func(w io.Writer) error {
		for _, f := range found {
			fmt.Fprintln(w, printable(f.String()))
		}
		return nil
	})
	if err != nil || unread != nil {
		return errors.Join(err, unread)
	}
	for _, f := range found {
		if f.Severity == "error" {
			return exitNo
		}
	}
	return nil
}

func checkPolicy(path string, kind syntax.Kind, set *profiles.Set) ([]finding, error) {
	text, err := readPolicy(path)
	if err != nil {
		return nil, err
	}
	file, err := syntax.Parse(kind, path, text, set.Find)
	var all syntax.Errors
	switch {
	case errors.As(err, &all):
		var found []finding
		for _, e := range all {
			found = append(found, finding{"error", e.File, e.Line, e.Column, e.Message, e.Hint})
		}
		return found, nil
	case err != nil:
		return nil, err
	case kind != syntax.Profile:
		return nil, nil // a ceiling is wide by nature
	}
	var found []finding
	for _, w := range file.Policy.Warnings() {
		found = append(found, finding{Severity: "warning", File: path, Message: w})
	}
	return found, nil
}

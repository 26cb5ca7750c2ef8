package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/profiles"
)

func (a *app) profileCommand() *cobra.Command {
	return a.group("profile", "list, show and write profiles", a.profileListCommand(), a.profileShowCommand(), a.profileNewCommand())
}

// A profileView is a profile as --json shows it.
type profileView struct {
	Name     string `json:"name"`
	About    string `json:"about,omitempty"`
	Origin   string `json:"origin"`
	Fragment bool   `json:"fragment"`
	Error    string `json:"error,omitempty"`
	Text     string `json:"text,omitempty"`
}

func viewOf(p profiles.Profile) profileView {
	v := profileView{Name: p.Name, About: p.About, Origin: p.Origin, Fragment: p.Fragment}
	if p.Err != nil && !p.Fragment {
		v.Error = p.Err.Error()
	}
	return v
}

func (a *app) profileListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list the profiles",
		Example: "  jail profile list",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print a list of objects")
	cmd.RunE = func(*cobra.Command, []string) error {
		set, err := a.loadProfiles()
		if err != nil {
			return err
		}
		views := []profileView{}
		rows := [][]string{{"NAME", "ORIGIN", "ABOUT"}}
		for _, p := range set.List() {
			v := viewOf(p)
			views = append(views, v)
			if v.Error != "" {
				v.About = "cannot be used: jail profile show " + v.Name
			}
			rows = append(rows, []string{v.Name, v.Origin, v.About})
		}
		return a.show(*asJSON, views, func(w io.Writer) error { return table(w, rows) })
	}
	return cmd
}

func (a *app) profileShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "show a profile as its author wrote it",
		Example: "  jail profile show default",
		Args:    exactly("NAME"),
	}
	asJSON := jsonFlag(cmd, "print an object")
	a.completeFirst(cmd, a.profileNames)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		set, err := a.loadProfiles()
		if err != nil {
			return err
		}
		p, err := set.Show(args[0])
		if errors.Is(err, profiles.ErrNotFound) {
			return notFound("jail profile list", "no profile is called %q", args[0])
		}
		if err != nil {
			return err
		}
		v := viewOf(p)
		v.Text = string(p.Text)
		err = a.show(*asJSON, v, func(w io.Writer) error {
			_, err := io.WriteString(w, printableText(v.Text))
			return err
		})
		if err == nil && v.Error != "" {
			err = usage("", "%s", v.Error)
		}
		return err
	}
	return cmd
}

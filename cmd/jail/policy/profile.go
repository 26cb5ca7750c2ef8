package policy

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/profiles"
)

// NewProfile returns the command jail profile.
func NewProfile(env *cli.Env) *cobra.Command {
	return command.Group("profile", "list, show and write profiles", newProfileList(env),
		newProfileShow(env), newProfileNew(env))
}

// A profileView is a profile in --json output.
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

func newProfileList(env *cli.Env) *cobra.Command {
	return command.Print(env, &cobra.Command{
		Use:     "list",
		Short:   "list the profiles",
		Example: "  jail profile list",
		Args:    command.Exactly(),
	}, "print a list of objects", func(*cobra.Command, []string) ([]profileView, error) {
		set, err := policies.Load(env)
		if err != nil {
			return nil, err
		}
		views := []profileView{}
		for _, p := range set.List() {
			views = append(views, viewOf(p))
		}
		return views, nil
	}, func(w io.Writer, all []profileView) {
		output.Rows(w, []string{"NAME", "ORIGIN", "ABOUT"}, all, func(v profileView) []string {
			if v.Error != "" {
				v.About = "cannot be used: jail profile show " + v.Name
			}
			return []string{v.Name, v.Origin, v.About}
		})
	})
}

func newProfileShow(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "show a profile as its author wrote it",
		Example: "  jail profile show default",
		Args:    command.Exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			return runProfileShow(env, args[0], asJSON)
		},
	}
	command.JSON(cmd, &asJSON, "print an object")
	complete.First(env, cmd, complete.Profiles)
	return cmd
}

func runProfileShow(env *cli.Env, name string, asJSON bool) error {
	set, err := policies.Load(env)
	if err != nil {
		return err
	}
	p, err := set.Show(name)
	if errors.Is(err, profiles.ErrNotFound) {
		return exit.NotFound("jail profile list", "no profile is called %.80q", name)
	}
	if err != nil {
		return err
	}
	v := viewOf(p)
	v.Text = string(p.Text)
	err = env.Show(asJSON, v, func(w io.Writer) {
		io.WriteString(w, output.PrintableText(v.Text))
	})
	if err == nil && v.Error != "" {
		err = exit.Usage("", "%s", v.Error)
	}
	return err
}

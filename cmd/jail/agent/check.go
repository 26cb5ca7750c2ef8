package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// checked is the JSON output of jail agent check.
type checked struct {
	Manifest *manifest.Manifest `json:"manifest"`
	Bindings []string           `json:"bindings"`
	Files    []string           `json:"files"`
	Digest   string             `json:"digest"`
	Warnings []finding          `json:"warnings"`

	agent *manifest.Agent
}

// A finding is a warning with its position in a file.
type finding struct {
	syntax.Position
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

const checkAbout = `Check the agent in a directory without installing it: the manifest agent.toml, the files that it names, and what the module or the scripts import.
All errors of the manifest are reported at once, with file, line and column. The exit code is 0
without errors, 1 with errors, and 127 if DIR holds no agent.`

func newCheck(env *cli.Env) *cobra.Command {
	return command.Print(env, &cobra.Command{
		Use:     "check [flags] DIR",
		Short:   "report all errors of an agent's directory",
		Long:    checkAbout,
		Example: "  jail agent check ./triage",
		Args:    command.Exactly("DIR"),
	}, "print an object: the manifest, the bindings, the files",
		func(_ *cobra.Command, args []string) (checked, error) {
			a, err := load(env, args[0])
			if err != nil {
				return checked{}, err
			}
			if err := reserved(a); err != nil {
				env.Complain(exit.Describe(err))
				return checked{}, exit.No
			}
			out := checked{Manifest: a.Manifest, Bindings: a.Bindings(), Files: a.Files,
				Digest: a.Digest, Warnings: []finding{}, agent: a}
			for _, w := range a.Warnings {
				out.Warnings = append(out.Warnings, finding{w.Position, w.Message, w.Hint})
			}
			return out, nil
		}, func(w io.Writer, c checked) { writeChecked(w, c.agent) })
}

// load reads the agent in dir. It writes errors and warnings about its files to standard error.
func load(env *cli.Env, dir string) (*manifest.Agent, error) {
	a, err := manifest.Load(dir, manifest.Options{Host: os.Geteuid() == 0})
	found, ok := errors.AsType[syntax.Errors](err)
	switch {
	case ok:
		writeFindings(env.Stderr, "", found)
		// "jail agent new" writes a Makefile, so make builds the missing module.
		if _, no := os.Stat(filepath.Join(dir, "Makefile")); no == nil &&
			strings.Contains(err.Error(), "module: there is no file") {
			output.Say(env.Stderr, "hint", "make -C "+dir+" builds it")
		}
		return nil, exit.No
	case errors.Is(err, fs.ErrNotExist):
		if _, no := os.Stat(dir); no == nil {
			return nil, exit.NotFound("jail agent new "+filepath.Base(dir)+" makes one to begin with",
				"%s holds no agent: there is no %s", dir, manifest.File)
		}
		return nil, exit.NotFound("write the path of an agent's directory", "there is no directory %s",
			dir)
	case err != nil:
		if info, no := os.Stat(dir); no == nil && !info.IsDir() {
			return nil, exit.NotFound("write the path of an agent's directory", "%s is no directory", dir)
		}
		return nil, exit.About(err, "agent in %s", dir)
	}
	return a, nil
}

// reserved returns an error if the agent has the name of a built-in one.
func reserved(a *manifest.Agent) error {
	if _, taken := builtin.Find(a.Name); !taken {
		return nil
	}
	return exit.Usage("give it another name", "%s: %q is the name of a built-in agent", a.Source,
		a.Name)
}

// writeFindings writes each finding with its severity and its line of the file.
func writeFindings(w io.Writer, severity string, found syntax.Errors) {
	for _, one := range found {
		text := one.Position.String() + ": " + severity + one.Message
		if one.Hint != "" {
			text += ": " + one.Hint
		}
		fmt.Fprintln(w, output.Finding(text, one.Text, one.Column))
	}
}

func writeChecked(w io.Writer, a *manifest.Agent) {
	writeFindings(w, "warning: ", a.Warnings)
	what := a.Module
	if len(a.Native) > 0 {
		what = strings.Join(a.Native, " ") + " (a program of the host)"
	} else if len(a.Args) > 0 {
		what += " " + strings.Join(a.Args, " ")
	}
	bounds := "profile " + a.Profile
	if a.Policy != "" {
		bounds = "policy " + a.Policy
	}
	if a.OnHost() {
		bounds = "in no jail: it has all rights of its user"
	}
	network := "no network"
	if a.Capabilities.Network {
		network = "fetches that the policy grants"
	}
	if a.OnHost() {
		network = "the network of its user"
	}
	fmt.Fprintf(w, "agent %s: %s\n", a.Name, output.Printable(what))
	fmt.Fprintf(w, "channels %s; bindings %s; %s; %s\n", strings.Join(a.Channels, ", "),
		strings.Join(a.Bindings(), ", "), network, bounds)
	for _, what := range beyondBindings(a.Manifest) {
		fmt.Fprintf(w, "may use %s\n", output.Printable(what))
	}
}

// beyondBindings returns texts about the bindings of an agent that reach beyond its own data.
func beyondBindings(m *manifest.Manifest) (all []string) {
	c := m.Capabilities
	if c.AI {
		for _, name := range slices.Sorted(maps.Keys(m.AI.Roles)) {
			role := m.AI.Roles[name]
			text := fmt.Sprintf("model %s of %s as %s", role.Model, role.URL, name)
			if role.Credential != "" {
				text += ", with your credential " + role.Credential
			}
			all = append(all, text)
		}
	}
	if c.Facets {
		all = append(all, "facets")
	}
	if len(c.Tools) > 0 {
		text := "tools " + strings.Join(c.Tools, ", ")
		if m.Tools.Workspace != "" {
			text += " on a shadow of " + m.Tools.Workspace
		}
		all = append(all, text)
	}
	if len(c.Gatekeepers) > 0 {
		all = append(all, "gatekeepers "+strings.Join(c.Gatekeepers, ", "))
	}
	return all
}

const addAbout = `Check the agent in a directory and install it: its files are copied into the folder of your agents. An agent of the same name is replaced, and keeps its state and its inbox.
The command prints what the agent gets. With --state-of an agent that is new begins with a copy of the database of another one, which has to sleep: a branch of that
agent, under a name and on channels of its own.`

func newAdd(env *cli.Env) *cobra.Command {
	var asJSON bool
	var add agentapi.Add
	cmd := &cobra.Command{
		Use:     "add [flags] DIR",
		Short:   "install the agent in a directory",
		Long:    addAbout,
		Example: "  jail agent add ./triage\n  jail agent add --state-of triage ./triage-try",
		Args:    command.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if add.Channel != "" && add.StateOf == "" {
				return exit.Usage("jail agent add --state-of NAME --channel "+add.Channel+" "+args[0],
					"--channel says of which instance the state is, and goes with --state-of")
			}
			a, err := load(env, args[0])
			if err == nil {
				err = reserved(a)
			}
			if err != nil {
				return err
			}
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				add.Dir = a.Dir
				added, err := c.AddBranch(cmd.Context(), add)
				if err != nil {
					return err
				}
				return env.Show(asJSON, added, func(w io.Writer) { writeChecked(w, a) })
			})
		},
	}
	cmd.Flags().StringVar(&add.StateOf, "state-of", "",
		"begin with a copy of the database of the agent `NAME`, which sleeps")
	cmd.Flags().StringVar(&add.Channel, "channel", "",
		"with --state-of: of its instance on this `CHANNEL` (default its first)")
	command.JSON(cmd, &asJSON, "print the agent as an object")
	return cmd
}

package policy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

// A finding is an error or a weakness in a policy file.
type finding struct {
	Severity string `json:"severity"` // error or warning
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	// the line of the file
	Text string `json:"text,omitempty"`
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
	return output.Finding(text, f.Text, f.Column)
}

func newCheck(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] NAME|FILE...",
		Short: "report all errors of policy files",
		Long: `Report all errors of policy files, with file, line and column, and warn of grants
that weaken a jail. The exit code is 0 without errors, else 1; --fail-on warning treats warnings
as errors. A profile can be checked by its name, too.`,
		Example: "  jail policy check my.toml /etc/jail/ceiling.toml\n" +
			"  jail policy check --fail-on warning --json my.toml",
		Args: command.AtLeast("FILE"),
	}
	as := cmd.Flags().String("as", "",
		"what the files are: profile, ceiling or request `KIND` (default profile, and ceiling for "+
			"ceiling.toml)")
	failOn := cmd.Flags().String("fail-on", "error",
		"exit with 1 on a `SEVERITY`: error or warning")
	var asJSON bool
	command.JSON(cmd, &asJSON, "print a list of objects")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		kind, err := parseKind(*as)
		if err != nil {
			return err
		}
		if *failOn != "error" && *failOn != "warning" {
			return exit.Usage("", "--fail-on %s: want error or warning", *failOn)
		}
		return checkPolicies(env, args, kind, *failOn, asJSON)
	}
	return cmd
}

// parseKind returns the kind of file that --as names, or nil if it is empty.
func parseKind(text string) (*syntax.Kind, error) {
	for _, k := range []syntax.Kind{syntax.Profile, syntax.Ceiling, syntax.Request} {
		if text == k.String() {
			return &k, nil
		}
	}
	if text != "" {
		return nil, exit.Usage("", "--as %s: want profile, ceiling or request", text)
	}
	return nil, nil
}

func checkPolicies(env *cli.Env, paths []string, kind *syntax.Kind, failOn string,
	asJSON bool) error {
	set, err := policies.Load(env)
	if err != nil {
		return err
	}
	found, sound := []finding{}, []string{}
	// unread has the exit code for the first file that cannot be read; the others are still
	// checked.
	var unread error
	for _, path := range paths {
		k := policies.KindOf(path)
		if kind != nil {
			k = *kind
		}
		one, err := checkPolicy(path, k, set)
		if err != nil {
			e := exit.Describe(err)
			env.Complain(e)
			if unread == nil {
				unread = exit.Code(e.Exit())
			}
		}
		if err == nil && !slices.ContainsFunc(one,
			func(f finding) bool { return f.Severity == "error" || f.Severity == failOn }) {
			sound = append(sound, path)
		}
		found = append(found, one...)
	}
	err = env.Show(asJSON, found, func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintln(w, f.String())
		}
		for _, path := range sound {
			fmt.Fprintln(w, output.Printable(path)+": ok")
		}
	})
	if err != nil || unread != nil {
		return errors.Join(err, unread)
	}
	for _, f := range found {
		if f.Severity == "error" || f.Severity == failOn {
			return exit.No
		}
	}
	return nil
}

func checkPolicy(path string, kind syntax.Kind, set *profiles.Set) ([]finding, error) {
	text, err := readPolicyOrProfile(set, path)
	if err != nil {
		return nil, err
	}
	file, err := set.Parse(kind, path, text)
	var all syntax.Errors
	switch {
	case errors.As(err, &all):
		var found []finding
		for _, e := range all {
			found = append(found,
				finding{"error", e.File, e.Line, e.Column, e.Message, e.Hint, e.Text})
		}
		return found, nil
	case err != nil:
		return nil, err
	case kind != syntax.Profile:
		// A ceiling is wide by nature.
		return nil, nil
	}
	return append(weaknesses(file, text), unmet(file)...), nil
}

// readPolicyOrProfile reads a file, or the text of a profile if no file has that name.
func readPolicyOrProfile(set *profiles.Set, name string) ([]byte, error) {
	if _, err := os.Lstat(name); err != nil && !policies.NamesFile(name) {
		if p, err := set.Show(name); err == nil {
			return p.Text, nil
		}
	}
	return policies.Read(name)
}

// weaknesses returns the warnings about a policy, each at the position of its rule.
func weaknesses(file syntax.File, text []byte) []finding {
	var found []finding
	for _, w := range file.Policy.Weaknesses() {
		f := finding{Severity: "warning", File: file.Source, Message: w.Text}
		if at, ok := file.At[w.Rule]; ok {
			f.File, f.Line, f.Column = at.File, at.Line, at.Column
			if at.File == file.Source {
				f.Text = syntax.Line(text, at.Line)
			}
		}
		found = append(found, f)
	}
	return found
}

// unmet returns warnings about tool sections that have no effect, or less than they seem to.
func unmet(file syntax.File) []finding {
	var found []finding
	for _, t := range file.Tools {
		at := file.At["tool."+strconv.Quote(t.Tool.String())]
		warn := func(text string) {
			found = append(found, finding{Severity: "warning", File: at.File, Line: at.Line,
				Column: at.Column, Message: fmt.Sprintf("tool %q: %s", t.Tool, text)})
		}
		one := policy.Globs{t.Tool}
		tools := file.Policy.Tools
		switch {
		case len(one.Meet(tools.Native)) > 0 && (len(tools.Native) > 1 ||
			!tools.Native[0].Literal()):
			warn("it narrows only runs that begin with this program; another one that the policy " +
				"lets run may start it without what is said here")
		case len(one.Meet(tools.Native))+len(one.Meet(tools.Allow))+len(
			one.Meet(tools.Modules)) == 0:
			warn("the policy lets no such tool run, so what is said here has no effect")
		}
	}
	return found
}

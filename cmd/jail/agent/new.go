package agent

import (
	"errors"
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
	"github.com/jail-sandbox/jail/runners/wasi/guestlib/agentlib"
)

const newAbout = `Make the directory NAME with an agent to begin with: a manifest, a program that answers messages, and the library by which it calls its bindings. Nothing is installed;
"jail agent add" does that. Python and JavaScript run as they are; Go, Rust and C have a Makefile.`

func newNew(env *cli.Env) *cobra.Command {
	var language string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "new [flags] NAME",
		Short:   "make a directory with an agent to begin with",
		Long:    newAbout,
		Example: "  jail agent new --lang python echo\n  jail agent add ./echo\n  jail agent send --wait echo hi",
		Args:    command.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The argument may be a path, which ends with the name.
			dir, name := args[0], filepath.Base(args[0])
			if err := checkName(cmd, name); err != nil {
				return err
			}
			if !slices.Contains(agentlib.Names(), language) {
				return exit.Usage("", "--lang %s: want %s", language,
					strings.Join(agentlib.Names(), ", "))
			}
			files, err := agentlib.New(language, name)
			if err != nil {
				return exit.Failed(err, "", "agent %q: %v", name, err)
			}
			if err := write(dir, files); err != nil {
				return err
			}
			next := "jail agent add " + dir
			if _, ok := files["Makefile"]; ok {
				next = "make -C " + dir + " && " + next
			}
			made := struct {
				Dir   string   `json:"dir"`
				Files []string `json:"files"`
				Next  string   `json:"next"`
			}{dir, slices.Sorted(maps.Keys(files)), next}
			return env.Show(asJSON, made, output.Text("%s: %s\nnext: %s\n", dir,
				strings.Join(made.Files, " "), next))
		},
	}
	command.JSON(cmd, &asJSON, "print an object")
	cmd.Flags().StringVar(&language, "lang", "python",
		"language of the program: `LANG` is "+strings.Join(agentlib.Names(), ", "))
	// The only error is an unknown flag, and the flag exists.
	_ = cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions(agentlib.Names(),
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// write creates the directory dir, which must not exist, and the files in it.
func write(dir string, files map[string][]byte) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return exit.Usage("take another name, or remove it", "%s is there already", dir)
	}
	if err != nil {
		return exit.About(err, "directory %s", dir)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			return errors.Join(exit.About(err, "file %s", path), os.RemoveAll(dir))
		}
	}
	return nil
}

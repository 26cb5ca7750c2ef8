package audit

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/anchor"
)

// maxAnchorFile bounds what is read of one file of anchors.
const maxAnchorFile = 256 << 20

// readAnchors reads files of anchors, those of directories, and the commits of repositories.
func readAnchors(ctx context.Context, paths []string) ([]audit.Anchor, error) {
	var all []audit.Anchor
	for _, path := range paths {
		if heads, known, err := anchor.ReadRepository(ctx, path); known {
			var some []audit.Anchor
			if err == nil {
				some, err = audit.ParseAnchors(path, heads)
			}
			if err != nil {
				return nil, exit.Failed(err, "", "--anchor %s: %v", path, err)
			}
			all = append(all, some...)
			continue
		}
		files, err := anchorFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := readBounded(file)
			if err == nil {
				var some []audit.Anchor
				some, err = audit.ParseAnchors(file, text)
				all = append(all, some...)
			}
			if err != nil {
				return nil, exit.About(err, "--anchor %s", file)
			}
		}
	}
	return all, nil
}

func anchorFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	if err == nil {
		var entries []os.DirEntry
		entries, err = os.ReadDir(path)
		for _, e := range entries {
			if e.Type().IsRegular() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%w: it has no files", audit.ErrAnchor)
		}
	}
	if err != nil {
		return nil, exit.About(err, "--anchor %s", path)
	}
	return files, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAnchorFile+1))
	if err == nil && len(text) > maxAnchorFile {
		err = fmt.Errorf("%w: it is longer than %s", audit.ErrAnchor, output.Size(maxAnchorFile))
	}
	return text, err
}

func newAnchor(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "anchor",
		Short: "send the signed head of the log off the host now",
		Long: `Send the signed head of the log to all anchors in ` + supervisorAudit + `, as the daemon does regularly, and show their state. With a head that is kept out
of reach of an attacker on this host, jail audit verify --anchor later proves that no record was removed or rewritten since.
The exit code is 1 if an anchor did not take the head.`,
		Example: "  jail audit anchor\n  jail audit anchor --json",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAnchor(cmd.Context(), env, asJSON)
		},
	}
	command.JSON(cmd, &asJSON, "print a list")
	return cmd
}

func runAnchor(ctx context.Context, env *cli.Env, asJSON bool) error {
	s, err := anchor.Read(env.Config.Audit)
	if err != nil {
		return exit.Failed(err, "", "%v", err)
	}
	if len(s.Anchors) == 0 {
		return exit.Usage("add an [[anchor]] with name and to",
			"jail audit anchor: %s names no place for them", env.Config.Audit)
	}
	if err := needLog(env); err != nil {
		return err
	}
	keeper := anchor.Keeper{Log: env.Config.LogDir, State: env.Config.Anchors(), Targets: s.Anchors}
	all, sendErr := keeper.Once(ctx)
	if err := env.Show(asJSON, all, func(w io.Writer) {
		writeAnchors(w, all)
	}); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(s anchor.Status) bool { return s.Error != "" }) {
		return exit.No
	}
	if sendErr != nil {
		return exit.Failed(sendErr, "", "%v", sendErr)
	}
	return nil
}

// supervisorAudit is where the settings of the log are, for help.
const supervisorAudit = "/etc/jail/audit.toml"

func writeAnchors(w io.Writer, all []anchor.Status) {
	heads := []string{"NAME", "TO", "RECORDS", "TAKEN", "ERROR"}
	output.Rows(w, heads, all, func(s anchor.Status) []string {
		taken := "never"
		if !s.Time.IsZero() {
			taken = s.Time.Format(time.RFC3339)
		}
		return []string{s.Name, s.To, fmt.Sprint(s.Size), taken, audit.Printable(s.Error)}
	})
}

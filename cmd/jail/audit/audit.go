// Package audit has the commands that read, search, verify and maintain the audit log.
package audit

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// New returns the command jail audit.
func New(env *cli.Env) *cobra.Command {
	group := command.Group("audit", "read, search and verify the record of what ran",
		newShow(env), newTail(env), newQuery(env), newReport(env),
		newExport(env), newAnchor(env), newVerify(env), newProve(env),
		newKey(env), newRotate(env), newPrune(env), newIndex(env),
		command.Removed("witness",
			"run a C2SP tlog-witness such as github.com/transparency-dev/witness, and name it in "+
				"an [[anchor]]"))
	for _, cmd := range group.Commands() {
		if flag := cmd.Flags().Lookup("log"); flag != nil {
			cmd.PreRun = func(cmd *cobra.Command, _ []string) {
				if !flag.Changed {
					env.FindLog(cmd.Context())
				}
			}
		}
	}
	return group
}

// logFlag is the --log flag: the directory of the log to read. "" means the daemon's log.
type logFlag string

func (l *logFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(l), "log", "", "`DIR` of the log (default that of the daemon)")
}

func (l logFlag) dir(env *cli.Env) string {
	if l == "" {
		return env.Config.LogDir
	}
	return string(l)
}

// needsDaemon reports whether the records must come from the daemon: no --log was given, and the
// caller may not read the daemon's log.
func (l logFlag) needsDaemon(env *cli.Env) bool { return l == "" && mayNotRead(env) }

// logError returns err with the name of the log and a hint. dir is the directory of the log.
func logError(dir string, err error) error {
	e := exit.About(err, "audit log %s", dir)
	if e.Hint = "--log names the directory of a log"; errors.Is(err, fs.ErrPermission) {
		e.Hint = "jail audit query shows what the daemon tells you of it; --log names the " +
			"directory of another log"
	}
	return e
}

// recordTypes are the record types that this version writes.
var recordTypes = audit.Types()

func checkTypes(texts []string) error {
	for _, t := range texts {
		if !slices.Contains(recordTypes, audit.Type(t)) {
			var names []string
			for _, known := range recordTypes {
				names = append(names, string(known))
			}
			return exit.Usage("the types are "+strings.Join(names, ", "),
				"--type %s: no record has that type", t)
		}
	}
	return nil
}

// mayNotRead reports whether the caller lacks the permission to read the daemon's log.
func mayNotRead(env *cli.Env) bool {
	d, err := os.Open(env.Config.LogDir)
	if err == nil {
		d.Close()
	}
	return errors.Is(err, fs.ErrPermission)
}

// askDaemon yields records of the caller's own runs from the daemon, or the error of the request.
func askDaemon(ctx context.Context, env *cli.Env,
	req message.RecordsRequest) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		failed := env.WithDaemon(ctx, func(c *api.Client) error {
			for r, err := range c.AuditRecords(ctx, req) {
				if err != nil {
					return err
				}
				if !yield(r, nil) {
					return nil
				}
			}
			return nil
		})
		if failed != nil {
			yield(audit.Record{}, failed)
		}
	}
}

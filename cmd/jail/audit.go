package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

func (a *app) auditCommand() *cobra.Command {
	return a.group("audit", "read, search and verify the record of what ran", a.auditShowCommand(), a.auditTailCommand(), a.auditQueryCommand(), a.auditReportCommand(),
		a.auditExportCommand(), a.auditAnchorCommand(), a.auditWitnessCommand(), a.auditVerifyCommand(), a.auditProveCommand(),
		a.auditKeyCommand(), a.auditRotateCommand(), a.auditPruneCommand(), a.auditIndexCommand())
}

// logFlag is the flag that names the log; no daemon is needed to read it.
func (a *app) logFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("log", "", "`DIR` of the log (default that of the daemon)")
}

func (a *app) logDir(flag string) string {
	if flag == "" {
		return a.config.LogDir
	}
	return flag
}

func (a *app) auditShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "show records",
		Long: `Show records of the log, the oldest first. What a tool chose is shown with escapes in place of control characters, so that it can be read
off exactly. Nothing is verified: that is for jail audit verify. Who may not read the log is shown what the daemon tells them of it, as by jail audit query.`,
		Example: "  jail audit show --since 1h\n  jail audit show --run 3w5e11264sg0c8v5a9b7k2m4qd --type denied --json",
		Args:    exactly(),
	}
	dir := a.logFlag(cmd)
	run := cmd.Flags().String("run", "", "only of the run `ID`")
	types := cmd.Flags().StringSlice("type", nil, "only of `TYPE`, such as denied or run.finished (repeatable)")
	from := cmd.Flags().String("since", "", "only from `TIME` on: how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z")
	asJSON := jsonFlag(cmd, "print the records as they are, one a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter := audit.Filter{Run: *run}
		var err error
		if filter.Types, err = parseTypes(*types); err != nil {
			return err
		}
		if filter.Since, err = parseTime("since", *from, time.Now()); err != nil {
			return err
		}
		records := audit.Scan(a.logDir(*dir), filter)
		if *dir == "" && a.mayNotRead() {
			records = a.askDaemon(cmd.Context(), supervisor.RecordsRequest{Run: *run, Types: *types, Since: filter.Since})
		}
		return a.showRecords(a.logDir(*dir), records, *asJSON)
	}
	return cmd
}

// showRecords prints records of the log in dir, and says which lines are none.
func (a *app) showRecords(dir string, records iter.Seq2[audit.Record, error], asJSON bool) error {
	return a.showRecordsTo(a.print, dir, records, asJSON)
}

// showRecordsTo is showRecords by that way of printing.
func (a *app) showRecordsTo(print func(write func(io.Writer) error) error, dir string, records iter.Seq2[audit.Record, error], asJSON bool) error {
	bad := 0
	err := print(func(w io.Writer) error {
		header := !asJSON
		for r, err := range records {
			if told := (*supervisor.Error)(nil); errors.As(err, &told) {
				return err // the daemon says it
			}
			if err != nil && r.Line == nil && bad == 0 && cause(err) != err {
				return logError(dir, err) // the log itself cannot be read
			}
			if err != nil {
				bad++
				say(a.stderr, "warning", err.Error())
				continue
			}
			if header {
				header = false
				fmt.Fprintln(w, audit.Header)
			}
			render := audit.Render
			if asJSON {
				render = audit.RenderJSON
			}
			if err := render(w, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && bad > 0 {
		err = failed(nil, "jail audit verify", "audit log %s: %s cannot be read", dir, count(bad, "line", "lines"))
	}
	return err
}

func logError(dir string, err error) error {
	e := describe(err)
	e.Message = fmt.Sprintf("audit log %s: %v", dir, cause(err))
	if e.Hint = "--log names the directory of a log"; errors.Is(err, fs.ErrPermission) {
		e.Hint = "jail audit query shows what the daemon tells you of it; --log names the directory of another log"
	}
	return e
}

// recordTypes are those that this version writes.
var recordTypes = []audit.Type{
	audit.TypeRunStarted, audit.TypeRunFinished, audit.TypeExec, audit.TypeFile, audit.TypeFetch, audit.TypeCredentialUsed, audit.TypeDenied, audit.TypeLimit, audit.TypeWorkspaceChanged,
	audit.TypeWorkspaceCommitted, audit.TypeWorkspaceDiscarded, audit.TypeWorkspaceReverted, audit.TypePolicyLoaded, audit.TypeToolInstalled, audit.TypeToolRemoved, audit.TypeToolKeys,
	audit.TypeDaemonStarted, audit.TypeDaemonStopped, audit.TypeAnchor, audit.TypeGap, audit.TypeCheckpoint,
}

func parseTypes(texts []string) ([]audit.Type, error) {
	var types []audit.Type
	for _, t := range texts {
		if !slices.Contains(recordTypes, audit.Type(t)) {
			names := make([]string, len(recordTypes))
			for i, known := range recordTypes {
				names[i] = string(known)
			}
			return nil, usage("the types are "+strings.Join(names, ", "), "--type %s: no record has that type", t)
		}
		types = append(types, audit.Type(t))
	}
	return types, nil
}

// parseTime reads a time, or how long before now it was.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("", "--%s %s: want how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z", flag, text)
}

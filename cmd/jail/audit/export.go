package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/audit/export"
)

type exportOptions struct {
	queryFlags
	log                logFlag
	format, to, cursor string
	follow             bool
	tries              int
}

func newExport(env *cli.Env) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "export records for other programs",
		Long: `Export the records that match all conditions, the oldest first, in one of these
formats:

  jsonl     the lines of the log
  ocsf      events of the Open Cybersecurity Schema Framework, one a line
  journald  to systemd's journal at unix:///run/systemd/journal/socket, or as entries that systemd-journal-remote reads
  otlp      OpenTelemetry logs as JSON over HTTP, to http://HOST:4318/v1/logs or https://…

All formats can go to a file, which is appended to and flushed, or to standard output. --cursor
names a file with the last delivered record, where the next export continues. It is written after
the delivery, so every record is delivered at least once; after a crash a few may come twice, with
the same seq. The journal does not acknowledge records: they count as delivered when the kernel
has accepted them. --follow continues with new records, and retries for ever if the receiver is
not available. Nothing is verified: use jail audit verify.`,
		Example: "  jail audit export --type denied --since 24h > denied.jsonl\n" +
			"  jail audit export --format journald --to unix:///run/systemd/journal/socket " +
			"--follow --cursor /var/lib/jail/export.cursor\n" +
			"  jail audit export --format otlp --to http://127.0.0.1:4318/v1/logs --cursor " +
			"otlp.cursor",
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runExport(cmd.Context(), env, o)
		},
	}
	o.add(cmd)
	o.log.add(cmd)
	cmd.Flags().StringVar(&o.format, "format", string(export.JSONL),
		"`FORM`: jsonl, ocsf, journald or otlp")
	cmd.Flags().StringVar(&o.to, "to", "-",
		"`WHERE` they go: an address, a file, or - for standard output")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false,
		"go on with those that are written from now on")
	cmd.Flags().StringVar(&o.cursor, "cursor", "", "`FILE` that holds how far it came")
	cmd.Flags().IntVar(&o.tries, "tries", 5,
		"how `OFTEN` the same records are sent where the other end fails, without --follow")
	_ = cmd.RegisterFlagCompletionFunc("format", func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective) {
		var names []string
		for _, f := range export.Formats() {
			names = append(names, string(f))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

func runExport(ctx context.Context, env *cli.Env, o exportOptions) error {
	_, filter, err := o.read()
	if err != nil {
		return err
	}
	format, err := export.Parse(o.format)
	if err != nil {
		return exit.Usage("", "--format: %v", err)
	}
	if o.tries < 1 {
		return exit.Usage("", "--tries %d: want a number of tries, from 1", o.tries)
	}
	dir := o.log.dir(env)
	if _, err := os.ReadDir(dir); err != nil {
		return logError(dir, err)
	}
	// If the host's name cannot be read, the records have none.
	name, _ := os.Hostname()
	host := export.Host{Name: name, Version: env.Config.Version}
	sink, err := export.Open(format, o.to, host, env.Stdout)
	if err != nil {
		return exit.Usage("", "--to: %v", err)
	}
	return send(ctx, export.Options{Log: dir, Filter: filter, Follow: o.follow, Cursor: o.cursor,
		Tries: o.tries,
		Say: func(text string) {
			output.Say(env.Stderr, "warning", "export to "+o.to+": "+text)
		}},
		sink, o.to)
}

// send exports until there are no more records. SIGINT or SIGTERM with --follow, and a closed pipe,
// are no errors.
func send(ctx context.Context, o export.Options, sink export.Sink, to string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err := export.Run(ctx, o, sink)
	interrupted := ctx.Err() != nil
	err = errors.Join(err, sink.Close())
	switch {
	case interrupted && o.Follow:
		return nil
	case errors.Is(err, syscall.EPIPE):
		// The reader has closed the pipe, as head(1) does.
		return nil
	case errors.Is(err, export.ErrCursor):
		return exit.Failed(err, "another log, or one that was rebuilt: remove "+o.Cursor+
			" to begin anew", "export from %s: %v", o.Log, err)
	case err != nil:
		hint := "nothing keeps how far it came: --cursor does"
		if o.Cursor != "" {
			hint = "run it again: it goes on where it was"
		}
		return exit.Failed(err, hint, "export to %s, after %s: %s", to,
			output.Count(n, "record", "records"), strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	}
	return nil
}

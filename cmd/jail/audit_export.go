package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/audit/export"
)

func (a *app) auditExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [flags]",
		Short: "hand records over to other programs",
		Long: `Hand the records that all of the conditions want over to another program, the oldest first, in a form that it reads:

  jsonl     the lines of the log
  csv       a table with a header; a text that a spreadsheet would take for a formula begins with an apostrophe
  ocsf      events of the Open Cybersecurity Schema Framework, one a line
  syslog    RFC 5424, to udp://HOST[:514], tcp://HOST[:514] with lengths before the messages, or unix:///dev/log
  journald  to systemd's journal at unix:///run/systemd/journal/socket, or as entries that systemd-journal-remote reads
  otlp      OpenTelemetry logs as JSON over HTTP, to http://HOST:4318/v1/logs or https://…

Each goes to a file or to standard output as well; a file is appended to and flushed. With --cursor a file says how far it came: the next export goes on there. It
is written behind what was delivered, so that every record is delivered at least once; after a crash a few may come twice, by the same seq. UDP and TCP have no
answers: there, what the kernel took counts as delivered. With --follow it goes on with records that are still to be written and tries for ever where the other
end is not there. Nothing is verified: that is for jail audit verify.`,
		Example: "  jail audit export --format csv --type denied --since 24h > denied.csv\n" +
			"  jail audit export --format syslog --to tcp://logs.example.com:514 --follow --cursor /var/lib/jail/export.cursor\n" +
			"  jail audit export --format otlp --to http://127.0.0.1:4318/v1/logs --cursor otlp.cursor",
		Args: exactly(),
	}
	var q queryFlags
	q.add(cmd)
	dir := a.logFlag(cmd)
	format := cmd.Flags().String("format", string(export.JSONL), "`FORM`: jsonl, csv, ocsf, syslog, journald or otlp")
	to := cmd.Flags().String("to", "-", "`WHERE` they go: an address, a file, or - for standard output")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with those that are written from now on")
	at := cmd.Flags().String("cursor", "", "`FILE` that holds how far it came")
	tries := cmd.Flags().Int("tries", 5, "how `OFTEN` the same records are sent where the other end fails, without --follow")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := q.filter(time.Now())
		if err != nil {
			return err
		}
		f, err := export.Parse(*format)
		if err != nil {
			return usage("", "--format: %v", err)
		}
		if *tries < 1 {
			return usage("", "--tries %d: want a number of tries, from 1", *tries)
		}
		if _, err := os.ReadDir(a.logDir(*dir)); err != nil {
			return logError(a.logDir(*dir), err)
		}
		o := export.Options{Log: a.logDir(*dir), Filter: filter, Follow: *follow, Cursor: *at, Tries: *tries,
			Say: func(text string) { say(a.stderr, "warning", "export to "+*to+": "+text) }}
		name, _ := os.Hostname() // without one it is not said
		sink, err := export.Open(f, *to, export.Host{Name: name, Version: a.config.Version}, a.stdout)
		if err != nil {
			return usage("", "--to: %v", err)
		}
		return a.export(cmd.Context(), o, sink, *to)
	}
	_ = cmd.RegisterFlagCompletionFunc("format", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, f := range export.Formats() {
			names = append(names, string(f))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// export runs until there is nothing left or, with --follow, somebody interrupts it: that is its end and no failure.
func (a *app) export(ctx context.Context, o export.Options, sink export.Sink, to string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err := export.Run(ctx, o, sink)
	interrupted := ctx.Err() != nil
	err = errors.Join(err, sink.Close())
	switch {
	case interrupted && o.Follow:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return nil // whoever read it has enough
	case errors.Is(err, export.ErrCursor):
		return failed(err, "another log, or one that was rebuilt: remove "+o.Cursor+" to begin anew", "export from %s: %v", o.Log, err)
	case err != nil:
		hint := "nothing keeps how far it came: --cursor does"
		if o.Cursor != "" {
			hint = "run it again: it goes on where it was"
		}
		return failed(err, hint, "export to %s, after %s: %s", to, count(n, "record", "records"), strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	}
	return nil
}

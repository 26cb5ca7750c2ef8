package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/api"
)

type diffFlags struct{ stat, nameOnly, json bool }

func (a *app) diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff [flags] ID",
		Short: "show what a run changed",
		Long: `Show what a run changed: a list, with what a commit would hold back, refuse or find in conflict first, and then the differences as text.
What is written to a pipe can be given to git apply.

With --json: one object a line, first {"info":…}, then {"change":…} for each path, last {"summary":…} with the digest.`,
		Example: "  jail diff 3w5e11264sg0c8v5a9b7k2m4qd\n  jail diff --stat 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDaemon(cmd.Context(), func(c *api.Client) error { return a.diff(cmd.Context(), c, args[0], f) })
		},
	}
	cmd.Flags().BoolVar(&f.stat, "stat", false, "show the list only")
	cmd.Flags().BoolVar(&f.nameOnly, "name-only", false, "show the names only")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one object a line")
	return cmd
}

func (a *app) diff(ctx context.Context, c *api.Client, id string, f diffFlags) error {
	patch := ""
	if !f.stat && !f.nameOnly && !f.json {
		patch = api.PatchPlain
		if isTerminal(a.stdout) {
			patch = api.PatchTerminal
		}
	}
	out := bufio.NewWriter(sink{a.stdout, "standard output"})
	show := &diffWriter{w: out, colour: a.colour()}
	for line, err := range c.Changes(ctx, id, patch) {
		if err == nil {
			err = show.line(line, f)
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	return errors.Join(show.end(f), out.Flush())
}

// diffWriter shows a review. The list is kept until it is whole, because what needs attention comes first in it; there are never more
// changes than the limit of the workspace's files.
type diffWriter struct {
	w       io.Writer
	colour  bool
	changes []api.Change
	summary *api.ReviewSummary
	listed  bool
	patch   patchPainter
}

func (d *diffWriter) line(l api.ReviewLine, f diffFlags) error {
	switch {
	case f.json:
		return writeJSON(d.w, l, "")
	case l.Info != nil && !f.nameOnly:
		i := l.Info
		_, err := fmt.Fprintf(d.w, "# run %s of %s over %s, commit: %s\n", printable(i.ID), printable(dash(i.Tool)), i.Path, printable(i.Commit))
		return err
	case l.Change != nil && f.nameOnly:
		_, err := fmt.Fprintln(d.w, shownPath(l.Change.Path))
		return err
	case l.Change != nil:
		d.changes = append(d.changes, *l.Change)
	case l.Patch != nil && !f.nameOnly:
		if err := d.list(); err != nil {
			return err
		}
		return d.patch.write(d.w, l.Patch, d.colour)
	case l.Summary != nil:
		d.summary = l.Summary
	}
	return nil
}

func (d *diffWriter) list() error {
	if d.listed {
		return nil
	}
	d.listed = true
	return writeChanges(d.w, d.changes, d.colour)
}

func (d *diffWriter) end(f diffFlags) error {
	if f.json || f.nameOnly {
		return nil
	}
	if err := errors.Join(d.list(), d.patch.flush(d.w, d.colour)); err != nil || d.summary == nil {
		return err
	}
	s := d.summary
	_, err := fmt.Fprintf(d.w, "# %s (+%d ~%d -%d), %s, digest %s\n", count(s.Total(), "change", "changes"), s.Added, s.Modified, s.Deleted,
		size(s.Bytes), printable(s.Digest))
	return err
}

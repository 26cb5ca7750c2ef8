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

type diffFlags struct{ stat, nameOnly, json, patch, tui bool }

const diffAbout = `Show what a run changed: a list, with what a commit would hold back, refuse or find in conflict first and what else is a risk after that, and then
the differences as text. Nothing of the host is run for it.

With --patch: the differences alone, as git apply takes them. With --json: one object a line, first {"info":…}, then {"change":…} for each path, last
{"summary":…} with the digest that jail commit --digest takes. With --tui: walk through files and hunks, mark them, commit what is marked.`

func (a *app) diffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:     "diff [flags] ID",
		Short:   "show what a run changed",
		Long:    diffAbout,
		Example: "  jail diff 3w5e11264sg0c8v5a9b7k2m4qd\n  jail diff --stat 3w5e11264sg0c8v5a9b7k2m4qd\n  jail diff --patch 3w5e11264sg0c8v5a9b7k2m4qd | git apply --check",
		Args:    exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, "stat", "name-only", "patch", "json", "tui"); err != nil {
				return err
			}
			return a.withDaemon(cmd.Context(), func(c *api.Client) error {
				if f.tui {
					return a.tui(cmd.Context(), c, args[0])
				}
				return a.diff(cmd.Context(), c, args[0], f)
			})
		},
	}
	cmd.Flags().BoolVar(&f.stat, "stat", false, "show the list only")
	cmd.Flags().BoolVar(&f.nameOnly, "name-only", false, "show the names only")
	cmd.Flags().BoolVar(&f.patch, "patch", false, "show the differences only, as git apply takes them")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one object a line")
	cmd.Flags().BoolVar(&f.tui, "tui", false, "walk through the changes on a terminal, mark them and commit")
	return cmd
}

func (a *app) diff(ctx context.Context, c *api.Client, id string, f diffFlags) error {
	patch := ""
	if !f.stat && !f.nameOnly && !f.json {
		patch = api.PatchPlain
		if isTerminal(a.stdout) && !f.patch {
			patch = api.PatchTerminal
		}
	}
	out := bufio.NewWriter(sink{a.stdout, "standard output"})
	show := &diffWriter{w: out, colour: a.colour()}
	defer show.close()
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

// diffWriter shows a review. The list is held back until it is whole, because what needs attention comes first in it, and the differences come
// after it.
type diffWriter struct {
	w       io.Writer
	colour  bool
	ranks   [ranks]spill // the lines of the list, by how much attention they need
	patch   spill
	summary *api.ReviewSummary
	painter patchPainter
}

func (d *diffWriter) close() {
	for i := range d.ranks {
		d.ranks[i].close()
	}
	d.patch.close()
}

func (d *diffWriter) line(l api.ReviewLine, f diffFlags) error {
	switch {
	case f.json:
		return writeJSON(d.w, l, "")
	case l.Info != nil && !f.nameOnly && !f.patch:
		i := l.Info
		_, err := fmt.Fprintf(d.w, "# run %s of %s over %s, commit: %s\n", printable(i.ID), printable(dash(i.Tool)), i.Path, printable(i.Commit))
		if err == nil && i.Unfinished {
			_, err = fmt.Fprintln(d.w, "# the run was cut off: this is what it had written by then, and a file may be half of one")
		}
		return err
	case l.Change != nil && f.nameOnly:
		_, err := fmt.Fprintln(d.w, shownPath(l.Change.Path))
		return err
	case l.Change != nil && !f.patch:
		_, rank := attention(*l.Change)
		_, err := fmt.Fprintln(&d.ranks[rank], "# "+changeLine(d.colour, *l.Change))
		return err
	case l.Patch != nil && f.patch:
		_, err := d.w.Write(l.Patch)
		return err
	case l.Patch != nil && !f.nameOnly:
		return d.painter.write(&d.patch, l.Patch, d.colour)
	case l.Summary != nil:
		d.summary = l.Summary
	}
	return nil
}

func (d *diffWriter) end(f diffFlags) error {
	if f.json || f.nameOnly || f.patch {
		return nil
	}
	for i := range d.ranks {
		if err := d.ranks[i].copyTo(d.w); err != nil {
			return err
		}
	}
	if d.summary != nil {
		for _, r := range d.summary.Renames {
			if _, err := fmt.Fprintf(d.w, "# %s %s -> %s  (the same content)\n", paint(d.colour, cyan, "R"), shownPath(r.From), shownPath(r.To)); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(d.painter.flush(&d.patch, d.colour), d.patch.copyTo(d.w)); err != nil || d.summary == nil {
		return err
	}
	s := d.summary
	_, err := fmt.Fprintf(d.w, "# %s (+%d ~%d -%d), %s, digest %s\n", count(s.Total(), "change", "changes"), s.Added, s.Modified, s.Deleted,
		size(s.Bytes), printable(s.Digest))
	return err
}

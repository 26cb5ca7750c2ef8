package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/probe"
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
				return nil, failed(err, "", "--anchor %s: %v", path, err)
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
				e := describe(err)
				e.Message = fmt.Sprintf("--anchor %s: %v", file, cause(err))
				return nil, e
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
		e := describe(err)
		e.Message = fmt.Sprintf("--anchor %s: %v", path, cause(err))
		return nil, e
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
		err = fmt.Errorf("%w: it is longer than %s", audit.ErrAnchor, size(maxAnchorFile))
	}
	return text, err
}

func (a *app) auditAnchorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "anchor",
		Short: "send the signed head of the log off the host now",
		Long: `Send the signed head of the log to all of the places that ` + supervisorAudit + ` names, as the daemon does all the time, and say how it stands with them. A head that is
kept where who has this host cannot change it shows later, by jail audit verify --anchor, that no record was taken away or rewritten since.
Exits with 1 if one of them did not take it.`,
		Example: "  jail audit anchor\n  jail audit anchor --json",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print a list")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := anchor.Read(a.config.Audit)
		if err != nil {
			return failed(err, "", "%v", err)
		}
		if len(s.Anchors) == 0 {
			return usage("add an [[anchor]] with name and to", "jail audit anchor: %s names no place for them", a.config.Audit)
		}
		if err := a.needLog(); err != nil {
			return err
		}
		keeper := anchor.Keeper{Log: a.config.LogDir, State: a.config.Anchors(), Targets: s.Anchors}
		all, sendErr := keeper.Once(cmd.Context())
		if err := a.show(*asJSON, all, func(w io.Writer) error { return writeAnchors(w, all) }); err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(s anchor.Status) bool { return s.Error != "" }) {
			return exitNo
		}
		if sendErr != nil {
			return failed(sendErr, "", "%v", sendErr)
		}
		return nil
	}
	return cmd
}

// supervisorAudit is where the settings of the log are, for help.
const supervisorAudit = "/etc/jail/audit.toml"

func writeAnchors(w io.Writer, all []anchor.Status) error {
	rows := [][]string{{"NAME", "TO", "RECORDS", "TAKEN", "ERROR"}}
	for _, s := range all {
		taken := "never"
		if !s.Time.IsZero() {
			taken = s.Time.Format(time.RFC3339)
		}
		rows = append(rows, []string{s.Name, s.To, fmt.Sprint(s.Size), taken, audit.Printable(s.Error)})
	}
	return table(w, rows)
}

// anchorFindings are what doctor says of the places that heads go to.
func (a *app) anchorFindings() []probe.Finding {
	const name = "anchors"
	s, err := anchor.Read(a.config.Audit)
	if err != nil {
		return []probe.Finding{{Name: name, Answer: probe.No, Detail: err.Error(), Fix: "correct it: the daemon does not start with it"}}
	}
	var all []probe.Finding
	for _, t := range s.Anchors {
		f := probe.Finding{Name: "anchor " + t.Name, Answer: probe.Yes}
		st, err := anchor.ReadStatus(a.config.Anchors(), t)
		switch {
		case err != nil:
			f.Answer, f.Detail, f.Fix = probe.Unknown, fmt.Sprint(cause(err)), "run jail doctor as root"
		case st.Error != "":
			f.Answer, f.Detail, f.Fix = probe.No, fmt.Sprintf("%s, since %s, %s", audit.Printable(st.Error), st.Since.Format(time.RFC3339), count(st.Failed, "try", "tries")),
				"until it works again, records can be taken away without an anchor to show it"
		case st.Time.IsZero():
			f.Detail = t.To + ": nothing was sent yet"
		default:
			f.Detail = fmt.Sprintf("%s: has %d records, since %s", t.To, st.Size, st.Time.Format(time.RFC3339))
		}
		all = append(all, f)
	}
	return all
}

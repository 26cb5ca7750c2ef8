package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/audit/index"
)

// search is for the log in dir, with its index.
func (a *app) search(dir string) index.Search {
	return index.Search{Dir: dir, Say: func(text string) { say(a.stderr, "hint", "audit log "+dir+": "+text) }}
}

func (a *app) auditIndexCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "index [flags]",
		Short: "bring the search index of the log up to date",
		Long: `Bring the index that searches use up to the end of the log, and begin one where there is none. Searches do so themselves where the log is long; this is for who wants
them quick at once. The index can be taken away at any time: it is made from the log. It is never asked when the log is verified.`,
		Example: "  jail audit index\n  jail audit index --rebuild",
		Args:    exactly(),
	}
	dir := a.logFlag(cmd)
	rebuild := cmd.Flags().Bool("rebuild", false, "make it anew")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := a.logDir(*dir)
		if _, err := os.ReadDir(d); err != nil {
			return logError(d, err)
		}
		begun := time.Now()
		n, err := index.Update(cmd.Context(), d, *rebuild)
		if err != nil {
			return failed(err, "jail audit index --rebuild makes it anew", "index of the audit log %s: %v", d, err)
		}
		done := indexed{Records: n, MS: time.Since(begun).Milliseconds()}
		if info, err := os.Stat(filepath.Join(d, index.File)); err == nil {
			done.Bytes = info.Size()
		}
		return a.show(*asJSON, done, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s new in the index, which takes %s\n", count(int(n), "record is", "records are"), size(done.Bytes))
			return err
		})
	}
	return cmd
}

type indexed struct {
	Records int64 `json:"records"` // new in it
	Bytes   int64 `json:"bytes"`   // that it takes
	MS      int64 `json:"ms"`
}

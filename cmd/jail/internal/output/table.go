package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table writes rows, which all have the same number of cells, in columns.
func Table(w io.Writer, rows [][]string) error {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprint(columns, Printable(strings.ReplaceAll(cell, "\t", `\t`)), "\t")
		}
		fmt.Fprintln(columns)
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	var lines strings.Builder
	for line := range strings.Lines(b.String()) {
		lines.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, lines.String())
	return err
}

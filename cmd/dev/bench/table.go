package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// none stands in a cell that has no value.
const none = "–"

// A table is printed in Markdown, aligned so that it can be read as it is. The first column is
// text, the others are numbers.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range all {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			if i == 0 {
				b.WriteString("|" + strings.Repeat("-", width+2))
			} else {
				b.WriteString("|" + strings.Repeat("-", width+1) + ":")
			}
		}
		b.WriteString("|\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// millis formats a time in milliseconds.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond))
}

func times(ratio float64, ok bool) string {
	if !ok {
		return none
	}
	return fmt.Sprintf("%.2f", ratio)
}

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
)

// printable returns s as it is if a terminal shows all of it as itself, and else escaped, so that it can be turned back. A tab stays.
func printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) && r != '\t' || r == '\uFFFD' {
			return workspace.Name(s).String()
		}
	}
	return s
}

// table writes rows in columns.
func table(w io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(strings.ReplaceAll(cell, "\t", `\t`))
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// size writes a number of bytes for people: 256 MiB, 1.5 KiB.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if text := strconv.FormatFloat(f, 'f', 1, 64); !strings.HasSuffix(text, ".0") {
		return text + " " + units[i]
	}
	return strconv.FormatFloat(f, 'f', 0, 64) + " " + units[i]
}

// age writes how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := time.Since(t).Round(time.Second)
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// quantity writes a value of the limit called name, as a result has it: bytes, milliseconds or a count.
func quantity(name string, n int64) string {
	_, unit, ok := policy.TopLimits().Get(name)
	switch {
	case ok && unit == policy.Bytes:
		return size(n)
	case ok && unit == policy.Duration:
		return millis(n)
	}
	return strconv.FormatInt(n, 10)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printableText is printable for each line of a text.
func printableText(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body, ended := strings.CutSuffix(line, "\n")
		b.WriteString(printable(body))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

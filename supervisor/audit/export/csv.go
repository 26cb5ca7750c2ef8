package export

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Columns of CSV. Those of a type that have no column of their own are in the last one, as JSON.
var csvColumns = []string{"seq", "time", "type", "run", "session", "uid", "pid", "exe", "policy", "cause"}

// Fields of types that have a column.
var (
	csvTexts   = []string{"tool", "profile", "workspace", "program", "kind", "path", "decision", "layer", "what", "rule", "method", "host", "name", "reason", "error"}
	csvNumbers = []string{"port", "status", "exit_code", "limit", "peak", "count"}
)

func csvHeader() []byte {
	columns := append(append(append([]string{}, csvColumns...), csvTexts...), csvNumbers...)
	return csvLine(append(columns, "other"))
}

func csvRow(r audit.Record) []byte {
	optional := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	row := []string{strconv.FormatUint(r.Seq, 10), r.Time.UTC().Format(time.RFC3339Nano), cell(string(r.Type)), cell(r.Run), cell(r.Session),
		strconv.FormatUint(uint64(r.Actor.UID), 10), optional(int64(r.Actor.PID)), cell(r.Actor.Exe), cell(r.Policy), optional(int64(r.Cause))}
	shown := map[string]bool{}
	for _, name := range csvTexts {
		s := text(r, name)
		shown[name] = s != ""
		row = append(row, cell(s))
	}
	for _, name := range csvNumbers {
		value := string(r.Field(name))
		if value != "" && strings.Trim(value, "-0123456789") == "" {
			shown[name] = true
		} else {
			value = ""
		}
		row = append(row, value)
	}
	other := map[string]any{}
	for _, f := range r.Fields {
		if !shown[f.Name] {
			other[f.Name] = f.Value
		}
	}
	last := ""
	if len(other) > 0 {
		last = string(compact(other))
	}
	return csvLine(append(row, last))
}

// cell is a text that no spreadsheet takes for a formula, and no terminal for an order: where it begins with a character that would make it one, an
// apostrophe stands before it.
func cell(stored string) string {
	s := audit.Printable(audit.Original(stored))
	if stored == "" {
		return ""
	}
	if strings.ContainsAny(s[:1], "=+-@'|%") || strings.HasPrefix(s, "\uff1d") || strings.HasPrefix(s, "\uff0b") || strings.HasPrefix(s, "\uff0d") ||
		strings.HasPrefix(s, "\uff20") {
		return "'" + s
	}
	return s
}

func csvLine(row []string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	_ = w.Write(row) // into memory
	w.Flush()
	return b.Bytes()
}

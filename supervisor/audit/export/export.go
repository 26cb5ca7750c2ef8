// Package export sends the records of an audit log to other programs, in the formats JSON Lines,
// OCSF, systemd journal and OTLP.
//
// In every format no content of a record can end the record or start another. No text has terminal
// control characters: they are JSON escapes. Bytes that are not valid UTF-8 are written as in the
// log: U+FFFD and two hexadecimal digits each.
package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Format is a format of exported records.
type Format string

// The formats.
const (
	// JSONL is the lines of the log as they are.
	JSONL Format = "jsonl"
	// OCSF is Open Cybersecurity Schema Framework 1.3.0, one event a line.
	OCSF Format = "ocsf"
	// Journald is systemd's journal: its native protocol, or its export format in a file.
	Journald Format = "journald"
	// OTLP is OpenTelemetry logs: JSON over HTTP, or one request a line in a file.
	OTLP Format = "otlp"
)

// Formats returns all formats.
func Formats() []Format { return []Format{JSONL, OCSF, Journald, OTLP} }

// Host describes the host of the records.
type Host struct {
	Name    string // of the host
	Version string // of jail
}

// Sink is a destination of records. Send returns nil when the records are delivered: written to a
// file and flushed, accepted by a socket, or acknowledged by a server. After an error some of the
// records may not be delivered.
type Sink interface {
	Send(ctx context.Context, batch []audit.Record) error
	Close() error
}

// sendError is an error of Send that tells whether and when to retry.
type sendError struct {
	error
	// permanent: a retry would fail, too.
	permanent bool
	// delivered: the server accepted the batch but dropped some of its records. The batch counts as
	// delivered and is not sent again.
	delivered bool
	// after is how long the server asks to wait before a retry.
	after time.Duration
}

func (e *sendError) Unwrap() error { return e.error }

func permanent(err error) error { return &sendError{error: err, permanent: true} }

// encode returns one record in the format, with its terminator, for a stream.
func (f Format) encode(h Host, r audit.Record) []byte {
	switch f {
	case OCSF:
		return append(ocsf(h, r), '\n')
	case Journald:
		return append(journal(h, r, true), '\n')
	case OTLP:
		return append(otlp(h, []audit.Record{r}), '\n')
	}
	return append(audit.EscapeJSON(r.Line), '\n')
}

// compact returns v as JSON without spaces that is safe to print.
func compact(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// v has only maps, lists, texts and parsed JSON.
		panic("export: bug: " + err.Error())
	}
	return audit.EscapeJSON(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// text returns a text field of a record as stored in the log, or "".
func text(r audit.Record, name string) string {
	var s string
	if json.Unmarshal(r.Field(name), &s) != nil {
		return ""
	}
	return s
}

// facility is "log audit" (RFC 5424, table 1).
const facility = 13

// Severities of records, by the numbers of RFC 5424.
const (
	sevError   = 3
	sevWarning = 4
	sevNotice  = 5
	sevInfo    = 6
)

func severity(r audit.Record) int {
	switch r.Type {
	case audit.TypeGap:
		return sevError
	case audit.TypeDenied, audit.TypeLimit:
		return sevWarning
	case audit.TypeCredentialUsed, audit.TypeWorkspaceCommitted, audit.TypeWorkspaceReverted,
		audit.TypePolicyLoaded, audit.TypeToolInstalled,
		audit.TypeToolRemoved, audit.TypeToolKeys:
		return sevNotice
	}
	if r.Decision() == audit.DecisionDenied || text(r, "error") != "" {
		return sevWarning
	}
	return sevInfo
}

// summary returns a short description of a record.
func summary(r audit.Record) string {
	words := []string{string(r.Type)}
	for _, name := range []string{"tool", "kind", "program", "method", "host", "layer", "what",
		"name", "path", "workspace", "bundle", "reason", "error"} {
		if s := text(r, name); s != "" {
			words = append(words, audit.Printable(audit.Original(s)))
		}
	}
	if r.Type == audit.TypeRunFinished {
		words = append(words, "exit "+strconv.FormatInt(r.Int("exit_code"), 10))
	}
	return strings.Join(words, " ")
}

// commonFields returns the names and values of the fields that every record type has.
func commonFields(r audit.Record) (names []string, values []any) {
	add := func(name string, v any) { names, values = append(names, name), append(values, v) }
	add("seq", r.Seq)
	add("type", string(r.Type))
	for _, f := range []struct{ name, value string }{{"run", r.Run}, {"session", r.Session},
		{"policy", r.Policy}, {"exe", r.Actor.Exe}} {
		if f.value != "" {
			add(f.name, f.value)
		}
	}
	add("uid", uint64(r.Actor.UID))
	if r.Actor.PID != 0 {
		add("pid", uint64(r.Actor.PID))
	}
	if r.Cause != 0 {
		add("cause", r.Cause)
	}
	return names, values
}

// removed maps formats of earlier releases to advice on their replacement. The release after 0.8
// drops this table.
var removed = map[Format]string{
	"csv":    "use jsonl, of which jq makes a table (jq -r '[.seq, .time, .type, .run] | @csv')",
	"syslog": "use journald, or jsonl to a file that the collector reads (imfile of rsyslog)",
}

// Parse returns the format with this name. It returns an error with advice for a removed one.
func Parse(name string) (Format, error) {
	f := Format(name)
	if slices.Contains(Formats(), f) {
		return f, nil
	}
	if instead, was := removed[f]; was {
		return "", fmt.Errorf("the format %s was removed in 0.8: %s", f, instead)
	}
	all := strings.Trim(fmt.Sprint(Formats()), "[]")
	return "", fmt.Errorf("there is no format %.80q: there are %s", name,
		strings.ReplaceAll(all, " ", ", "))
}

package toolsession

import (
	"fmt"
	"strings"
)

// An Output is how a program ended, for who asked for it by its arguments.
type Output struct {
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated" jsonschema:"there was more output"`
	Meta      Meta   `json:"meta"`
}

// A Meta is what jail says of a program.
type Meta struct {
	Run    string   `json:"run" jsonschema:"the id of the invocation in jail's log"`
	WallMS int64    `json:"wall_ms"`
	Limit  string   `json:"limit,omitempty" jsonschema:"the limit that ended it"`
	Denied []string `json:"denied,omitempty" jsonschema:"what the policy refused it"`
}

// Output returns the outcome in that form.
func (o *Outcome) Output() Output {
	out := Output{ExitCode: o.ExitCode, Stdout: o.Out.String(), Stderr: o.ErrOut.String(),
		Truncated: o.Truncated || o.Out.Cut || o.ErrOut.Cut,
		Meta:      Meta{Run: o.ID, WallMS: o.Usage.WallMS}}
	if o.Limit != nil {
		out.Meta.Limit = o.Limit.Name
	}
	for _, d := range o.Denied {
		out.Meta.Denied = append(out.Meta.Denied, fmt.Sprint(d))
	}
	return out
}

// Shown is what a model reads of a program's end.
func (o Output) Shown() string {
	b := &strings.Builder{}
	b.WriteString(o.Stdout)
	if o.Stderr != "" && b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(o.Stderr)
	if o.Truncated {
		b.WriteString("\n[there was more output]")
	}
	if o.Meta.Limit != "" {
		fmt.Fprintf(b, "\n[ended by the limit %s]", o.Meta.Limit)
	}
	if o.ExitCode != 0 {
		fmt.Fprintf(b, "\n[exit code %d]", o.ExitCode)
	}
	return b.String()
}

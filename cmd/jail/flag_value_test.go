package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestFlagValues: a value that a flag cannot have is named with what it has to be, not with the
// function that reads it.
func TestFlagValues(t *testing.T) {
	for line, want := range map[string]string{
		"audit tail --after x":               `--after: "x" is no whole number of 0 or more`,
		"audit tail --after -1":              `--after: "-1" is no whole number of 0 or more`,
		"audit tail -n 1.5":                  `--lines: "1.5" is no whole number`,
		"audit tail -n 99999999999999999999": `--lines: "99999999999999999999" is out of range`,
		"session start --idle 90":            `--idle: "90" is no duration: write a number and s, m or h, as in 90s`,
		"run --json=maybe -- true":           `--json: "maybe" is no yes or no: write true or false, or the flag alone for true`,
		"run --nosuch -- true":               `unknown flag: --nosuch`,
	} {
		var out, said bytes.Buffer
		code := program(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &said, nil)
		if code != 2 || !strings.Contains(said.String(), want) || strings.Contains(said.String(),
			"strconv") {
			t.Errorf("jail %s: %d, %s%s", line, code, out.String(), said.String())
		}
	}
}

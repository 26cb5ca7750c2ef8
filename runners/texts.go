package runners

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Texts is a list of byte strings, such as arguments. In JSON each is a string where it is valid
// UTF-8, and otherwise {"base64": "…"}, because JSON would silently replace the bytes that are not.
type Texts []string

// rawText is the JSON form of bytes that are not UTF-8.
type rawText struct {
	Base64 *[]byte `json:"base64"`
}

// MarshalJSON writes the list.
func (t Texts) MarshalJSON() ([]byte, error) {
	out := make([]any, len(t))
	for i, s := range t {
		if utf8.ValidString(s) {
			out[i] = s
			continue
		}
		b := []byte(s)
		out[i] = rawText{&b}
	}
	return json.Marshal(out)
}

var errText = errors.New(`want a string or {"base64": "…"}`)

// UnmarshalJSON parses the output of MarshalJSON.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	if raw == nil {
		*t = nil
		return nil
	}
	out := make(Texts, len(raw))
	for i, r := range raw {
		var s string
		if json.Unmarshal(r, &s) == nil && string(r) != "null" {
			out[i] = s
			continue
		}
		var b rawText
		if err := json.Unmarshal(r, &b); err != nil || b.Base64 == nil {
			return fmt.Errorf("text %d: %w", i, errText)
		}
		out[i] = string(*b.Base64)
	}
	*t = out
	return nil
}

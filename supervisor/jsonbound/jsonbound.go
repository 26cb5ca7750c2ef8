// Package jsonbound bounds how many values a JSON text has that others have written, because each may
// cost a decoder a hundred times the bytes that it takes in the text.
package jsonbound

import "fmt"

// Check returns an error where a JSON text has more than most values: objects, lists, keys,
// strings, numbers and words. It reads the text once and keeps nothing; whether it is JSON the
// decoder says.
func Check(text []byte, most int) error {
	values := 0
	inString, escaped, inWord := false, false, false
	for i, c := range text {
		starts := false
		switch {
		case inString:
			inString = escaped || c != '"'
			escaped = !escaped && c == '\\'
			continue
		case c == '"':
			inString, inWord, starts = true, false, true
		case c == '{' || c == '[':
			inWord, starts = false, true
		case c == '}' || c == ']' || c == ',' || c == ':' || c <= ' ':
			inWord = false
		default:
			starts, inWord = !inWord, true
		}
		if starts {
			values++
		}
		if values > most {
			return fmt.Errorf("more than %d values, at byte %d", most, i)
		}
	}
	return nil
}

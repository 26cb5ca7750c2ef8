// Package jsonbound limits the number of values in untrusted JSON text, because decoding a value
// may cost a hundred times its size in the text.
package jsonbound

import "fmt"

// Check returns an error if text has more than most values: objects, lists, keys, strings, numbers
// and words. It does not check whether the text is valid JSON.
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

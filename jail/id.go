package jail

import "github.com/jail-sandbox/jail/jail/id"

// An ID names one run. IDs made by NewID carry 128 random bits, so that nobody guesses another's.
type ID string

// NewID returns a fresh random ID of 26 letters and digits.
func NewID() ID { return ID(id.New()) }

// ParseID checks an ID that a caller chose: 1 to 64 letters, digits, dots, dashes and underscores,
// beginning with a letter or digit. It is used as a file name and in control group paths.
func ParseID(s string) (ID, error) {
	if err := id.Check(s); err != nil {
		return "", err
	}
	return ID(s), nil
}

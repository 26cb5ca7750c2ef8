package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// Approvals are the operator's settings for approvals, from a TOML file that only root and the
// daemon's user may write. jaild(8) describes them:
//
//	mcp    = false                         # whether jail mcp may decide; true if missing
//	notify = ["/usr/local/bin/tell", "-q"] # started for each action that begins to wait
type Approvals struct {
	NoMCP  bool
	Notify []string
}

// maxNotify bounds the number of strings in notify, and maxNotifyWord the bytes of each string.
const (
	maxNotify     = 32
	maxNotifyWord = 4 << 10
)

// ReadApprovals reads the settings for approvals from the file at path. It returns the zero
// Approvals and no error if the file is missing. An untrusted file (see profiles.ReadTrusted) or an
// invalid setting is an error with the code usage.
func ReadApprovals(path string) (s Approvals, err error) {
	err = read(path, "approvals", "jaild(8) has the keys of approvals.toml",
		func(text []byte) error { return s.parse(path, text) })
	return s, err
}

func (s *Approvals) parse(path string, text []byte) error {
	values, places, err := syntax.PlainAt(path, text)
	if err != nil {
		return err
	}
	for key, value := range values {
		var err error
		switch key {
		case "mcp":
			may, ok := value.(bool)
			if s.NoMCP = !may; !ok {
				err = errors.New("mcp is true or false")
			}
		case "notify":
			s.Notify, err = program(value)
		default:
			err = fmt.Errorf("unknown key %q; there are mcp and notify", key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", places[key], err)
		}
	}
	return nil
}

// program converts the value of the key notify, a list of strings, to the absolute path of a
// program and its arguments. It returns an error unless there are 1 to maxNotify strings, each with
// at most maxNotifyWord bytes and without a NUL byte, and the first is an absolute path.
func program(value any) (words []string, err error) {
	list, _ := value.([]any)
	for _, item := range list {
		word, ok := item.(string)
		if !ok || len(word) > maxNotifyWord || strings.ContainsRune(word, 0) {
			return nil, fmt.Errorf("an item of notify is no text of at most %d bytes", maxNotifyWord)
		}
		words = append(words, word)
	}
	if len(words) == 0 || len(words) > maxNotify || !filepath.IsAbs(words[0]) {
		return nil, fmt.Errorf(
			"notify is a list of 1 to %d texts, the first the absolute path of a program", maxNotify)
	}
	return slices.Clip(words), nil
}

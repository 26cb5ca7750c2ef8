package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// stateFormat is the number of the layout of state directories. A directory without a number has
// format 1, as releases before 0.8 wrote it. A layout that an older jaild would misread takes the
// next number, and New then reads the previous one, too.
const stateFormat = 1

// formatFile holds the number, in the state directory.
const formatFile = "format"

// checkFormat refuses a state directory of a format that this version does not know. It writes the
// number into a directory that has none.
func checkFormat(dir string) error {
	path := filepath.Join(dir, formatFile)
	text, err := os.ReadFile(path)
	known := strconv.Itoa(stateFormat)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Without the file the format is 1: a full disk does not keep a daemon from its state.
		_ = atomicfile.Write(path, []byte(known+"\n"), 0o600, atomicfile.Durable)
		return nil
	case err != nil:
		return problem.New(problem.Failed, "state directory: %w", err)
	case strings.TrimSpace(string(text)) != known:
		return problem.New(problem.Failed, "state directory %s: its format is %.20q, and jail %s "+
			"knows format %s", dir, strings.TrimSpace(string(text)), config.Version, known).
			WithHint("start the version of jail that wrote it, or name another directory with --state")
	}
	return nil
}

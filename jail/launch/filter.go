package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// CompileFilter returns f as BPF instructions for a process of the host. It runs jail-shim, the
// only program with the compiler.
func (l Launcher) CompileFilter(ctx context.Context, f seccomp.Filter) ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, l.Shim, control.ShimFilterArg)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &said
	cmd.Env = []string{}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("compile a filter: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

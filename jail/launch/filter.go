package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
)

// CompileFilter returns a filter as the kernel takes it, for a process of the host. The compiler is in jail-shim and nowhere else.
func (l Launcher) CompileFilter(ctx context.Context, f jail.Filter) ([]byte, error) {
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

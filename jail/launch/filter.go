package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"

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

// A FilterOnce is a filter that is compiled when it is first needed. The zero value has compiled
// nothing. Its method may be called from several goroutines.
type FilterOnce struct {
	mu      sync.Mutex
	program []byte
}

// Get returns f as CompileFilter does. f is the same at each call.
func (o *FilterOnce) Get(ctx context.Context, l Launcher, f seccomp.Filter) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.program == nil {
		program, err := l.CompileFilter(ctx, f)
		if err != nil {
			return nil, err
		}
		o.program = program
	}
	return o.program, nil
}

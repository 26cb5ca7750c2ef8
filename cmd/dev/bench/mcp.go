package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
)

const mcpPart = "mcp"

// An mcpServer is jail mcp, and its client.
type mcpServer struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	last    int
	session string
}

// startMCP starts jail mcp over a directory of the bed.
func (b *bed) startMCP(ctx context.Context, dir string) (*mcpServer, error) {
	// The program itself: the front would be another process.
	cmd := exec.CommandContext(ctx, b.bin+"/jail-full", "mcp")
	cmd.Dir, cmd.Env, cmd.Stderr = b.path(dir), b.environment(b.state), b.errors
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &mcpServer{cmd: cmd, in: in, out: bufio.NewReader(out)}
	b.undo = append(b.undo, func() error {
		return errors.Join(in.Close(), cmd.Wait())
	})
	_, err := s.ask("initialize", map[string]any{"protocolVersion": "2025-11-25",
		"capabilities": struct{}{}, "clientInfo": map[string]string{"name": "bench", "version": "1"}})
	if err == nil {
		_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	if err != nil {
		return nil, err
	}
	all, err := b.client.Sessions(ctx)
	if n := slices.IndexFunc(all, func(i message.SessionInfo) bool { return i.Workspace == cmd.Dir }); n >= 0 {
		s.session = all[n].GlobalID
	} else if err == nil {
		err = errors.New("jail mcp has no session")
	}
	return s, err
}

// ask sends a request and returns its answer.
func (s *mcpServer) ask(method string, params any) ([]byte, error) {
	s.last++
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.last, "method": method,
		"params": params})
	if err == nil {
		_, err = s.in.Write(append(text, '\n'))
	}
	if err != nil {
		return nil, err
	}
	var answer struct {
		ID     int
		Result json.RawMessage
	}
	for answer.ID != s.last {
		if text, err = s.out.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil {
			return nil, err
		}
	}
	if answer.Result == nil {
		return nil, fmt.Errorf("%s: %.500s", method, text)
	}
	return answer.Result, nil
}

// call calls the tool bash.
func (s *mcpServer) call(context.Context) (time.Duration, error) {
	start := time.Now()
	text, err := s.ask("tools/call", map[string]any{"name": "bash",
		"arguments": map[string]string{"command": "true"}})
	took := time.Since(start)
	if err == nil && !bytes.Contains(text, []byte(`"exitCode":0`)) {
		err = fmt.Errorf("%.500s", text)
	}
	return took, err
}

// mcps measures in turn a call of the tool bash of jail mcp and the same invocation of its session,
// and the memory of jail mcp after them.
func mcps(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	_, warm, end, err := twoBeds(ctx, bin, mcpPart, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	server, err := warm.startMCP(ctx, "small")
	if err != nil {
		return err
	}
	used, err := cpuOfTree(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	less := warm.invocation(server.session, server.cmd.Dir)
	more := &subject{name: "MCP: the same by the tool `bash` of `jail mcp`", once: rested(server.call)}
	if err := measure(ctx, []*subject{less, more}, rounds, stderr); err != nil {
		return err
	}
	after, err := cpuOfTree(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	memory, err := resident(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
	t := medians(less, more, "what the tool adds, of each pair")
	// Other work on the machine makes the calls slow, and this hardly.
	calls := len(more.took) + warmUps
	t.add("processor time of `jail mcp` for a call", millis((after-used)/time.Duration(calls)), none, none)
	if err := t.write(stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\n`jail mcp` has %.1f MiB resident after that.\n", float64(memory)/(1<<10))
	return err
}

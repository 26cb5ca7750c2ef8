package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
)

const warmPart = "warm"

// calm is how long nothing is asked for before what is to be warm. It is not counted.
const calm = 150 * time.Millisecond

// warms measures the same runs of two daemons in turn: of one whose jails wait for runs, and of one
// that makes each when it is asked for.
func warms(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	cold, warm, end, err := twoBeds(ctx, bin, warmPart, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	subjects, err := warmSubjects(ctx, cold, warm)
	if err != nil {
		return err
	}
	if err := measure(ctx, subjects, rounds, stderr); err != nil {
		return err
	}
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
	t := &table{head: []string{"what", "cold", "p99", "min", "warm", "p99", "min", "warm ÷ cold"}}
	for n := 0; n+1 < len(subjects); n += 2 {
		c, w := subjects[n].took, subjects[n+1].took
		t.add(subjects[n].name, millis(c.median()), millis(c.percentile(99)), millis(c.min()),
			millis(w.median()), millis(w.percentile(99)), millis(w.min()), times(w.ratio(c)))
	}
	if err := t.write(stdout); err != nil {
		return err
	}
	text, err := warm.client.Metrics(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "jail_starts_total{") {
			fmt.Fprintf(stdout, "\n    %s", line)
		}
	}
	return nil
}

// warmSubjects are pairs: cold and warm.
func warmSubjects(ctx context.Context, cold, warm *bed) ([]*subject, error) {
	var all []*subject
	pair := func(name string, once func(b *bed) func(context.Context) (time.Duration, error)) {
		all = append(all, &subject{name: name, once: rested(once(cold))},
			&subject{name: name, once: rested(once(warm))})
	}
	trivial := cold.request(cold.path("trivial.wasm"), nil, "small")
	bare := trivial
	bare.NoWorkspace = true
	pair("API: trivial module over a shadow, request to exit",
		func(b *bed) func(context.Context) (time.Duration, error) { return b.run(trivial) })
	pair("API: the same without a workspace", func(b *bed) func(context.Context) (time.Duration,
		error) {
		return b.run(bare)
	})
	pair("API: `true` of core-utils over a shadow",
		func(b *bed) func(context.Context) (time.Duration, error) {
			return b.run(b.request("true", nil, "small"))
		})
	pair("API: `grep -c func FILE`", func(b *bed) func(context.Context) (time.Duration, error) {
		return b.run(b.request("grep", []string{"-c", "func", "FILE"}, "small"))
	})
	pair("`jail run trivial.wasm`, whole process",
		func(b *bed) func(context.Context) (time.Duration, error) {
			return b.process(b.state,
				fixed(filepath.Join(b.bin, "jail"), "run", "--", b.path("trivial.wasm")))
		})
	for _, c := range []struct{ name, profile, tool string }{
		{"API: a call of `true` in a session", "default", "true"},
		{"API: the same, the directory read-only", "readonly", "true"},
		{"API: a call of the host's `/usr/bin/true` in a session", "build", "/usr/bin/true"},
	} {
		calls := map[*bed]func(context.Context) (time.Duration, error){}
		for _, b := range []*bed{cold, warm} {
			var err error
			if calls[b], err = b.sessionCall(ctx, c.profile, c.tool, false); err != nil {
				return nil, err
			}
		}
		pair(c.name, func(b *bed) func(context.Context) (time.Duration, error) { return calls[b] })
	}
	return all, nil
}

// session opens a session over the small directory.
func (b *bed) session(ctx context.Context, profile string,
	shared bool) (message.SessionInfo, error) {
	return b.client.StartSession(ctx,
		message.SessionRequest{Request: message.Request{ID: string(jail.NewID()),
			Profile: profile, Dir: b.path("small"), Fate: message.FateDiscard},
			SharedEngine: shared})
}

// sessionExec opens a session and returns a measurement of `jail session exec` in it.
func (b *bed) sessionExec(ctx context.Context) (once, error) {
	s, err := b.session(ctx, "default", false)
	return b.process(b.state, fixed(filepath.Join(b.bin, "jail"), "session", "exec", s.ID, "--",
		"true")), err
}

// twice does the same twice and measures the second time.
func twice(f once) once {
	return func(ctx context.Context) (time.Duration, error) {
		if took, err := f(ctx); err != nil {
			return took, err
		}
		return f(ctx)
	}
}

// sessionCall opens a session and returns a measurement of one call in it.
func (b *bed) sessionCall(ctx context.Context, profile, tool string,
	shared bool) (func(context.Context) (time.Duration, error), error) {
	s, err := b.session(ctx, profile, shared)
	if err != nil {
		return nil, err
	}
	return b.exec(s.ID, message.ExecRequest{Tool: tool, Dir: b.path("small")}), nil
}

// invocation is `bash -c true` in an open session over a directory.
func (b *bed) invocation(session, dir string) *subject {
	return &subject{name: "API: an invocation of `bash -c true` in a session",
		once: rested(b.exec(session, message.ExecRequest{Tool: "bash",
			Args: []string{"-c", "true"}, Dir: dir}))}
}

// exec returns a measurement of an invocation of a session.
func (b *bed) exec(session string, req message.ExecRequest) once {
	return func(ctx context.Context) (time.Duration, error) {
		var out bytes.Buffer
		start := time.Now()
		res, err := b.client.Exec(ctx, session, req, bytes.NewReader(nil), &out, &out, nil)
		took := time.Since(start)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d: %.500s", res.ExitCode, out.Bytes())
		}
		return took, err
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	branches "github.com/jail-sandbox/jail/supervisor/shadows"
)

// Children and branches that are measured.
const (
	// atOnce are made or loaded in one event, whose own time is taken off.
	atOnce = 20
	// apart is the pause before a program that is loaded alone, in which jaild makes a jail.
	apart = time.Second
	// attempts of a try write so many bytes each.
	attempts = 8
	wrote    = 1 << 20
)

// emptyModule is a WebAssembly module whose _start returns.
var emptyModule = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x05\x03\x01\x00\x01" +
	"\x07\x13\x02\x06memory\x02\x00\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b")

// A hostCall is a call of HOST that the guest makes for an event.
type hostCall struct {
	Binding string         `json:"binding"`
	Method  string         `json:"method"`
	Params  map[string]any `json:"params"`
}

// children measures facets, loaded programs, and branches.
func (b *agentBed) children(ctx context.Context, files, rounds int, t *table,
	progress io.Writer) error {
	fmt.Fprintln(progress, "bench: facets and loaded programs")
	if err := b.addParent(ctx, "parent", "facets = true", "", b.hostile); err != nil {
		return err
	}
	// The first ones compile the modules.
	time.Sleep(settled)
	facet := func(n int) []hostCall {
		return calls(n, "facet", func(n int) map[string]any {
			return map[string]any{"name": fmt.Sprintf("f%d", n), "bindings": []string{"STORAGE"}}
		})
	}
	gone := calls(atOnce, "deleteFacet", func(n int) map[string]any {
		return map[string]any{"name": fmt.Sprintf("f%d", n)}
	})
	load := func(n int) []hostCall {
		return calls(n, "load", func(n int) map[string]any {
			return map[string]any{"executionId": fmt.Sprint(n), "mainModule": "m.wasm",
				"modules": map[string]any{"m.wasm": map[string]string{
					"base64": base64.StdEncoding.EncodeToString(emptyModule)}}}
		})
	}
	for range 2 {
		if _, err := b.calls(ctx, slices.Concat(facet(1), load(1))); err != nil {
			return err
		}
		time.Sleep(settled)
	}
	var nothing, facets, loads, alone sample
	for range rounds {
		for _, one := range []struct {
			to    *sample
			calls []hostCall
		}{{&nothing, nil}, {&facets, facet(atOnce)}, {nil, gone}, {&loads, load(atOnce)}} {
			took, err := b.calls(ctx, one.calls)
			if err != nil {
				return err
			}
			if one.to != nil {
				*one.to = append(*one.to, took)
			}
		}
	}
	for range rounds {
		time.Sleep(apart)
		took, err := b.calls(ctx, load(1))
		if err != nil {
			return err
		}
		alone = append(alone, took)
	}
	for i := range rounds {
		facets[i] = (facets[i] - nothing.median()) / atOnce
		loads[i] = (loads[i] - nothing.median()) / atOnce
		alone[i] -= nothing.median()
	}
	t.latency("create a facet (5)", facets)
	t.latency("load of a compiled module (20)", alone)
	t.latency("the same, 20 of them one right after the other", loads)
	if err := b.split(ctx, rounds, t, progress); err != nil {
		return err
	}
	if err := b.forks(ctx, files, rounds, t, progress); err != nil {
		return err
	}
	return b.try(ctx, t, progress)
}

// addParent installs an agent that may have facets, with more capabilities.
func (b *agentBed) addParent(ctx context.Context, name, capabilities, more, module string) error {
	dir := filepath.Join(b.dir, "source", name)
	if err := b.write(dir, name, "[wake]\nidle = \"10m\"\n"+more, module); err != nil {
		return err
	}
	manifest := filepath.Join(dir, "agent.toml")
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	text = bytes.Replace(text, []byte("storage = true"), []byte("storage = true, "+capabilities), 1)
	if err := errors.Join(os.WriteFile(manifest, text, 0o644),
		os.WriteFile(filepath.Join(dir, "policy.toml"), []byte(agentPolicy+
			"[limits]\nmemory = \"1GiB\"\npids = 256\n"), 0o644)); err != nil {
		return err
	}
	_, err = b.client.Add(ctx, dir)
	return err
}

// split measures sub-agents that ask a model at one time, and the abort of one that works.
func (b *agentBed) split(ctx context.Context, rounds int, t *table, progress io.Writer) error {
	fmt.Fprintln(progress, "bench: sub-agents that ask a model")
	if err := b.addParent(ctx, "splitter", "facets = true, ai = true", fmt.Sprintf("[ai.roles]\nfast = "+
		"{ form = \"chat\", url = \"https://model.example.com:%d\", model = \"m1\" }\n",
		b.modelPort()), b.splitter); err != nil {
		return err
	}
	time.Sleep(settled)
	var start, awake, abort sample
	for n := range rounds + 1 {
		for _, one := range []struct {
			to   *sample
			what string
		}{{nil, "end"}, {&start, "ask"}, {&awake, "ask"}, {&abort, "abort"}} {
			// jaild makes jails meanwhile.
			time.Sleep(apart)
			took, err := b.timed(ctx, "splitter", one.what)
			if err != nil {
				return err
			}
			// The first ones compile the module.
			if one.to != nil && n > 0 {
				*one.to = append(*one.to, took)
			}
		}
	}
	t.latency("three sub-agents that start and ask a model, which answers after 1 s (1500)", start)
	t.latency("the same of sub-agents that are awake", awake)
	t.latency("abort of a facet while it works (100)", abort)
	return nil
}

// timed sends an event, and returns how long its work took, which the agent sends in nanoseconds.
func (b *agentBed) timed(ctx context.Context, name, what string) (took time.Duration, err error) {
	sent, err := b.client.Send(ctx, name, agentapi.Send{Content: mustJSON(what),
		WaitMS: agentapi.MaxWait.Milliseconds()})
	if err == nil && (sent.State != agentapi.Committed || len(sent.Published) != 1) {
		err = fmt.Errorf("the event %s is %s: %s", what, sent.State, sent.Error)
	}
	if err != nil {
		return 0, err
	}
	err = json.Unmarshal(sent.Published[0].Data, &took)
	return took, err
}

func calls(count int, method string, params func(n int) map[string]any) (all []hostCall) {
	for n := range count {
		all = append(all, hostCall{"HOST", method, params(n)})
	}
	return all
}

// calls sends an event whose work is calls of HOST, and returns how long it took to be committed.
func (b *agentBed) calls(ctx context.Context, calls []hostCall) (time.Duration, error) {
	content, err := json.Marshal(map[string]any{"calls": calls})
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	sent, err := b.client.Send(ctx, "parent", agentapi.Send{Content: content,
		WaitMS: agentapi.MaxWait.Milliseconds()})
	took := time.Since(begun)
	// Without calls the guest publishes no answers.
	if err == nil && (sent.State != agentapi.Committed || len(calls) > 0 &&
		(len(sent.Published) != 1 || bytes.Contains(sent.Published[0].Data, []byte(`"error":`)))) {
		err = fmt.Errorf("the event is %s: %s%.1000s", sent.State, sent.Error, mustJSON(sent.Published))
	}
	return took, err
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return text
}

// forks measures the first fork of a shadow, by the files of its directory.
func (b *agentBed) forks(ctx context.Context, most, rounds int, t *table, progress io.Writer) error {
	for files := 1000; files <= most; files *= 10 {
		fmt.Fprintf(progress, "bench: forks of a shadow of %d files\n", files)
		took, err := b.forksOf(ctx, files, rounds)
		if err != nil {
			return err
		}
		t.latency(fmt.Sprintf("fork a shadow of a directory with %d files, 10 of them changed (20)",
			files), took)
	}
	return nil
}

func (b *agentBed) forksOf(ctx context.Context, files, rounds int) (took sample, err error) {
	tmp, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	s := &shadowBed{ctx: ctx, tmp: tmp, tree: filepath.Join(tmp, "tree"), c: shadowCase{files, 10}}
	if err := s.plant(); err != nil {
		return nil, err
	}
	for range rounds {
		id, err := s.change(b.bin)
		if err != nil {
			return nil, err
		}
		one, err := s.forkOnce(id)
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return took, nil
}

// forkOnce forks a shadow and throws both away.
func (s *shadowBed) forkOnce(id string) (took time.Duration, err error) {
	store, err := s.store()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if took, err = s.fork(store, id); err != nil {
		return 0, err
	}
	w, err := store.Get(id)
	if err != nil {
		return 0, err
	}
	return took, w.Discard()
}

// try measures the disk that attempts in branches take beside what they write.
func (b *agentBed) try(ctx context.Context, t *table, progress io.Writer) error {
	fmt.Fprintf(progress, "bench: %d attempts in branches\n", attempts)
	dir := filepath.Join(b.dir, "try")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	jail := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "jail"), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "JAIL_STATE="+b.dir)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("jail %s: %w: %.1000s", strings.Join(args, " "), err, said.Bytes())
		}
		return out, err
	}
	begun := time.Now()
	if _, err := jail("branch", "try", "--profile", "build", "--id", "try", fmt.Sprint(attempts), "--",
		"sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >made", wrote)); err != nil {
		return err
	}
	took := time.Since(begun)
	text, err := jail("branch", "list", "--json")
	if err != nil {
		return err
	}
	var all []branches.BranchInfo
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	disk, discard := int64(0), []string{"branch", "discard"}
	for _, branch := range all {
		if branch.Parent == "try" {
			disk += branch.Disk
			discard = append(discard, branch.ID)
		}
	}
	if len(discard) != 2+attempts {
		return fmt.Errorf("%d branches, want %d", len(discard)-2, attempts)
	}
	t.add(fmt.Sprintf("disk of %d attempts that write 1 MiB each, beside that (4)", attempts),
		fmt.Sprintf("%.1f MiB", float64(disk-attempts*wrote)/(1<<20)), none)
	t.add(fmt.Sprintf("%d attempts in branches, from start to end", attempts), millis(took)+" ms", none)
	if _, err := jail(discard...); err != nil {
		return err
	}
	_, err = jail("session", "stop", "--discard", "try")
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/index"
)

const auditPart = "audit"

// appendFor is how long each way of appending is tried.
const appendFor = 3 * time.Second

// recordsPerRun is what a run of the long log has on record.
const recordsPerRun = 40

// audits measures the log: appending, beside lines with an fsync each; verifying, indexing,
// searching and packing a log of so many records; and what it costs a run to have each of its opens
// on record.
func audits(ctx context.Context, bin string, records int, stdout, progress io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(stdout, "%s\n", host)
	for _, part := range []func() error{
		func() error { return appends(ctx, dir, stdout, progress) },
		func() error { return longLog(ctx, filepath.Join(dir, "long"), records, stdout, progress) },
		func() error { return watchedRuns(ctx, bin, dir, stdout, progress) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	load, err := loadAverage()
	fmt.Fprintf(stdout, "\nLoad average at the end: %s.\n", load)
	return err
}

// fileEntry is a record as a run makes most of.
func fileEntry(run, i int) audit.Entry {
	now := time.Now()
	return audit.Entry{Run: fmt.Sprintf("run-%08d", run), Session: fmt.Sprintf("s%d", run%100),
		Actor:  audit.Actor{UID: uint32(1000 + run%7), PID: 42, Exe: "/usr/bin/jail"},
		Policy: "sha256:5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
		Event: audit.File{Kind: "open", Path: fmt.Sprintf("/workspace/src/file-%d.go", i),
			Program: "/usr/bin/cat", PID: 17, Count: 1, First: now, Last: now}}
}

// entry is the one at that place of the long log: runs with what they did, one behind the other.
func entry(n int) audit.Entry {
	run, i := n/recordsPerRun, n%recordsPerRun
	e := fileEntry(run, i)
	switch {
	case i == 0:
		e.Event = audit.RunStarted{Tool: []string{"core-utils/grep", "core-utils/sed",
			"python/python3"}[run%3], Argv: []string{"grep", "-r", "x"},
			Workspace: "/home/u/project", Profile: "default"}
	case i == recordsPerRun-1:
		e.Event = audit.RunFinished{Usage: audit.Usage{WallMS: 12}}
	case i == 5 && run%10 == 0:
		e.Event = audit.Fetch{Decision: "allowed", Method: "GET", Scheme: "https",
			Host: fmt.Sprintf("host%d.example.com", run%500), Port: 443, Path: "/"}
	case i == 7 && run%1000 == 0:
		e.Event = audit.Denied{Layer: "seccomp", What: "ptrace", Rule: "filter"}
	}
	return e
}

// appends compares durable appending.
func appends(ctx context.Context, dir string, stdout, progress io.Writer) error {
	t := table{head: []string{"durable appends a second", "1 writer", "16", "64"}}
	ours, plain := []string{"the audit log: chained, in the tree, under a signed head"},
		[]string{"a plain file: write, fsync"}
	all := []int{1, 16, 64}
	for _, writers := range all {
		fmt.Fprintf(progress, "bench: append, %d writers\n", writers)
		at := filepath.Join(dir, fmt.Sprintf("append-%d", writers))
		l, err := audit.Open(audit.Options{Dir: filepath.Join(at, "log"),
			KeyDir: filepath.Join(at, "keys")})
		if err != nil {
			return err
		}
		n, err := during(appendFor, writers, func() error {
			_, err := l.Append(ctx, fileEntry(1, 1))
			return err
		})
		if err = errors.Join(err, l.Close()); err != nil {
			return err
		}
		ours = append(ours, perSecond(n))
		f, err := os.OpenFile(filepath.Join(at, "plain.jsonl"), os.O_WRONLY|os.O_CREATE|os.O_APPEND,
			0o600)
		if err != nil {
			return err
		}
		line := make([]byte, 420) // as long as ours
		line[len(line)-1] = '\n'
		var turn sync.Mutex
		n, err = during(appendFor, writers, func() error {
			turn.Lock()
			defer turn.Unlock()
			_, err := f.Write(line)
			return errors.Join(err, f.Sync())
		})
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		plain = append(plain, perSecond(n))
	}
	t.add(ours...)
	t.add(plain...)
	fmt.Fprintf(progress, "bench: append, systemd-journald\n")
	j, none, err := startJournald(ctx, filepath.Join(dir, "journald"))
	if err != nil {
		return err
	}
	if j != nil {
		rows, err := j.rows(all)
		if err = errors.Join(err, j.end()); err != nil {
			return err
		}
		for _, row := range rows {
			t.add(row...)
		}
	}
	fmt.Fprintln(stdout)
	if err := t.write(stdout); err != nil || none == "" {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nNo row of journald: %s.\n", none)
	return err
}

// during returns how often f can be called in a second by so many callers at once.
func during(long time.Duration, callers int, f func() error) (float64, error) {
	var n atomic.Int64
	errs := make([]error, callers)
	var all sync.WaitGroup
	start := time.Now()
	for i := range callers {
		all.Go(func() {
			for errs[i] == nil && time.Since(start) < long {
				if errs[i] = f(); errs[i] == nil {
					n.Add(1)
				}
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds(), errors.Join(errs...)
}

func perSecond(n float64) string { return fmt.Sprintf("%.0f", n) }

// longLog measures what is done with a log that is long.
func longLog(ctx context.Context, dir string, records int, stdout, progress io.Writer) error {
	log := filepath.Join(dir, "log")
	l, err := audit.Open(audit.Options{Dir: log, KeyDir: filepath.Join(dir, "keys"),
		CheckpointRecords: 1 << 16})
	if err != nil {
		return err
	}
	t := table{head: []string{fmt.Sprintf("a log of %d records", records), "seconds",
		"records a second", "bytes"}}
	row := func(what string, long time.Duration, n int, bytes int64) {
		b := none
		if bytes > 0 {
			b = fmt.Sprint(bytes)
		}
		t.add(what, fmt.Sprintf("%.2f", long.Seconds()), perSecond(float64(n)/long.Seconds()), b)
	}
	step := func(what string) time.Time {
		fmt.Fprintf(progress, "bench: %s\n", what)
		return time.Now()
	}
	start := step("writing the long log")
	for n := 0; n < records; {
		var batch []audit.Entry
		for range min(8192, records-n) {
			batch = append(batch, entry(n))
			n++
		}
		if _, _, err := l.AppendAll(batch); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	long := time.Since(start)
	row("append in batches of 8,192", long, records, sizeOf(log, ".jsonl"))
	pub, err := audit.PublicKey(log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	verify := func(what string) error {
		start := step(what)
		r, err := audit.Verify(log, pub)
		row(what, time.Since(start), int(r.Records), 0)
		return err
	}
	if err := verify("verify"); err != nil {
		return errors.Join(err, l.Close())
	}
	start = step("index")
	if _, err := index.Update(ctx, log, true); err != nil {
		return errors.Join(err, l.Close())
	}
	row("make the index", time.Since(start), records, sizeOf(log, index.File))
	if err := t.writeBelow(stdout); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := searches(ctx, log, records, stdout, progress); err != nil {
		return errors.Join(err, l.Close())
	}
	t.rows = nil
	start = step("compress")
	if _, err := l.Compress(nil); err != nil {
		return errors.Join(err, l.Close())
	}
	row("pack all segments but the last", time.Since(start), records,
		sizeOf(log, ".jsonl")+sizeOf(log, ".gz"))
	if err := errors.Join(l.Close(), verify("verify, packed")); err != nil {
		return err
	}
	return t.writeBelow(stdout)
}

// writeBelow writes the table behind an empty line.
func (t *table) writeBelow(w io.Writer) error {
	fmt.Fprintln(w)
	return t.write(w)
}

func sizeOf(dir, ending string) (n int64) {
	list, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil {
		return 0
	}
	for _, path := range list {
		if info, err := os.Stat(path); err == nil {
			n += info.Size()
		}
	}
	return n
}

// searches measures questions with the index and without.
func searches(ctx context.Context, log string, records int, stdout, progress io.Writer) error {
	run := records / recordsPerRun / 2
	t := table{head: []string{fmt.Sprintf("search of %d records, in milliseconds", records),
		"found", "no index", "index", "times"}}
	questions := []question{
		{"all of one run", audit.Filter{Run: fmt.Sprintf("run-%08d", run)}},
		{"fetches from one host of 50", audit.Filter{Host: "host250.example.com"}},
		{"what seccomp refused", audit.Filter{Layer: "seccomp"}},
		{"refusals of one user",
			audit.Filter{Decision: audit.DecisionDenied, UID: new(uint32(1003))}},
		{"ends of the runs of one tool of three",
			audit.Filter{Tool: "sed", Types: []audit.Type{audit.TypeRunFinished}}},
	}
	// Of one reading for all questions.
	var whole time.Duration
	var counts []int
	if records > eachScanned {
		fmt.Fprintf(progress, "bench: search: all questions in one reading\n")
		start := time.Now()
		var err error
		if counts, err = countEach(ctx, log, questions); err != nil {
			return err
		}
		whole = time.Since(start)
	}
	for i, q := range questions {
		fmt.Fprintf(progress, "bench: search: %s\n", q.what)
		plain, without := sample{whole}, 0
		if counts != nil {
			without = counts[i]
		} else {
			start := time.Now()
			var err error
			if without, err = countAll(index.Search{Dir: log, No: true}.Scan(ctx,
				q.f)); err != nil {
				return err
			}
			plain[0] = time.Since(start)
		}
		var took sample
		for len(took) < 3 && (len(took) == 0 || took[0] < longSearch) {
			start := time.Now()
			n, err := countAll(index.Search{Dir: log}.Scan(ctx, q.f))
			if err != nil {
				return err
			}
			if n != without {
				return fmt.Errorf("%s: %d records with the index, %d without", q.what, n, without)
			}
			took = append(took, time.Since(start))
		}
		t.add(q.what, fmt.Sprint(without), millis(plain.median()), millis(took.median()),
			times(plain.ratio(took)))
	}
	if err := t.writeBelow(stdout); err != nil || counts == nil {
		return err
	}
	_, err := fmt.Fprintln(stdout,
		"\nWithout the index all questions were asked of one reading of the log, whose time stands with each.")
	return err
}

// A question is one of the searches.
type question struct {
	what string
	f    audit.Filter
}

// A log of more than eachScanned records is read once for all questions, and an answer that takes
// longSearch is waited for once.
const (
	eachScanned = 1_000_000
	longSearch  = 10 * time.Second
)

// countEach counts what each question finds, in one reading of the log.
func countEach(ctx context.Context, log string, questions []question) ([]int, error) {
	counts, match := make([]int, len(questions)), make([]*audit.Matcher, len(questions))
	for i, q := range questions {
		match[i] = audit.NewMatcher(q.f)
	}
	for r, err := range audit.Walk(ctx, log, audit.Place{}) {
		if err = errors.Join(err, r.Bad); err != nil {
			return nil, err
		}
		for i, m := range match {
			if m.Wants(r.Record) {
				counts[i]++
			}
		}
	}
	return counts, nil
}

func countAll(records iter.Seq2[audit.Record, error]) (n int, err error) {
	for _, err := range records {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// watchedOpens is how many files the watched run opens.
const watchedOpens = 20_000

// watchedRuns measures a run that opens files and does nothing else, with what can be put on record
// of it.
func watchedRuns(ctx context.Context, bin, dir string, stdout, progress io.Writer) error {
	b := &toolBed{dir: dir, jail: filepath.Join(bin, "jail")}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "work", "one"), []byte("a line\n"),
		0o644); err != nil {
		return err
	}
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do read -r x < one; i=$((i+1)); done",
		watchedOpens)
	words := []string{"none", "changes", "opens"}
	took := map[string]sample{}
	for i := range 6 {
		for _, files := range words {
			text := "policy = 1\nname = \"watched\"\ninclude = [\"build\"]\n[audit]\nfiles = \"" +
				files + "\"\n"
			if err := os.WriteFile(filepath.Join(dir, "policy.toml"), []byte(text),
				0o644); err != nil {
				return err
			}
			fmt.Fprintf(progress, "bench: files = %s\n", files)
			one, err := b.once(ctx, "watched", []string{"/bin/sh", "-c", script})
			if err != nil {
				return err
			}
			if i > 0 {
				took[files] = append(took[files], one)
			}
		}
	}
	t := table{head: []string{
		fmt.Sprintf("whole run of a shell that opens a file %d times, no daemon, in milliseconds",
			watchedOpens), "median", "µs more an open"}}
	for _, files := range words {
		more := none
		if files != "none" {
			more = fmt.Sprintf("%.1f",
				float64((took[files].median()-took["none"].median()).Microseconds())/watchedOpens)
		}
		t.add("`files = \""+files+"\"`", millis(took[files].median()), more)
	}
	return t.writeBelow(stdout)
}

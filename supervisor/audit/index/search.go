package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// worth is the size in bytes of a log from which a search creates an index. Reading a smaller log
// is as fast.
const worth = 16 << 20

// Search searches the log in Dir.
type Search struct {
	Dir string
	// Say is called with a message if an index was created or cannot be used; may be nil.
	Say func(string)
	// No disables the index.
	No bool
	// all creates an index for a log of any size, in tests.
	all bool
}

// Scan is [audit.Scan] with the index, if the user may read or create one.
func (s Search) Scan(ctx context.Context, f audit.Filter) iter.Seq2[audit.Record, error] {
	return audit.Among(ctx, s.Dir, f, s.spans(ctx, f)...)
}

// Newest is [audit.Newest] with the index.
func (s Search) Newest(ctx context.Context, f audit.Filter, before uint64, n int) (audit.Page,
	error) {
	var spans []audit.Span
	if f.Tool == "" {
		spans = s.spans(ctx, f)
	}
	return audit.Newest(ctx, s.Dir, f, before, n, spans...)
}

// Update extends the index of the log in dir to the log's end, and returns the number of records
// added. It creates a missing index. If anew is set it deletes the index first.
func Update(ctx context.Context, dir string, anew bool) (records int64, err error) {
	if anew {
		if err := trusted(dir); err != nil {
			return 0, err
		}
		if err := remove(dir); err != nil {
			return 0, err
		}
	}
	x, records, _, err := fresh(ctx, dir, true)
	if err != nil {
		return 0, err
	}
	return records, x.Close()
}

// fresh opens the index and updates it, if the user may write it. It rebuilds a broken one and
// returns the reason in why.
func fresh(ctx context.Context, dir string, mayMake bool) (x *index, records int64, why error,
	err error) {
	for {
		if x, err = open(ctx, dir, mayMake); err == nil {
			if records, err = x.update(ctx); err == nil || readOnly(err) {
				return x, records, why, nil
			}
			err = errors.Join(err, x.Close())
		}
		if !broken(err) || why != nil {
			return nil, 0, why, err
		}
		why, mayMake = err, true
		if err := remove(dir); err != nil {
			return nil, 0, why, err
		}
	}
}

// spans returns the parts of the log that f can match, by the index; nil if the whole log must be
// searched.
func (s Search) spans(ctx context.Context, f audit.Filter) []audit.Span {
	where, args := conditions(f)
	if s.No || where == "" {
		return nil
	}
	say := func(format string, args ...any) {
		if s.Say != nil {
			s.Say(fmt.Sprintf(format, args...))
		}
	}
	_, lstatErr := os.Lstat(filepath.Join(s.Dir, File))
	began := errors.Is(lstatErr, fs.ErrNotExist)
	x, records, why, err := fresh(ctx, s.Dir, s.all || began && s.worth())
	// A user who cannot see the index cannot read the log either.
	quiet := lstatErr != nil
	if errors.Is(err, fs.ErrNotExist) || quiet && (errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, errUntrusted)) || ctx.Err() != nil {
		return nil
	}
	if err != nil {
		say("the index is not used, all of the log is read: %v", err)
		return nil
	}
	defer x.Close()
	switch {
	case why != nil:
		say("the index was made anew from the log, %d records: %v", records, why)
	case began:
		say("an index was made, %d records", records)
	}
	spans, err := x.find(ctx, where, args)
	if err != nil {
		say("the index is not used, all of the log is read: %v", err)
		return nil
	}
	return spans
}

// worth reports whether the log is large enough for an index.
func (s Search) worth() bool {
	list, err := os.ReadDir(s.Dir)
	if err != nil {
		return false
	}
	var bytes int64
	for _, e := range list {
		if info, err := e.Info(); err == nil && strings.Contains(e.Name(), ".jsonl") {
			bytes += info.Size()
		}
	}
	return bytes >= worth
}

// conditions returns the parts of a filter that the index covers, which are all but Path, as SQL.
// "" means no condition.
func conditions(f audit.Filter) (where string, args []any) {
	var parts []string
	add := func(part string, values ...any) {
		parts = append(parts, part)
		args = append(args, values...)
	}
	is := func(k kind, texts ...string) {
		marks := strings.TrimSuffix(strings.Repeat("?,", len(texts)), ",")
		values := []any{int(k)}
		for _, t := range texts {
			values = append(values, short(t))
		}
		add(`id IN (SELECT block FROM posting WHERE word IN (SELECT id FROM word WHERE kind = ? AND text IN (`+marks+`)))`, values...)
	}
	one := func(k kind, text string) {
		if text != "" {
			is(k, text)
		}
	}
	one(kindRun, f.Run)
	one(kindSession, f.Session)
	one(kindDecision, f.Decision)
	one(kindLayer, f.Layer)
	if len(f.Types) > 0 {
		var types []string
		for _, t := range f.Types {
			types = append(types, string(t))
		}
		is(kindType, types...)
	}
	if f.UID != nil {
		is(kindUID, strconv.FormatUint(uint64(*f.UID), 10))
	}
	if f.Policy != "" {
		if len(f.Policy) > maxWord {
			is(kindPolicy, tooLong)
		} else {
			add(`id IN (SELECT block FROM posting WHERE word IN (SELECT id FROM word WHERE kind = ? AND (substr(CAST(text AS BLOB), 1, ?) = ? OR text = ?)))`,
				int(kindPolicy), len(f.Policy), []byte(f.Policy), tooLong)
		}
	}
	if suffix, below := strings.CutPrefix(f.Host, "*."); below {
		add(`id IN (SELECT block FROM posting WHERE word IN (SELECT id FROM word WHERE kind = ? AND (substr(CAST(text AS BLOB), -?) = ? OR text = ?)))`, int(kindHost), len(suffix)+1, []byte(
			"."+suffix), tooLong)
	} else {
		one(kindHost, f.Host)
	}
	if f.Tool != "" {
		add(`id IN (SELECT block FROM posting WHERE word IN (SELECT run FROM ran WHERE tool IN (SELECT id FROM word WHERE kind = ? AND text = ?)))`, int(kindTool), short(base(f.Tool)))
	}
	if !f.Since.IsZero() {
		add(`newest >= ?`, f.Since.Unix())
	}
	if !f.Until.IsZero() {
		add(`oldest <= ?`, f.Until.Unix())
	}
	where = strings.Join(parts, " AND ")
	// Blocks with the starts of runs, too, since these name the tool.
	if f.Tool != "" {
		where = "(" + where +
			`) OR id IN (SELECT block FROM posting WHERE word IN (SELECT id FROM word WHERE kind = ? AND text = ?))`
		args = append(args, int(kindTool), short(base(f.Tool)))
	}
	return where, args
}

// find returns the spans of the log that match the SQL conditions, with adjacent blocks joined, and
// the part of the log after the end of the index.
func (x *index) find(ctx context.Context, where string, args []any) (spans []audit.Span, err error) {
	err = x.transact(ctx, "BEGIN", func() error {
		s, err := x.state(ctx, false)
		if err != nil {
			return err
		}
		bad := `id IN (SELECT block FROM posting WHERE word IN (SELECT id FROM word WHERE kind = ` +
			strconv.Itoa(int(kindBad)) + `))`
		first, err := x.first()
		if err != nil {
			return err
		}
		rows, err := x.con.QueryContext(ctx,
			`SELECT segment, begin, "end" FROM block WHERE segment >= ? AND (`+where+` OR `+bad+
				`) ORDER BY id`, append([]any{first}, args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var b audit.Span
			if err := rows.Scan(&b.Segment, &b.Offset, &b.End); err != nil {
				return err
			}
			if n := len(spans); n > 0 && spans[n-1].Segment == b.Segment &&
				spans[n-1].End == b.Offset {
				spans[n-1].End = b.End
				continue
			}
			spans = append(spans, b)
		}
		spans = append(spans, audit.Span{Place: audit.Place{Segment: s.segment, Offset: s.end}})
		return rows.Err()
	})
	return spans, err
}

// first returns the first segment of the log that was not pruned, or 0.
func (x *index) first() (uint64, error) {
	for p, err := range audit.Walk(context.Background(), x.dir, audit.Place{}) {
		return p.Segment, err
	}
	return 0, nil
}

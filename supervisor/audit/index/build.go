package index

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Bounds of one update of the index.
const (
	// blockBytes is the length of the lines in a block.
	blockBytes = 16 << 10
	// batchBytes bounds the lines of one transaction.
	batchBytes = 64 << 20
	// maxWord is the length in bytes from which words are not told apart.
	maxWord = 255
)

// kind is the kind of an indexed word.
type kind int

const (
	// kindBad marks a block with a line that is not a record: every search reports such a line.
	kindBad kind = iota
	kindRun
	kindSession
	kindType
	kindUID
	kindPolicy
	kindDecision
	kindLayer
	kindHost
	// kindTool is the last part of a tool's name.
	kindTool
)

// tooLong replaces all words longer than maxWord, so that no tool can fill the index with them.
const tooLong = "\x00"

func short(text string) string {
	if len(text) > maxWord {
		return tooLong
	}
	return text
}

type word struct {
	kind kind
	text string
}

// words returns the words of a record that searches look up.
func words(r audit.Record) []word {
	list := []word{{kindType, string(r.Type)},
		{kindUID, strconv.FormatUint(uint64(r.Actor.UID), 10)}}
	add := func(k kind, text string) {
		if text != "" {
			list = append(list, word{k, short(text)})
		}
	}
	add(kindRun, r.Run)
	add(kindRun, r.RunID)
	add(kindSession, r.Session)
	add(kindSession, r.SessionID)
	add(kindPolicy, r.Policy)
	add(kindDecision, r.Decision())
	add(kindLayer, r.Text("layer"))
	add(kindHost, r.Text("host"))
	return list
}

// tools returns the tool names by which a record's run can be found.
func tools(r audit.Record) []string {
	var list []string
	for _, field := range []string{"tool", "program"} {
		if name := r.Text(field); name != "" && r.Run != "" {
			list = append(list, short(base(name)))
		}
	}
	return list
}

// base returns the last part of a tool's name, which is common to all names by which [audit.Filter]
// finds the tool.
func base(name string) string {
	_, last := path.Split(name)
	return last
}

// update extends the index to the end of the log, and returns the number of records added.
func (x *index) update(ctx context.Context) (records int64, err error) {
	for more := true; more && err == nil; {
		var n int64
		err = x.transact(ctx, "BEGIN IMMEDIATE", func() (err error) {
			n, more, err = x.batch(ctx)
			return err
		})
		if err == nil {
			records += n
		}
	}
	if err == nil {
		err = x.forget(ctx)
	}
	return records, err
}

// forget deletes the entries of pruned segments.
func (x *index) forget(ctx context.Context) error {
	first, err := x.first()
	if err != nil {
		return err
	}
	return x.transact(ctx, "BEGIN IMMEDIATE", func() error {
		done, err := x.con.ExecContext(ctx, `DELETE FROM block WHERE segment < ?`, first)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = x.con.ExecContext(ctx,
			`DELETE FROM posting WHERE block < (SELECT coalesce(min(id), 0) FROM block)`)
		return err
	})
}

// block is one block of the index while it is filled.
type block struct {
	id             int64
	span           audit.Span
	oldest, newest int64
	words          map[word]bool
	ran            map[[2]word]bool
}

// batch indexes records, as many as fit one transaction. more reports whether others follow.
func (x *index) batch(ctx context.Context) (records int64, more bool, err error) {
	s, err := x.state(ctx, true)
	if err != nil {
		return 0, false, err
	}
	w := &writer{ctx: ctx, index: x, ids: map[word]int64{}}
	from, err := x.last(ctx, s, w)
	if err != nil {
		return 0, false, err
	}
	if err := w.prepare(); err != nil {
		return 0, false, err
	}
	defer w.close()
	// First check that the last indexed line is still at its place.
	reached, read := s.segment == 0, int64(0)
	for p, err := range audit.Walk(ctx, x.dir, from) {
		if errors.Is(err, fs.ErrNotExist) && s.segment > 0 {
			return 0, false, errStale
		}
		if err != nil {
			return 0, false, err
		}
		// The line is longer than any record, and no search reads past it.
		if p.End == p.Offset {
			break
		}
		if !reached {
			if p.Segment != s.segment || p.End > s.end {
				return 0, false, errStale
			}
			if reached = p.End == s.end; reached && !bytes.Equal(hashOf(p.Record), s.hash) {
				return 0, false, errStale
			}
		} else {
			records++
			s.segment, s.end, s.hash = p.Segment, p.End, hashOf(p.Record)
		}
		if err := w.add(p); err != nil {
			return 0, false, err
		}
		if read += p.End - p.Offset; read >= batchBytes && reached {
			more = true
			break
		}
	}
	if !reached {
		return 0, false, errStale
	}
	if records == 0 {
		return 0, false, nil
	}
	if err := w.flush(); err != nil {
		return 0, false, err
	}
	_, err = x.con.ExecContext(ctx, `UPDATE state SET segment = ?, "end" = ?, hash = ?`, s.segment,
		s.end, s.hash)
	return records, more, err
}

// last returns the beginning of the last block, which w continues to fill.
func (x *index) last(ctx context.Context, s state, w *writer) (audit.Place, error) {
	var from audit.Place
	err := x.con.QueryRowContext(ctx,
		`SELECT id, segment, begin FROM block ORDER BY id DESC LIMIT 1`).Scan(&w.now.id,
		&from.Segment, &from.Offset)
	if errors.Is(err, sql.ErrNoRows) && s.segment == 0 {
		w.now.id = 1
		return from, nil
	}
	if err == nil && (from.Segment != s.segment || from.Offset >= s.end) || errors.Is(err,
		sql.ErrNoRows) {
		err = errStale
	}
	return from, err
}

// writer fills blocks and writes them to the index.
type writer struct {
	ctx   context.Context
	index *index
	ids   map[word]int64
	now   block

	putWord, getWord, putPosting, putRan, putBlock *sql.Stmt
}

func (w *writer) prepare() (err error) {
	for text, into := range map[string]**sql.Stmt{
		`INSERT INTO word (kind, text) VALUES (?, ?)`:            &w.putWord,
		`SELECT id FROM word WHERE kind = ? AND text = ?`:        &w.getWord,
		`INSERT OR IGNORE INTO posting VALUES (?, ?)`:            &w.putPosting,
		`INSERT OR IGNORE INTO ran VALUES (?, ?)`:                &w.putRan,
		`INSERT OR REPLACE INTO block VALUES (?, ?, ?, ?, ?, ?)`: &w.putBlock,
	} {
		if *into, err = w.index.con.PrepareContext(w.ctx, text); err != nil {
			w.close()
			return err
		}
	}
	return nil
}

func (w *writer) close() {
	for _, s := range []*sql.Stmt{w.putWord, w.getWord, w.putPosting, w.putRan, w.putBlock} {
		if s != nil {
			s.Close()
		}
	}
}

func (w *writer) add(p audit.Placed) error {
	b := &w.now
	if b.words != nil && (p.Segment != b.span.Segment || p.End-b.span.Offset > blockBytes) {
		if err := w.flush(); err != nil {
			return err
		}
		w.now = block{id: b.id + 1}
	}
	if b.words == nil {
		b.words, b.ran, b.span = map[word]bool{}, map[[2]word]bool{}, p.Span
		b.oldest, b.newest = p.Time.Unix(), p.Time.Unix()
	}
	b.span.End = p.End
	if p.Bad != nil {
		b.words[word{kind: kindBad}] = true
		return nil
	}
	b.oldest, b.newest = min(b.oldest, p.Time.Unix()), max(b.newest, p.Time.Unix())
	for _, v := range words(p.Record) {
		b.words[v] = true
	}
	for _, name := range tools(p.Record) {
		b.words[word{kindTool, name}] = true
		b.ran[[2]word{{kindTool, name}, {kindRun, short(p.ID())}}] = true
	}
	return nil
}

// flush writes the current block. The index may already have it with fewer lines.
func (w *writer) flush() error {
	b := &w.now
	if b.words == nil {
		return nil
	}
	for v := range b.words {
		id, err := w.id(v)
		if err != nil {
			return err
		}
		if _, err := w.putPosting.ExecContext(w.ctx, id, b.id); err != nil {
			return err
		}
	}
	for pair := range b.ran {
		tool, err := w.id(pair[0])
		if err != nil {
			return err
		}
		run, err := w.id(pair[1])
		if err != nil {
			return err
		}
		if _, err := w.putRan.ExecContext(w.ctx, tool, run); err != nil {
			return err
		}
	}
	_, err := w.putBlock.ExecContext(w.ctx, b.id, b.span.Segment, b.span.Offset, b.span.End,
		b.oldest, b.newest)
	return err
}

// maxIDs bounds the words whose ids are cached.
const maxIDs = 1 << 16

func (w *writer) id(v word) (int64, error) {
	if id, ok := w.ids[v]; ok {
		return id, nil
	}
	var id int64
	err := w.getWord.QueryRowContext(w.ctx, int(v.kind), v.text).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		var done sql.Result
		if done, err = w.putWord.ExecContext(w.ctx, int(v.kind), v.text); err == nil {
			id, err = done.LastInsertId()
		}
	}
	if err != nil {
		return 0, fmt.Errorf("word: %w", err)
	}
	if len(w.ids) >= maxIDs {
		clear(w.ids)
	}
	w.ids[v] = id
	return id, nil
}

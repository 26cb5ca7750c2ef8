package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// maxEnds and maxRefused bound the records in which the outcomes of the listed runs are looked for.
const (
	maxEnds    = 200
	maxRefused = 2000
)

// A mark is a word about how a run ended, with the class that colours it.
type mark struct{ Class, Text string }

// outcomes reads how the runs ended whose starts are listed, the newest first: of each its exit,
// the limit that it met, how often it was refused something and what it changed. Of an id that was
// used again the records between two starts are those of the first.
func (c *Console) outcomes(ctx context.Context, starts []audit.Record) ([][]mark, error) {
	ended, err := c.Log.Page(ctx, audit.Filter{Types: []audit.Type{audit.TypeRunFinished}}, 0,
		maxEnds)
	if err != nil {
		return nil, err
	}
	refused, err := c.Log.Page(ctx, audit.Filter{Types: []audit.Type{audit.TypeDenied}}, 0,
		maxRefused)
	if err != nil {
		return nil, err
	}
	all, again := make([][]mark, len(starts)), map[string]uint64{}
	for i, start := range starts {
		of := func(r audit.Record) bool {
			return r.Run == start.Run && r.Seq > start.Seq && (again[start.Run] == 0 ||
				r.Seq < again[start.Run])
		}
		var denied int64
		for _, r := range refused.Records {
			if of(r) {
				denied += max(r.Int("count"), 1)
			}
		}
		if n := slices.IndexFunc(ended.Records, of); n >= 0 {
			all[i] = marksOf(ended.Records[n], denied)
		}
		again[start.Run] = start.Seq
	}
	return all, nil
}

func marksOf(end audit.Record, denied int64) []mark {
	exit := mark{"good", "exit 0"}
	if code := end.Int("exit_code"); code != 0 {
		exit = mark{"bad", fmt.Sprintf("exit %d", code)}
	}
	if end.Text("error") != "" {
		exit = mark{"bad", "failed"}
	}
	limit := end.Text("limit")
	if limit == "idle" {
		// A session that was not used, or rests for a fork or a merge: none of its tools has failed.
		exit, limit = mark{"", "idle"}, ""
	}
	marks := []mark{exit}
	if limit != "" {
		marks = append(marks, mark{"bad", "limit " + text(limit)})
	}
	if denied > 0 {
		marks = append(marks, mark{"wait", fmt.Sprintf("denied %d", denied)})
	}
	var n struct{ Added, Modified, Deleted int64 }
	if json.Unmarshal(end.Field("changes"), &n) == nil && cmp.Or(n.Added, n.Modified,
		n.Deleted) != 0 {
		marks = append(marks,
			mark{"", fmt.Sprintf("changed +%d ~%d -%d", n.Added, n.Modified, n.Deleted)})
	}
	return marks
}

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// records answers for the log of a daemon.
type records struct {
	s *service.Service
	// leaving is done when no request comes any more: a stream of records ends then.
	leaving context.Context
}

// read streams those records of the log that the caller may read and asks for.
func (h records) read(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	var req message.RecordsRequest
	if err == nil {
		err = readJSON(r, &req)
	}
	var all iter.Seq2[audit.Record, error]
	if err == nil {
		err = h.named(caller, &req)
	}
	if err == nil {
		all, err = h.s.Records().Read(r.Context(), caller, req)
	}
	if err != nil {
		refuse(w, h.s, caller, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	for rec, err := range all {
		line := RecordLine{Record: rec.Line}
		if err != nil {
			line = RecordLine{Error: problem.From(err)}
		}
		if out.Encode(line) != nil || err != nil {
			return // the reader is gone
		}
	}
}

// named finds the ids of another user's run and session. A name is what records have, too.
func (h records) named(c caller.Caller, req *message.RecordsRequest) (err error) {
	for _, name := range []*string{&req.Run, &req.Session} {
		if strings.Contains(*name, "/") && err == nil {
			*name, err = h.s.Names().Named(c, *name)
		}
	}
	return err
}

// AuditRecords asks for records of the log: those that the request wants, of those that the caller
// may read.
func (c *Client) AuditRecords(ctx context.Context,
	req message.RecordsRequest) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		answer, err := c.link.open(ctx, "POST", pathRecords, req)
		if err != nil {
			yield(audit.Record{}, err)
			return
		}
		defer answer.Close()
		lines := json.NewDecoder(bufio.NewReader(answer))
		for {
			var line RecordLine
			var rec audit.Record
			err := lines.Decode(&line)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && line.Error != nil {
				err = line.Error
			}
			if err == nil {
				rec, err = audit.ParseRecord(line.Record)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

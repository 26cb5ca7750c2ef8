package api

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// records streams the records of the log that match the request and that the caller may read.
func (srv *Server) records(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	var req message.RecordsRequest
	if err == nil {
		err = readJSON(r, &req)
	}
	var all iter.Seq2[audit.Record, error]
	if err == nil {
		err = srv.named(caller, &req)
	}
	if err == nil {
		all, err = srv.s.Records().Read(r.Context(), caller, req)
	}
	if err != nil {
		refuse(w, srv.s, caller, err)
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
			// The reader is gone.
			return
		}
	}
}

// named replaces USER/NAME in a request by the id of that user's run or session. Other names are
// kept, since records contain them.
func (srv *Server) named(c caller.Caller, req *message.RecordsRequest) (err error) {
	for _, name := range []*string{&req.Run, &req.Session} {
		if strings.Contains(*name, "/") && err == nil {
			*name, err = srv.s.Names().Named(c, *name)
		}
	}
	return err
}

// AuditRecords streams the records of the log that match the request and that the caller may read.
func (c *Client) AuditRecords(ctx context.Context,
	req message.RecordsRequest) iter.Seq2[audit.Record, error] {
	return readLines(ctx, &c.link, "POST", pathRecords, req, func(line RecordLine) (audit.Record, error) {
		if line.Error != nil {
			return audit.Record{}, line.Error
		}
		return audit.ParseRecord(line.Record)
	})
}

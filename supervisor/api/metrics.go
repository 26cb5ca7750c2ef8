package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/metrics"
)

// metrics writes what the daemon has counted. There is nothing of one user's in it, so everybody who may connect may read it.
func (srv *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if _, err := callerOf(r.Context()); err != nil {
		problem(w, supervisor.AsError(err))
		return
	}
	srv.writeMetrics(w, r)
}

func (srv *Server) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", metrics.ContentType)
	_ = srv.s.Metrics(w) // a client that is gone needs no answer
}

// ServeMetrics answers on l, a port of this host alone, with the metrics and nothing else, until l is closed.
func (srv *Server) ServeMetrics(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", srv.writeMetrics)
	server := http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	_ = server.Serve(l) // ends with l
}

// Metrics asks for what the daemon has counted, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	resp, err := c.request(ctx, "GET", PathMetrics, nil)
	if err != nil {
		return "", c.explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", readProblem(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return string(text), err
}

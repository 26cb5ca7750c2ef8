package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/jail-sandbox/jail/supervisor/metrics"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// metrics writes what the daemon has counted. There is nothing of one user's in it, so everybody
// who may connect may read it.
func (srv *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if _, err := callerOf(r.Context()); err != nil {
		writeProblem(w, problem.From(err))
		return
	}
	srv.writeMetrics(w, r)
}

func (srv *Server) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", metrics.ContentType)
	// A client that is gone needs no answer.
	_, _ = srv.s.Meters().WriteTo(w)
}

// ServeMetrics answers on l, a port of this host alone, with the metrics and nothing else. It
// returns when l is closed, or why it stopped before.
func (srv *Server) ServeMetrics(l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", srv.writeMetrics)
	server := http.Server{Handler: mux, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	if err := server.Serve(l); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Metrics asks for what the daemon has counted, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	answer, err := c.link.open(ctx, "GET", pathMetrics, nil)
	if err != nil {
		return "", err
	}
	defer answer.Close()
	text, err := io.ReadAll(io.LimitReader(answer, 16<<20))
	return string(text), err
}

// Package witness answers other hosts that ask to have the heads of their logs cosigned, over HTTP as C2SP tlog-witness has it, so that what they had on record
// cannot be taken away there without that it is seen here. Requests are believed for the signature in them, and answers for the one that they are: it needs
// no secrets on the way.
//
//	POST /add-checkpoint          a head with the proof that it goes on from the last one; answered with a cosignature
//	GET  /checkpoint/ORIGIN       the newest head of a log that was cosigned, as a note
package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Bounds of what a stranger can hold open.
const (
	requestWithin = 10 * time.Second
	idleAfter     = 2 * time.Minute
	maxHeader     = 16 << 10
	maxAtOnce     = 64
	endWithin     = 3 * time.Second
)

const (
	addPath  = "/add-checkpoint"
	seenPath = "/checkpoint/"
)

// Handler answers for a witness. told is given a line for each request that was refused or could not be done; nil is nobody.
func Handler(w *audit.Witness, told func(string)) http.Handler {
	if told == nil {
		told = func(string) {}
	}
	places := make(chan struct{}, maxAtOnce)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+addPath, func(out http.ResponseWriter, req *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			refuse(out, http.StatusServiceUnavailable, "too many requests at once")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(out, req.Body, audit.MaxWitnessRequest))
		if err != nil {
			refuse(out, http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", audit.MaxWitnessRequest))
			return
		}
		line, err := w.Add(body)
		if err != nil {
			told(fmt.Sprintf("%s: %v", req.RemoteAddr, err))
			failed(out, err)
			return
		}
		plain(out)
		_, _ = out.Write(line)
	})
	mux.HandleFunc("GET "+seenPath, func(out http.ResponseWriter, req *http.Request) {
		text, err := w.Seen(strings.TrimPrefix(req.URL.Path, seenPath))
		if err != nil {
			told(fmt.Sprintf("%s: %v", req.RemoteAddr, err))
			failed(out, err)
			return
		}
		plain(out)
		_, _ = out.Write(text)
	})
	return mux
}

func plain(out http.ResponseWriter) {
	out.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.Header().Set("Cache-Control", "no-store")
}

func refuse(out http.ResponseWriter, status int, why string) {
	plain(out)
	out.WriteHeader(status)
	_, _ = io.WriteString(out, audit.Printable(why)+"\n")
}

// failed says why nothing was cosigned. What went wrong here is told here, and not to strangers.
func failed(out http.ResponseWriter, err error) {
	var e *audit.WitnessError
	switch {
	case !errors.As(err, &e):
		refuse(out, http.StatusInternalServerError, "the witness cannot say: see what it wrote on its own host")
	case e.Status == audit.WitnessConflict:
		plain(out)
		out.Header().Set("Content-Type", "text/x.tlog.size")
		out.WriteHeader(e.Status)
		_, _ = fmt.Fprintf(out, "%d\n", e.Size)
	default:
		refuse(out, e.Status, e.Why)
	}
}

// Serve answers on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, w *audit.Witness, told func(string)) error {
	server := &http.Server{Handler: Handler(w, told), ReadTimeout: requestWithin, ReadHeaderTimeout: requestWithin, WriteTimeout: requestWithin, IdleTimeout: idleAfter,
		MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0)}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})
	err := server.Serve(l)
	if !stop() { // ctx ended
		err = errors.Join(<-stopped, server.Close())
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

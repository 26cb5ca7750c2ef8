package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 64 << 10

// A poster sends OTLP requests.
type poster struct {
	host   Host
	url    string
	client *http.Client
}

func newPoster(h Host, u *url.URL) *poster {
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/logs"
	}
	// A redirect would turn the request into one without a body.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &poster{h, u.String(), &http.Client{Timeout: waitFor, CheckRedirect: stay}}
}

// busyError is the response of a server that demands a later try.
type busyError struct {
	err error
	// How long, where it said so.
	after time.Duration
}

func (e *busyError) Error() string { return e.err.Error() }
func (e *busyError) Unwrap() error { return e.err }

func (p *poster) Send(ctx context.Context, batch []audit.Record) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url,
		bytes.NewReader(otlp(p.host, batch)))
	if err != nil {
		return &permanentError{err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "jail/"+p.host.Version)
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusBadGateway ||
		resp.StatusCode == http.StatusServiceUnavailable ||
		resp.StatusCode == http.StatusGatewayTimeout ||
		resp.StatusCode == http.StatusRequestTimeout:
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &busyError{fmt.Errorf("the server answered %d", resp.StatusCode),
			time.Duration(min(max(after, 0), 300)) * time.Second}
	case resp.StatusCode >= 500:
		return fmt.Errorf("the server answered %d", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return &permanentError{fmt.Errorf("the server answered %d: %s", resp.StatusCode,
			audit.Printable(string(body[:min(len(body), 200)])))}
	case err != nil:
		return err
	}
	return rejected(body)
}

// rejectedError is the response of a server that accepted a batch and dropped some of its records.
// The batch counts as delivered, and is not sent again.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string { return e.err.Error() }
func (e *rejectedError) Unwrap() error { return e.err }

// rejected returns a rejectedError if the server accepted the request but not all of its records.
func rejected(body []byte) error {
	var answer struct {
		PartialSuccess struct {
			RejectedLogRecords json.Number `json:"rejectedLogRecords"`
			ErrorMessage       string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if len(body) == 0 || json.Unmarshal(body, &answer) != nil {
		// The body of a failed response is not needed.
		return nil
	}
	if n := answer.PartialSuccess.RejectedLogRecords; n != "" && n != "0" {
		return &rejectedError{fmt.Errorf("the server rejected %s records: %s",
			audit.Printable(n.String()), audit.Printable(answer.PartialSuccess.ErrorMessage))}
	}
	return nil
}

func (p *poster) Close() error { p.client.CloseIdleConnections(); return nil }

// patience returns the time to wait before the next try.
func patience(try int, err error) time.Duration {
	wait := min(firstWait<<min(try, 10), maxWait)
	if busy, ok := errors.AsType[*busyError](err); ok {
		wait = max(wait, busy.after)
	}
	return wait
}

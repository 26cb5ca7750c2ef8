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

// A BusyError is one of a server that asks for patience.
type BusyError struct {
	Err error
	// How long, where it said so.
	After time.Duration
}

func (e *BusyError) Error() string { return e.Err.Error() }
func (e *BusyError) Unwrap() error { return e.Err }

func (p *poster) Send(ctx context.Context, batch []audit.Record) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url,
		bytes.NewReader(otlp(p.host, batch)))
	if err != nil {
		return &PermanentError{err}
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
		return &BusyError{fmt.Errorf("the server answered %d", resp.StatusCode),
			time.Duration(min(max(after, 0), 300)) * time.Second}
	case resp.StatusCode >= 500:
		return fmt.Errorf("the server answered %d", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return &PermanentError{fmt.Errorf("the server answered %d: %s", resp.StatusCode,
			audit.Printable(string(body[:min(len(body), 200)])))}
	case err != nil:
		return err
	}
	return rejected(body)
}

// A RejectedError is one of a server that took a batch and threw some of it away. It is delivered,
// and not sent again.
type RejectedError struct{ Err error }

func (e *RejectedError) Error() string { return e.Err.Error() }
func (e *RejectedError) Unwrap() error { return e.Err }

// rejected is an error where the server took the request and not all of its records. They are not
// to be sent again.
func rejected(body []byte) error {
	var answer struct {
		PartialSuccess struct {
			RejectedLogRecords json.Number `json:"rejectedLogRecords"`
			ErrorMessage       string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if len(body) == 0 || json.Unmarshal(body, &answer) != nil {
		// What it says beyond its status is its own affair.
		return nil
	}
	if n := answer.PartialSuccess.RejectedLogRecords; n != "" && n != "0" {
		return &RejectedError{fmt.Errorf("the server rejected %s records: %s",
			audit.Printable(n.String()), audit.Printable(answer.PartialSuccess.ErrorMessage))}
	}
	return nil
}

func (p *poster) Close() error { p.client.CloseIdleConnections(); return nil }

// patience is how long to wait before the next try.
func patience(try int, err error) time.Duration {
	wait := min(firstWait<<min(try, 10), maxWait)
	var busy *BusyError
	if errors.As(err, &busy) {
		wait = max(wait, busy.After)
	}
	return wait
}

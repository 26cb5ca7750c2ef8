package anchor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// sendWithin bounds one try to send a head.
const sendWithin = 20 * time.Second

// maxToken bounds a token file in bytes.
const maxToken = 4 << 10

type sender func(ctx context.Context, h audit.Head) error

// open returns the function that sends heads to the target t. It makes no connection.
func open(t Target, k Keeper) (sender, error) {
	u, err := url.Parse(t.To)
	if err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	if scheme, ok := strings.CutPrefix(u.Scheme, witnessPrefix); ok {
		return openWitness(t, k, scheme, u)
	}
	if u.Scheme == "git" || strings.HasPrefix(u.Scheme, gitPrefix) {
		return openGit(t, k, u)
	}
	switch u.Scheme {
	case "":
		if !filepath.IsAbs(t.To) {
			return nil, fmt.Errorf("to: %q is no address and no absolute path", t.To)
		}
		return func(_ context.Context, h audit.Head) error { return appendNote(t.To, h.Note) }, nil
	case "http", "https":
		if u.Hostname() == "" {
			return nil, fmt.Errorf("to: %q names no host", t.To)
		}
		return func(ctx context.Context, h audit.Head) error {
			status, _, err := post(ctx, t.To, t.Token, h.Note)
			switch {
			case status == 0:
				return err
			case status < 200 || status > 299:
				return fmt.Errorf("the server answered %d", status)
			}
			// The server has accepted the head even if its response's body cannot be read.
			return nil
		}, nil
	}
	send, err := openSyslog(u)
	if err != nil {
		return nil, fmt.Errorf(
			"to: %q: want an https:, udp:, tcp:, unix:, git+ssh:, git+https:, git+file: or "+
				"witness+https: address, or an absolute path", t.To)
	}
	return send, nil
}

// headJSON returns h as a JSON object in which [audit.ParseAnchors] finds the note.
func headJSON(h audit.Head) []byte {
	line, err := json.Marshal(map[string]any{"type": "anchor", "origin": h.Origin, "size": h.Size,
		"note": string(h.Note)})
	if err != nil {
		// All fields are texts and numbers.
		panic("anchor: bug: " + err.Error())
	}
	return audit.EscapeJSON(line)
}

// appendNote appends a note to a file and flushes it. The file may be append-only or on a network
// file system.
func appendNote(path string, note []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(append(bytes.TrimSuffix(bytes.Clone(note), []byte("\n")), '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// readToken reads the bearer token of a target from a file, with the checks of ReadTrusted.
func readToken(path string) (string, error) {
	token, err := profiles.ReadTrusted(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	text := strings.TrimSpace(string(token))
	if len(text) > maxToken || text == "" || strings.ContainsFunc(text,
		func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", fmt.Errorf("token: %s is no line of at most %d bytes", path, maxToken)
	}
	return text, nil
}

// maxAnswer bounds the bytes of a response that are read.
const maxAnswer = 8 << 10

// post sends text by HTTP POST and returns the response. If tokenFile is not "", it holds a bearer
// token. Without a response status is 0; an error with a status is about the body.
func post(ctx context.Context, address, tokenFile string, text []byte) (status int, answer []byte,
	err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	req.Header.Set("User-Agent", "jail")
	if tokenFile != "" {
		token, err := readToken(tokenFile)
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// After a redirect the request would have no body.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, answer, err
}

package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// witnessPrefix stands before the scheme of the address of a witness.
const witnessPrefix = "witness+"

// A neighbour is another host that cosigns heads.
type neighbour struct {
	k      Keeper
	target Target
	add    string // address
	client *http.Client
}

func openWitness(t Target, k Keeper, scheme string, u *url.URL) (sender, error) {
	if scheme != "http" && scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("to: %q: want witness+https://HOST/ or witness+http://HOST/, and perhaps a path", t.To)
	}
	if t.Key == "" {
		return nil, errors.New("key: it is missing: the file with the public key of the witness, which jail audit witness key prints there")
	}
	plain := *u
	plain.Scheme = scheme
	w := neighbour{k, t, plain.JoinPath("add-checkpoint").String(), &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	return func(ctx context.Context, h audit.Head) error {
		defer w.client.CloseIdleConnections()
		return w.send(ctx, h)
	}, nil
}

// noteFile holds the last head that a witness cosigned. It is for whoever looks for it here; what counts is what the witness has.
func (w neighbour) noteFile() string { return filepath.Join(w.k.State, w.target.Name+".note") }

// tries is how often a witness is asked that knows of another size than this: someone else may be sending, too.
const tries = 4

// send has a head cosigned.
func (w neighbour) send(ctx context.Context, h audit.Head) error {
	keys, err := profiles.ReadTrusted(w.target.Key)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if err := audit.CheckWitnessKeys(string(keys)); err != nil {
		return fmt.Errorf("key: %s: %w", w.target.Key, err)
	}
	old, err := w.lastSize(h.Origin)
	if err != nil {
		return err
	}
	for range tries {
		if old > h.Size { // of the log as it is now, perhaps
			if h, err = audit.ReadHead(w.k.Log); err != nil {
				return err
			}
		}
		if old > h.Size {
			// The witness says it, or else this file does, which is no witness.
			if seen, err := w.asks(ctx, h, 0, keys); err != nil || seen == nil || *seen > h.Size {
				return errors.Join(fmt.Errorf("%w: it has %d records, and the witness has cosigned %d", audit.ErrPutBack, h.Size, old), err)
			} else {
				old = *seen
			}
		}
		seen, err := w.asks(ctx, h, old, keys)
		if err != nil || seen == nil {
			return err
		}
		if *seen == h.Size && old == h.Size {
			return fmt.Errorf("the log is another than the one whose %d records the witness has cosigned: it was rewritten", h.Size)
		}
		old = *seen
	}
	return errors.New("the witness named one size after another")
}

// lastSize is that of the head which the witness cosigned last, as far as is known here.
func (w neighbour) lastSize(origin string) (uint64, error) {
	text, err := os.ReadFile(w.noteFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if a, err := audit.ParseAnchors(w.noteFile(), text); err == nil && len(a) == 1 && a[0].Origin == origin {
		return a[0].Size, nil
	}
	return 0, nil // the witness says it
}

// asks sends one request. seen is what the witness has, where that is not old.
func (w neighbour) asks(ctx context.Context, h audit.Head, old uint64, keys []byte) (seen *uint64, err error) {
	body, err := audit.WitnessRequest(w.k.Log, h, old)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.add, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	req.Header.Set("User-Agent", "jail")
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
	if err != nil {
		return nil, err
	}
	said := strings.TrimSpace(string(answer))
	switch resp.StatusCode {
	case http.StatusOK:
		signed, err := audit.Cosign(h.Note, answer, string(keys))
		if err != nil {
			return nil, err
		}
		return nil, writeFile(w.noteFile(), signed)
	case http.StatusConflict:
		n, err := strconv.ParseUint(said, 10, 63)
		if err != nil {
			return nil, errors.New("the witness refused, and did not say what size it has seen")
		}
		return &n, nil
	case http.StatusForbidden:
		return nil, fmt.Errorf("the witness does not know the key that this log is signed with: have it told with jail audit witness trust, also after jail audit rotate (403)")
	case http.StatusNotFound:
		return nil, fmt.Errorf("the witness does not watch this log: have it told with jail audit witness trust (404)")
	case http.StatusUnprocessableEntity:
		return nil, fmt.Errorf("the log is not the one whose first %d records the witness has cosigned: it was rewritten (422)", old)
	}
	return nil, fmt.Errorf("the witness answered %d: %.200s", resp.StatusCode, audit.Printable(said))
}

package anchor

import (
	"context"
	"errors"
	"fmt"
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

// witnessPrefix precedes the scheme of a witness's address.
const witnessPrefix = "witness+"

// neighbour is a witness on another host.
type neighbour struct {
	k      Keeper
	target Target
	add    string // address
}

func openWitness(t Target, k Keeper, scheme string, u *url.URL) (sender, error) {
	if scheme != "http" && scheme != "https" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, fmt.Errorf(
			"to: %q: want witness+https://HOST/ or witness+http://HOST/, and perhaps a path", t.To)
	}
	if t.Key == "" {
		return nil, errors.New("key is missing: the file with the public key of the witness")
	}
	plain := *u
	plain.Scheme = scheme
	return neighbour{k, t, plain.JoinPath("add-checkpoint").String()}.send, nil
}

// noteFile holds the last head that a witness cosigned, for readers on this host. The witness's own
// state decides.
func (w neighbour) noteFile() string { return filepath.Join(w.k.State, w.target.Name+".note") }

// tries bounds the requests to a witness that has seen another size than this host knows: another
// process may be sending, too.
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
		// The head may be older than the log.
		if old > h.Size {
			if h, err = audit.ReadHead(w.k.Log); err != nil {
				return err
			}
		}
		if old > h.Size {
			// Only the witness's answer counts; this file is no witness.
			if seen, err := w.asks(ctx, h, 0, keys); err != nil || seen == nil || *seen > h.Size {
				return errors.Join(
					fmt.Errorf("%w: it has %d records, and the witness has cosigned %d",
						audit.ErrPutBack, h.Size, old), err)
			} else {
				old = *seen
			}
		}
		seen, err := w.asks(ctx, h, old, keys)
		if err != nil || seen == nil {
			return err
		}
		if *seen == h.Size && old == h.Size {
			return fmt.Errorf(
				"the log is another than the one whose %d records the witness has cosigned: it "+
					"was rewritten", h.Size)
		}
		old = *seen
	}
	return errors.New("the witness named one size after another")
}

// lastSize returns the size of the head that the witness cosigned last, as far as this host knows.
func (w neighbour) lastSize(origin string) (uint64, error) {
	text, err := os.ReadFile(w.noteFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if a, err := audit.ParseAnchors(w.noteFile(), text); err == nil && len(a) == 1 &&
		a[0].Origin == origin {
		return a[0].Size, nil
	}
	// The witness reports its size.
	return 0, nil
}

// asks sends one request. seen is the size that the witness has, if it is not old.
func (w neighbour) asks(ctx context.Context, h audit.Head, old uint64, keys []byte) (seen *uint64,
	err error) {
	body, err := audit.WitnessRequest(w.k.Log, h, old)
	if err != nil {
		return nil, err
	}
	status, answer, err := post(ctx, w.add, "", body)
	if err != nil {
		return nil, err
	}
	said := strings.TrimSpace(string(answer))
	switch status {
	case http.StatusOK:
		signed, err := audit.Cosign(h.Note, answer, string(keys))
		if err != nil {
			return nil, err
		}
		return nil, writeFile(w.noteFile(), signed)
	case http.StatusConflict:
		n, err := strconv.ParseUint(said, 10, 63)
		if err != nil {
			return nil, errors.New("the witness refused without the size that it has seen")
		}
		return &n, nil
	case http.StatusForbidden:
		return nil, fmt.Errorf(
			"the witness does not know the key that signs this log: give it the key that `jail " +
				"audit key` prints, also after jail audit rotate (403)")
	case http.StatusNotFound:
		return nil, fmt.Errorf(
			"the witness does not watch this log: give it the key that `jail audit key` prints " +
				"(404)")
	case http.StatusUnprocessableEntity:
		return nil, fmt.Errorf(
			"the log is not the one whose first %d records the witness has cosigned: it was "+
				"rewritten (422)", old)
	}
	return nil, fmt.Errorf("the witness answered %d: %.200s", status, audit.Printable(said))
}

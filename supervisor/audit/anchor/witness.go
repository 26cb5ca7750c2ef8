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

// neighbour is a target on another host that runs a C2SP tlog-witness.
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

// noteFile returns the path of the last head that the witness cosigned, for readers on this host.
// The state of the witness itself is decisive.
func (w neighbour) noteFile() string { return filepath.Join(w.k.State, w.target.Name+".note") }

// tries bounds the requests to a witness whose size differs from the one that this host knows, as
// when another process sends, too.
const tries = 4

// send requests a cosignature of the head h and stores it.
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
		// h may be older than the log by now.
		if old > h.Size {
			if h, err = audit.ReadHead(w.k.Log); err != nil {
				return err
			}
		}
		if old > h.Size {
			// Ask the witness, since only its state counts, not this file.
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

// lastSize returns the number of records of the last head that the witness cosigned, from noteFile.
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
	// The witness answers with its size.
	return 0, nil
}

// asks requests a cosignature. seen is the witness's size if that is not old, else nil.
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

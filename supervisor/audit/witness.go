package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/jail-sandbox/jail/supervisor/audit/internal/flock"
)

// A Witness watches the logs of other hosts grow, as C2SP tlog-witness has it (https://c2sp.org/tlog-witness): it remembers the newest head that it has
// cosigned of each, and cosigns only one that goes on from it. It reads no records. Its directory holds:
//
//	witness.key       its private key (mode 0600)
//	logs/HASH.pub     the public key of a log that it watches, under the hash of the log's name
//	seen/HASH         the newest head of that log, cosigned: what it says is believed for the signature of the witness's own
//	lock              held by the one process that cosigns
type Witness struct {
	dir, logs, seen *os.Root
	key             cosignKey
	lock            *os.File // nil where it only reads
	now             func() time.Time
	mu              sync.Mutex // the size is compared and written as one
}

const (
	witnessKey  = "witness.key"
	witnessLogs = "logs"
	witnessSeen = "seen"
)

// DefaultWitness is the name of a witness that was given none: after its host.
func DefaultWitness() string {
	host, _ := os.Hostname()
	if !witnessName.MatchString(host) || len(host) > 64 {
		host = "jail"
	}
	return host + "/witness"
}

// OpenWitness opens a witness's directory, and makes what is not there: it, and a key under the name. A name other than the key's is refused, "" is any. With
// cosign it is the one that may call [Witness.Add].
func OpenWitness(dir, name string, cosign bool) (w *Witness, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	w = &Witness{now: time.Now}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
			w = nil
		}
	}()
	if w.dir, err = os.OpenRoot(dir); err != nil {
		return w, err
	}
	for _, sub := range []struct {
		name string
		root **os.Root
	}{{witnessLogs, &w.logs}, {witnessSeen, &w.seen}} {
		if err := w.dir.Mkdir(sub.name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return w, err
		}
		if *sub.root, err = w.dir.OpenRoot(sub.name); err != nil {
			return w, err
		}
	}
	if err := w.readKey(name); err != nil {
		return w, err
	}
	if !cosign {
		return w, nil
	}
	if w.lock, err = openRegular(w.dir, lockFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return w, err
	}
	held, err := flock.Try(w.lock)
	if err == nil && !held {
		err = fmt.Errorf("another process cosigns with the key in %s", dir)
	}
	return w, err
}

func (w *Witness) readKey(name string) error {
	info, err := w.dir.Lstat(witnessKey)
	if errors.Is(err, fs.ErrNotExist) {
		if name == "" {
			name = DefaultWitness()
		}
		if w.key, err = newCosignKey(name); err != nil {
			return err
		}
		return replace(w.dir, witnessKey, 0o600, w.key.secret()+"\n")
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%w %s: mode is %v, want a file of mode 0600", ErrKey, witnessKey, info.Mode())
	}
	text, err := readSmall(w.dir, witnessKey)
	if err != nil {
		return err
	}
	if w.key, err = parseCosignKey(string(text)); err != nil {
		return fmt.Errorf("%s: %w", witnessKey, err)
	}
	if name != "" && name != w.key.name {
		return fmt.Errorf("%w: the witness in %s is called %s, not %s: another name wants another directory", ErrKey, w.dir.Name(), w.key.name, name)
	}
	return nil
}

// Close gives the directory back.
func (w *Witness) Close() error {
	var errs []error
	for _, r := range []*os.Root{w.dir, w.logs, w.seen} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	if w.lock != nil {
		errs = append(errs, w.lock.Close())
	}
	return errors.Join(errs...)
}

// PublicKey is what who verifies a log takes to believe the witness.
func (w *Witness) PublicKey() string { return w.key.String() }

func originFile(origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return hex.EncodeToString(sum[:16])
}

// Trust has the witness watch a log, whose public keys are given as audit.pub has them, the eldest first: the last one counts, in place of the one that it
// had for that log. What it has seen of the log stays.
func (w *Witness) Trust(pub string) (origin string, err error) {
	lines := strings.Fields(pub)
	if len(lines) == 0 {
		return "", fmt.Errorf("%w: no public key", ErrKey)
	}
	last := lines[len(lines)-1]
	v, err := note.NewVerifier(last)
	if err != nil {
		return "", fmt.Errorf("%w: %.80q is no public key of a log: want what `jail audit key` prints on its host", ErrKey, last)
	}
	return v.Name(), replace(w.logs, originFile(v.Name())+".pub", 0o600, last+"\n")
}

// Forget ends that the witness watches a log. What it has seen of it stays.
func (w *Witness) Forget(origin string) error { return w.logs.Remove(originFile(origin) + ".pub") }

// A WatchedLog is a log that a witness watches.
type WatchedLog struct {
	Origin string    `json:"origin"`
	Key    string    `json:"key"`
	Size   uint64    `json:"records"` // of the newest head that was cosigned
	Root   string    `json:"root,omitempty"`
	Time   time.Time `json:"time,omitzero"` // when it was
}

// Logs are the logs that the witness watches, by name.
func (w *Witness) Logs() ([]WatchedLog, error) {
	dir, err := w.logs.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	all := []WatchedLog{}
	for _, name := range names {
		if !strings.HasSuffix(name, ".pub") {
			continue
		}
		text, err := readSmall(w.logs, name)
		if err != nil {
			return nil, err
		}
		v, err := note.NewVerifier(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%w: %s/%s: %w", ErrKey, witnessLogs, name, err)
		}
		log := WatchedLog{Origin: v.Name(), Key: strings.TrimSpace(string(text))}
		last, _, err := w.last(v.Name())
		if err != nil {
			return nil, err
		}
		if log.Size, log.Time = last.size, last.at; !last.at.IsZero() {
			log.Root = tlog.Hash(last.root).String()
		}
		all = append(all, log)
	}
	slices.SortFunc(all, func(a, b WatchedLog) int { return strings.Compare(a.Origin, b.Origin) })
	return all, nil
}

// lastSeen is the newest head of a log that was cosigned; of none it is zero.
type lastSeen struct {
	treeHead
	at time.Time
}

func (w *Witness) last(origin string) (lastSeen, []byte, error) {
	text, err := readSmall(w.seen, originFile(origin))
	if errors.Is(err, fs.ErrNotExist) {
		return lastSeen{}, nil, nil
	}
	if err != nil {
		return lastSeen{}, nil, err
	}
	bad := fmt.Errorf("what the witness has seen of %s cannot be believed: %s/%s is not cosigned by it", origin, witnessSeen, originFile(origin))
	at, signed, err := w.key.cosignedAt(text)
	if err != nil || !signed {
		return lastSeen{}, nil, bad
	}
	body, _, _ := bytes.Cut(text, []byte("\n\n"))
	head, ok := parseCheckpoint(string(body) + "\n")
	if !ok || head.origin != origin {
		return lastSeen{}, nil, bad
	}
	return lastSeen{head, at}, text, nil
}

// Seen is the newest head of a log that was cosigned, as a note with both signatures.
func (w *Witness) Seen(origin string) ([]byte, error) {
	_, text, err := w.last(origin)
	if err == nil && text == nil {
		err = &WitnessError{Status: WitnessUnknown, Why: fmt.Sprintf("nothing was cosigned of the log %.100q", origin)}
	}
	return text, err
}

// A WitnessError is why a witness does not cosign.
type WitnessError struct {
	Status int    // one of the states below, which are those of HTTP
	Size   uint64 // of what it has seen, with WitnessConflict
	Why    string
}

func (e *WitnessError) Error() string { return e.Why }

// The states, as https://c2sp.org/tlog-witness has them.
const (
	WitnessMalformed = 400
	WitnessForbidden = 403
	WitnessUnknown   = 404
	WitnessConflict  = 409
	WitnessBadProof  = 422
)

// Add looks at a head that a log asks to have cosigned, with the size of the last one and the proof between, and answers with the line of a signature. What it
// refuses is a [*WitnessError]. The new head is on disk before it answers.
func (w *Witness) Add(request []byte) ([]byte, error) {
	if w.lock == nil {
		return nil, errors.New("the witness was opened to be read only")
	}
	ask, err := parseWitnessRequest(request)
	if err != nil {
		return nil, &WitnessError{Status: WitnessMalformed, Why: err.Error()}
	}
	text, err := readSmall(w.logs, originFile(ask.head.origin)+".pub")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &WitnessError{Status: WitnessUnknown, Why: fmt.Sprintf("the log %.100q is not watched here", ask.head.origin)}
	}
	if err != nil {
		return nil, err
	}
	known, err := note.NewVerifier(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("key of the log %.100q: %w", ask.head.origin, err)
	}
	signed, err := note.Open(ask.note, note.VerifierList(known))
	if err != nil || known.Name() != ask.head.origin {
		return nil, &WitnessError{Status: WitnessForbidden, Why: fmt.Sprintf("the head is not signed by the key of the log %.100q that is known here", ask.head.origin)}
	}
	if ask.old > ask.head.size {
		return nil, &WitnessError{Status: WitnessMalformed, Why: fmt.Sprintf("the old size %d is larger than that of the head, %d", ask.old, ask.head.size)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, _, err := w.last(ask.head.origin)
	if err != nil {
		return nil, err
	}
	if err := ask.follows(last); err != nil {
		return nil, err
	}
	line := w.key.sign([]byte(signed.Text), w.now())
	keep := append(append([]byte(signed.Text), '\n'), signature...)
	keep = fmt.Appendf(keep, "%s %s\n%s", signed.Sigs[0].Name, signed.Sigs[0].Base64, line)
	if len(keep) > maxNote { // it could not be read again
		return nil, &WitnessError{Status: WitnessMalformed, Why: fmt.Sprintf("the head is too long: with a cosignature it has %d bytes, and may have %d", len(keep), maxNote)}
	}
	return line, replace(w.seen, originFile(ask.head.origin), 0o600, string(keep))
}

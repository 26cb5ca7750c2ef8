// Package witnesstest has a witness of logs for tests. It answers over HTTP as C2SP tlog-witness
// specifies (https://c2sp.org/tlog-witness) and keeps its state in memory.
package witnesstest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// algCosignature marks an Ed25519 key that signs cosignatures (https://c2sp.org/tlog-cosignature).
const algCosignature = 4

// A Key is the private key of a witness.
type Key struct {
	Name    string
	private ed25519.PrivateKey
}

// NewKey makes a key. Equal seeds give equal keys; nil gives a random one.
func NewKey(name string, seed []byte) Key {
	if seed == nil {
		seed = make([]byte, ed25519.SeedSize)
		rand.Read(seed)
	}
	return Key{name, ed25519.NewKeyFromSeed(seed)}
}

func (k Key) typed() []byte {
	return append([]byte{algCosignature}, k.private.Public().(ed25519.PublicKey)...)
}

func (k Key) hash() uint32 {
	sum := sha256.Sum256(append([]byte(k.Name+"\n"), k.typed()...))
	return binary.BigEndian.Uint32(sum[:])
}

// Public returns the public key as one line: NAME+HASH+BASE64.
func (k Key) Public() string {
	return fmt.Sprintf("%s+%08x+%s", k.Name, k.hash(), base64.StdEncoding.EncodeToString(k.typed()))
}

// Sign returns the signature line of a cosignature over text, the body of a note.
func (k Key) Sign(text string, at time.Time) []byte {
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s", at.Unix(), text)
	sig := binary.BigEndian.AppendUint32(nil, k.hash())
	sig = binary.BigEndian.AppendUint64(sig, uint64(at.Unix()))
	sig = append(sig, ed25519.Sign(k.private, []byte(message))...)
	return fmt.Appendf(nil, "\u2014 %s %s\n", k.Name, base64.StdEncoding.EncodeToString(sig))
}

// A Witness cosigns a head of a trusted log only if the head extends the newest one that the
// witness has cosigned.
type Witness struct {
	Key
	mu       sync.Mutex
	logs     map[string]note.Verifier
	seen     map[string]head
	refusals int
}

type head struct {
	size int64
	root tlog.Hash
	note []byte
}

// New makes a witness with a random key.
func New(name string) *Witness {
	return &Witness{Key: NewKey(name, nil), logs: map[string]note.Verifier{},
		seen: map[string]head{}}
}

// Trust adds the log of the last of the public keys, one a line, and returns the log's name.
func (w *Witness) Trust(keys string) (origin string, err error) {
	lines := strings.Fields(keys)
	v, err := note.NewVerifier(lines[len(lines)-1])
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs[v.Name()] = v
	return v.Name(), nil
}

// Seen returns the newest head of a log that the witness has cosigned, as a note with both
// signatures, or nil.
func (w *Witness) Seen(origin string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[origin].note
}

// Refusals returns how many requests the witness has refused.
func (w *Witness) Refusals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusals
}

// ServeHTTP answers POST .../add-checkpoint.
func (w *Witness) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil || req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path,
		"/add-checkpoint") {
		http.NotFound(out, req)
		return
	}
	status, answer := w.Add(body)
	if status == http.StatusConflict {
		out.Header().Set("Content-Type", "text/x.tlog.size")
	}
	out.WriteHeader(status)
	_, _ = out.Write(answer)
}

// Add handles a request. It returns a cosignature line and 200, the size that the witness has seen
// and 409, or a reason and another status.
func (w *Witness) Add(request []byte) (status int, answer []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, answer = w.add(request)
	if status != http.StatusOK {
		w.refusals++
	}
	return status, answer
}

func (w *Witness) add(request []byte) (int, []byte) {
	old, proof, signed, err := parse(request)
	if err != nil {
		return http.StatusBadRequest, []byte(err.Error())
	}
	origin, _, _ := strings.Cut(string(signed), "\n")
	verifier, watched := w.logs[origin]
	if !watched {
		return http.StatusNotFound, []byte("unknown log")
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return http.StatusForbidden, []byte("unknown key")
	}
	next, err := parseHead(n.Text)
	last := w.seen[origin]
	switch {
	case err != nil || old > next.size:
		return http.StatusBadRequest, []byte("malformed head")
	case old != last.size, last.note != nil && next.size == last.size && next.root != last.root:
		return http.StatusConflict, fmt.Appendf(nil, "%d\n", last.size)
	case old == 0 || old == next.size:
		if len(proof) > 0 {
			return http.StatusUnprocessableEntity, []byte("proof is not empty")
		}
	case tlog.CheckTree(proof, next.size, next.root, old, last.root) != nil:
		return http.StatusUnprocessableEntity, []byte("proof does not hold")
	}
	line := w.Sign(n.Text, time.Now())
	next.note = fmt.Appendf(nil, "%s\n\u2014 %s %s\n%s", n.Text, n.Sigs[0].Name, n.Sigs[0].Base64,
		line)
	w.seen[origin] = next
	return http.StatusOK, line
}

// parse parses a request: "old SIZE", the hashes of the proof, an empty line, and the note.
func parse(request []byte) (old int64, proof tlog.TreeProof, signed []byte, err error) {
	top, signed, found := bytes.Cut(request, []byte("\n\n"))
	lines := strings.Split(string(top), "\n")
	if _, err := fmt.Sscanf(lines[0], "old %d", &old); err != nil || !found {
		return 0, nil, nil, fmt.Errorf("malformed request: %q", lines[0])
	}
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return 0, nil, nil, err
		}
		proof = append(proof, hash)
	}
	return old, proof, signed, nil
}

func parseHead(text string) (h head, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 {
		return h, fmt.Errorf("malformed head: %q", text)
	}
	if h.size, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
		return h, err
	}
	h.root, err = tlog.ParseHash(lines[2])
	return h, err
}

package audit

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/jail-sandbox/jail/jail/atomicfile"
)

// nextFile holds the new key until the record that hands over to it is signed.
const nextFile = "audit.key.next"

const nextPrefix = "next "

// Rotate gives the log a new signing key and deletes the old one. A "checkpoint" record that both
// keys sign names the new one; after it only the new key's signatures count. The log may be in use:
// its writers take the new key at their next record. Rotate returns the new public key.
func Rotate(opt Options) (string, error) {
	l, err := Open(opt)
	if err != nil {
		return "", err
	}
	var pub string
	err = l.hold(func() error {
		pub, err = l.writer.rotate()
		return err
	})
	return pub, errors.Join(err, l.Close())
}

// rotate requires the lock and an up-to-date log. If it is interrupted at any point, the next Open
// completes or undoes it: see settleKey.
func (w *writer) rotate() (string, error) {
	skey, vkey, err := note.GenerateKey(rand.Reader, w.keys.signer.Name())
	if err != nil {
		return "", err
	}
	next, err := note.NewSigner(skey)
	if err != nil {
		return "", err
	}
	if pub, err := readPublic(w.keys.dir); err != nil || len(pub)+len(vkey) >= maxPublic {
		return "", cmp.Or(err,
			fmt.Errorf("%w: %s has no room for another: begin a log anew", ErrKey, pubFile))
	}
	if err := atomicfile.WriteIn(w.keys.dir, nextFile, []byte(skey+"\n"), 0o600,
		atomicfile.Durable); err != nil {
		return "", err
	}
	h := head{w.at.state, w.tree.root()}
	text, err := h.sign(asCheckpoint, w.opt.Now(), []string{nextPrefix + vkey}, w.keys.signer, next)
	if err != nil {
		return "", err
	}
	if err := w.own(checkpoint{string(text)}); err != nil {
		return "", err
	}
	return vkey, w.settleKey()
}

// settleKey completes a rotation that the log has a record of, or undoes one without a record.
func (w *writer) settleKey() error {
	text, err := readSmall(w.keys.dir, nextFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	skey := strings.TrimSuffix(string(text), "\n")
	_, vkey, err := parseKey(skey, nextFile)
	if err != nil {
		return err
	}
	if found, err := w.findHandover(vkey); err != nil || !found {
		return errors.Join(err, w.keys.dir.Remove(nextFile))
	}
	pub, err := readPublic(w.keys.dir)
	if err != nil {
		return err
	}
	if all := string(pub); !strings.HasSuffix(all, vkey+"\n") {
		if err := atomicfile.WriteIn(w.keys.dir, pubFile, []byte(all+vkey+"\n"), 0o644,
			atomicfile.Durable); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteIn(w.keys.dir, keyFile, []byte(skey+"\n"), 0o600,
		atomicfile.Durable); err != nil {
		return err
	}
	if err := w.keys.load(true, w.root); err != nil {
		return err
	}
	err = w.head.set(<-w.signing(head{w.at.state, w.tree.root()}))
	if err == nil {
		err = w.seal(true)
	}
	if err != nil {
		return err
	}
	return w.keys.dir.Remove(nextFile)
}

// openHandover verifies a checkpoint that may hand over to another key, which must then have signed
// it, too. next is empty without a handover.
func openHandover(msg []byte, keys note.Verifiers) (h head, next string, err error) {
	h, more, err := openLong(msg, keys, asCheckpoint)
	if err != nil || len(more) == 0 {
		return h, "", err
	}
	vkey, named := strings.CutPrefix(more[0], nextPrefix)
	v, err := note.NewVerifier(vkey)
	if !named || len(more) > 1 || err != nil {
		return h, "", errNote
	}
	if _, _, err := openLong(msg, note.VerifierList(v), asCheckpoint); err != nil {
		return h, "", fmt.Errorf("the next key has not signed it: %w", err)
	}
	return h, vkey, nil
}

// findHandover finds the record that hands over to the key. Only an interrupted rotation needs it,
// so the record is near the end.
func (w *writer) findHandover(vkey string) (bool, error) {
	list, err := segments(w.root)
	if err != nil {
		return false, err
	}
	var p parser
	r := readLines(w.root)
	defer r.close()
	if err := r.seek(list[max(0, len(list)-2)], 0); err != nil {
		return false, err
	}
	for {
		text, err := r.next()
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		m, err := p.mark(text.text)
		if err != nil || m.kind != TypeCheckpoint {
			continue
		}
		var signed string
		if json.Unmarshal(m.note, &signed) != nil {
			continue
		}
		if _, next, err := openHandover([]byte(signed), w.keys.known); err == nil && next == vkey {
			return true, nil
		}
	}
}

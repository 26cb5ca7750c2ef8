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
)

// nextFile holds the new key until the record that hands over to it is signed.
const nextFile = "audit.key.next"

const nextPrefix = "next "

// Rotate gives the log a new signing key and forgets the old one. A "checkpoint" record that both keys sign names the new one; from there on only what
// the new key signs counts. The log may be in use: its writers take the new key at their next record. It returns the new public key.
func Rotate(opt Options) (string, error) {
	l, err := Open(opt)
	if err != nil {
		return "", err
	}
	var pub string
	err = l.hold(func() error {
		pub, err = l.rotate()
		return err
	})
	return pub, errors.Join(err, l.Close())
}

// rotate is for whoever holds the lock and is up to date. Wherever it is cut off, the next Open goes on or goes back: see settleKey.
func (l *Log) rotate() (string, error) {
	skey, vkey, err := note.GenerateKey(rand.Reader, l.signer.Name())
	if err != nil {
		return "", err
	}
	next, err := note.NewSigner(skey)
	if err != nil {
		return "", err
	}
	if pub, err := readPublic(l.keys); err != nil || len(pub)+len(vkey) >= maxPublic {
		return "", cmp.Or(err, fmt.Errorf("%w: %s has no room for another: begin a log anew", ErrKey, pubFile))
	}
	if err := replace(l.keys, nextFile, 0o600, skey+"\n"); err != nil {
		return "", err
	}
	root, err := l.tree.root()
	if err != nil {
		return "", err
	}
	h := head{l.at.state, root}
	text, err := h.sign(asCheckpoint, l.opt.Now(), []string{nextPrefix + vkey}, l.signer, next)
	if err != nil {
		return "", err
	}
	at := l.at
	l.buf = l.buf[:0]
	l.line(&at, Entry{Actor: l.opt.Actor, Event: checkpoint{string(text)}}.body())
	at.offset += int64(len(l.buf))
	if err := l.store(at); err != nil {
		return "", err
	}
	return vkey, l.settleKey()
}

// settleKey ends a rotation that the log has on record, or forgets one that it has not.
func (l *Log) settleKey() error {
	text, err := readSmall(l.keys, nextFile)
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
	if found, err := l.findHandover(vkey); err != nil || !found {
		return errors.Join(err, l.keys.Remove(nextFile))
	}
	pub, err := readPublic(l.keys)
	if err != nil {
		return err
	}
	if all := string(pub); !strings.HasSuffix(all, vkey+"\n") {
		if err := replace(l.keys, pubFile, 0o644, all+vkey+"\n"); err != nil {
			return err
		}
	}
	if err := replace(l.keys, keyFile, 0o600, skey+"\n"); err != nil {
		return err
	}
	if err := l.loadKey(true); err != nil {
		return err
	}
	root, err := l.tree.root()
	if err == nil {
		err = l.setHead(<-l.signing(head{l.at.state, root}))
	}
	if err == nil {
		err = l.seal(true)
	}
	if err != nil {
		return err
	}
	return l.keys.Remove(nextFile)
}

// openHandover checks a checkpoint that may hand over to another key: then it must be signed by that key besides. next is empty where it does not.
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
		return h, "", fmt.Errorf("the key that it hands over to has not signed it: %w", err)
	}
	return h, vkey, nil
}

// findHandover looks for the record that hands over to the key. Only a rotation that was cut off needs it, so it is near the end.
func (l *Log) findHandover(vkey string) (bool, error) {
	list, err := segments(l.root)
	if err != nil {
		return false, err
	}
	r := readLines(l.root)
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
		m, err := l.parser.mark(text.text)
		if err != nil || m.kind != TypeCheckpoint {
			continue
		}
		var signed string
		if json.Unmarshal(m.note, &signed) != nil {
			continue
		}
		if _, next, err := openHandover([]byte(signed), l.known); err == nil && next == vkey {
			return true, nil
		}
	}
}

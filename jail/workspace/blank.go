package workspace

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A blank is an empty upper layer that was made before a shadow asks for it: image, loop device and
// mounted file system, which take most of the time of Prepare. It was never written to, belongs to
// nobody, and becomes the layer of one shadow.
//
// <store>/.blank-<name>/upper.img is its image. The directory is locked while its maker lives. A
// blank reserves no space on the disk: the shadow that takes it does, as with a layer of its own.
type blank struct {
	folder
	name string
	// bytes and inodes are the limits that it was made for.
	bytes, inodes int64
	layer         layer
}

const blankPrefix = ".blank-"

const (
	// maxBlanks bounds the blanks of a store, because each run chooses its own limits.
	maxBlanks = 2
	// blankIdle is how long blanks are kept after the last Stock.
	blankIdle = 2 * time.Minute
)

// blanks are those of one open store, the oldest first.
type blanks struct {
	mu     sync.Mutex
	ready  []*blank
	making bool
	idle   *time.Timer
	closed bool
}

// Stock makes a layer with the limits of w ahead, for the next shadow, unless there is one. It does
// nothing if the store is closed or the host makes layers in memory. The blanks go after two
// minutes without Stock, and with the store.
func (s *Store) Stock(w *Workspace) error {
	w.mu.Lock()
	bytes, inodes := w.made.bytes, w.made.inodes
	w.mu.Unlock()
	if sys.Rootless() || bytes == 0 || !s.blanks.begin(bytes, inodes, func() {
		_ = s.dropBlanks(false)
	}) {
		return nil
	}
	b, err := s.newBlank(bytes, inodes)
	old := s.blanks.end(b)
	if old != nil {
		err = errors.Join(err, s.removeBlank(old))
	}
	return err
}

// begin reports whether the caller makes a blank now and then calls end. drop is called once the
// blanks are idle.
func (b *blanks) begin(bytes, inodes int64, drop func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.idle == nil {
		b.idle = time.AfterFunc(blankIdle, drop)
	}
	b.idle.Reset(blankIdle)
	if b.making || slices.ContainsFunc(b.ready, func(b *blank) bool {
		return b.fits(bytes, inodes)
	}) {
		return false
	}
	b.making = true
	return true
}

// end takes a blank that was made, nil for none, and returns the one that is too many.
func (b *blanks) end(made *blank) (old *blank) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.making = false
	if made == nil || b.closed {
		return made
	}
	if b.ready = append(b.ready, made); len(b.ready) > maxBlanks {
		old = b.ready[0]
		b.ready = slices.Delete(b.ready, 0, 1)
	}
	return old
}

// take takes the blank with these limits, nil if there is none.
func (b *blanks) take(bytes, inodes int64) *blank {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.ready, func(b *blank) bool { return b.fits(bytes, inodes) })
	if i < 0 {
		return nil
	}
	taken := b.ready[i]
	b.ready = slices.Delete(b.ready, i, i+1)
	return taken
}

func (b *blank) fits(bytes, inodes int64) bool { return b.bytes == bytes && b.inodes == inodes }

func (s *Store) newBlank(bytes, inodes int64) (*blank, error) {
	b := &blank{name: blankPrefix + randomName(), bytes: bytes, inodes: inodes}
	var err error
	if b.dir, err = s.makeDir(b.name); err != nil {
		return nil, err
	}
	if b.layer.image, err = s.newImage(b.dir, bytes, inodes); err == nil {
		err = b.layer.mountImage()
	}
	if err != nil {
		return nil, errors.Join(err, s.removeBlank(b))
	}
	return b, nil
}

// removeBlank removes a blank that nobody has taken.
func (s *Store) removeBlank(b *blank) error {
	return errors.Join(s.sweep(b.name), b.layer.close(), closeFiles(&b.dir))
}

// takeBlank makes a blank with these limits the layer of the workspace, and reports whether there
// was one. The caller holds the lock of the reservations. A blank that cannot be taken is removed,
// and the workspace gets a layer of its own.
func (p preparation) takeBlank(bytes, inodes int64) bool {
	s := p.w.store
	b := s.blanks.take(bytes, inodes)
	if b == nil {
		return false
	}
	if sys.MoveAt(b.dir, "upper.img", p.w.home.dir, "upper.img", false) != nil {
		// Whatever is left of it is swept later.
		_ = s.removeBlank(b)
		return false
	}
	// The layers below it stay those of the workspace.
	b.layer.frozen = p.w.layer.frozen
	p.w.layer, b.layer = b.layer, layer{}
	_ = s.removeBlank(b)
	return true
}

// dropBlanks removes the blanks; with end no more are made.
func (s *Store) dropBlanks(end bool) (err error) {
	s.blanks.mu.Lock()
	all := s.blanks.ready
	s.blanks.ready, s.blanks.closed = nil, s.blanks.closed || end
	if end && s.blanks.idle != nil {
		s.blanks.idle.Stop()
	}
	s.blanks.mu.Unlock()
	for _, b := range all {
		err = errors.Join(err, s.removeBlank(b))
	}
	return err
}

// EndStock removes what Stock made, and makes it do nothing from here on.
func (s *Store) EndStock() error { return s.dropBlanks(true) }

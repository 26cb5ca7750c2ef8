package modules

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// A Digests remembers the SHA-256 digests of programs while their files stay unchanged.
type Digests struct {
	mu  sync.Mutex
	all map[Stamp][sha256.Size]byte
}

// maxDigests bounds how many digests are remembered. settledAfter is how old a change of a file
// must be so that the next change has another time.
const (
	maxDigests   = 256
	settledAfter = 5 * time.Second
)

// Of returns the digest of at most limit bytes of a file that info describes.
func (d *Digests) Of(f *os.File, info fs.FileInfo, limit int64) (sum [sha256.Size]byte, err error) {
	stamp := StampOfInfo(info)
	d.mu.Lock()
	sum, ok := d.all[stamp]
	d.mu.Unlock()
	if ok {
		return sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, limit)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	if !stamp.Settled() {
		return sum, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil || len(d.all) >= maxDigests {
		d.all = map[Stamp][sha256.Size]byte{}
	}
	d.all[stamp] = sum
	return sum, nil
}

package gitrepo

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
)

// pack is an open packfile with its index of version 2 (gitformat-pack(5)).
type pack struct {
	data, index *os.File
	size        int64
	indexSize   int64
	fan         [256]uint32
}

// packPlace is a pack and the offset of an entry in it.
type packPlace struct {
	pack *pack
	at   int64
}

var errPack = errors.New("its pack is damaged")

const (
	indexHead = 8 + 256*4
	// maxBases bounds the cache of delta bases in bytes.
	maxBases = 48 << 20
)

// openPacks opens the packs of a side. A pack that both sides have is opened twice.
func (r *repository) openPacks(side Side) error {
	names, err := r.list(side, "objects/pack")
	if err != nil {
		return err
	}
	for _, name := range names {
		base, ok := strings.CutSuffix(name, ".idx")
		if !ok {
			continue
		}
		if len(r.packs[side]) == maxPacks {
			return unknown("it has more than %d packs", maxPacks)
		}
		p, err := r.openPack(side, "objects/pack/"+base)
		if errors.Is(err, fs.ErrNotExist) {
			// git, too, ignores an index without its pack.
			continue
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", clean(base, 60), err)
		}
		r.packs[side] = append(r.packs[side], p)
	}
	return nil
}

func (r *repository) openPack(side Side, base string) (p *pack, err error) {
	p = &pack{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.data, p.size, err = r.files.Open(side, base+".pack"); err != nil {
		return p, err
	}
	if p.index, p.indexSize, err = r.files.Open(side, base+".idx"); err != nil {
		return p, err
	}
	var head [indexHead]byte
	if _, err := p.index.ReadAt(head[:], 0); err != nil {
		return p, errPack
	}
	if string(head[:4]) != "\xfftOc" || binary.BigEndian.Uint32(head[4:]) != 2 {
		return p, unknown("the index of a pack has no version 2")
	}
	last := uint32(0)
	for i := range p.fan {
		p.fan[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if p.fan[i] < last {
			return p, errPack
		}
		last = p.fan[i]
	}
	if p.indexSize < indexHead+int64(last)*28+40 {
		return p, errPack
	}
	return p, nil
}

func (p *pack) close() {
	for _, f := range []*os.File{p.data, p.index} {
		if f != nil {
			f.Close()
		}
	}
}

func (p *pack) count() int64 { return int64(p.fan[255]) }

// find returns the offset of an object in the pack. ok is false if the pack does not have it.
func (p *pack) find(name oid) (at int64, ok bool, err error) {
	low, high := int64(0), int64(p.fan[name[0]])
	if name[0] > 0 {
		low = int64(p.fan[name[0]-1])
	}
	var got oid
	for low < high {
		mid := (low + high) / 2
		if _, err := p.index.ReadAt(got[:], indexHead+mid*int64(len(got))); err != nil {
			return 0, false, errPack
		}
		switch c := bytes.Compare(got[:], name[:]); {
		case c == 0:
			at, err = p.offset(mid)
			return at, err == nil, err
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	return 0, false, nil
}

// offset returns the offset in the pack of the n-th object of the index.
func (p *pack) offset(n int64) (int64, error) {
	offsets := indexHead + p.count()*24
	var small [4]byte
	if _, err := p.index.ReadAt(small[:], offsets+4*n); err != nil {
		return 0, errPack
	}
	at := int64(binary.BigEndian.Uint32(small[:]))
	if at&(1<<31) != 0 {
		var large [8]byte
		place := offsets + 4*p.count() + 8*(at&^(1<<31))
		if place+8 > p.indexSize-40 {
			return 0, errPack
		}
		if _, err := p.index.ReadAt(large[:], place); err != nil {
			return 0, errPack
		}
		at = int64(binary.BigEndian.Uint64(large[:]))
	}
	if at < 12 || at > p.size-20 {
		return 0, errPack
	}
	return at, nil
}

func (r *repository) loadPacked(side Side, name oid) (object, error) {
	var damaged error
	for _, p := range r.packs[side] {
		at, ok, err := p.find(name)
		if err == nil && ok {
			o, err := r.unpack(p, at)
			if err == nil {
				return o, nil
			}
			damaged = err
		} else if err != nil {
			damaged = err
		}
	}
	if damaged != nil {
		return object{}, damaged
	}
	return object{}, errMissing
}

// Types of entries of a pack.
var packKinds = map[byte]kind{1: commitKind, 2: treeKind, 3: blobKind, 4: tagKind}

const (
	offsetDelta = 6
	nameDelta   = 7
)

// packEntry is an entry of a pack: an object, or, if kind is "", a delta to the object at base.
type packEntry struct {
	kind kind
	base int64
	data []byte
}

// unpack returns the object at an offset. It is not recursive: it follows the chain of deltas to
// its end and then applies them.
func (r *repository) unpack(p *pack, at int64) (object, error) {
	var deltas [][]byte
	var places []int64
	held := 0
	for {
		if o, ok := r.bases[packPlace{p, at}]; ok {
			return r.applyAll(p, o, deltas, places)
		}
		if len(deltas) == maxDeltas {
			return object{}, errors.New("its chain of deltas is too long")
		}
		e, err := r.entry(p, at)
		if err != nil {
			return object{}, err
		}
		if e.kind != "" {
			o := object{e.kind, e.data}
			r.cache(p, at, o)
			return r.applyAll(p, o, deltas, places)
		}
		if held += len(e.data); held > maxObject {
			return object{}, errors.New("its chain of deltas is too large")
		}
		deltas, places = append(deltas, e.data), append(places, at)
		at = e.base
	}
}

func (r *repository) applyAll(p *pack, o object, deltas [][]byte, places []int64) (object, error) {
	for i := len(deltas) - 1; i >= 0; i-- {
		if err := r.ctx.Err(); err != nil {
			return object{}, err
		}
		data, err := r.applyDelta(o.data, deltas[i])
		if err != nil {
			return object{}, err
		}
		o = object{o.kind, data}
		r.cache(p, places[i], o)
	}
	return o, nil
}

func (r *repository) cache(p *pack, at int64, o object) {
	if len(o.data) > maxBases/8 {
		return
	}
	if r.baseBytes += len(o.data) + 64; r.baseBytes > maxBases {
		r.bases, r.baseBytes = map[packPlace]object{}, len(o.data)+64
	}
	r.bases[packPlace{p, at}] = o
}

// entry reads the entry at an offset.
func (r *repository) entry(p *pack, at int64) (e packEntry, err error) {
	if err := r.ctx.Err(); err != nil {
		return e, err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(p.data, at, p.size-20-at), 4096)
	first, err := in.ReadByte()
	if err != nil {
		return e, errPack
	}
	size, shift, more := int64(first&15), 4, first&0x80 != 0
	for more {
		c, err := in.ReadByte()
		if err != nil || shift > 53 {
			return e, errPack
		}
		size |= int64(c&0x7f) << shift
		shift += 7
		more = c&0x80 != 0
	}
	switch code := first >> 4 & 7; code {
	case offsetDelta:
		back, err := readOffset(in)
		if err != nil || back <= 0 || at-back < 12 {
			return e, errPack
		}
		e.base = at - back
	case nameDelta:
		var name oid
		if _, err := io.ReadFull(in, name[:]); err != nil {
			return e, errPack
		}
		base, ok, err := p.find(name)
		if err != nil || !ok {
			return e, errors.New("the base of its delta is missing")
		}
		e.base = base
	default:
		if e.kind = packKinds[code]; e.kind == "" {
			return e, errPack
		}
	}
	z, err := zlib.NewReader(in)
	if err != nil {
		return e, err
	}
	e.data, err = r.inflate(z, size)
	return e, err
}

func readOffset(in io.ByteReader) (int64, error) {
	n := int64(-1)
	for range 9 {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		n = (n+1)<<7 | int64(c&0x7f)
		if c&0x80 == 0 {
			return n, nil
		}
	}
	return 0, errPack
}

// applyDelta applies a delta to the data of its base object and returns the result.
func (r *repository) applyDelta(base, delta []byte) ([]byte, error) {
	from, n := binary.Uvarint(delta)
	if n <= 0 || from != uint64(len(base)) {
		return nil, errPack
	}
	delta = delta[n:]
	size, n := binary.Uvarint(delta)
	if n <= 0 {
		return nil, errPack
	}
	if err := r.spend(int64(min(size, math.MaxInt64))); err != nil {
		return nil, err
	}
	delta = delta[n:]
	// A declared size takes memory only as far as there is content.
	out := make([]byte, 0, min(size, 1<<20))
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		if op&0x80 == 0 {
			if op == 0 || int(op) > len(delta) {
				return nil, errPack
			}
			out, delta = append(out, delta[:op]...), delta[op:]
		} else {
			var offset, length uint32
			for i := range 7 {
				if op&(1<<i) == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errPack
				}
				if i < 4 {
					offset |= uint32(delta[0]) << (8 * i)
				} else {
					length |= uint32(delta[0]) << (8 * (i - 4))
				}
				delta = delta[1:]
			}
			length = cmp.Or(length, 0x10000)
			end := uint64(offset) + uint64(length)
			if end > uint64(len(base)) {
				return nil, errPack
			}
			out = append(out, base[offset:end]...)
		}
		if uint64(len(out)) > size {
			return nil, errPack
		}
	}
	if uint64(len(out)) != size {
		return nil, errPack
	}
	return out, nil
}

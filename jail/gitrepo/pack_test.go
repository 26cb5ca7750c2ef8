package gitrepo

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// madeEntry is an entry of a pack that a test makes.
type madeEntry struct {
	name oid
	// code is the type, size the declared size.
	code byte
	size int
	// base goes before the deflated data.
	base, data []byte
}

// makePack writes a pack and its index to the objects of a git directory.
func makePack(t testing.TB, dir string, entries []madeEntry) {
	t.Helper()
	pack := []byte("PACK\x00\x00\x00\x02")
	pack = binary.BigEndian.AppendUint32(pack, uint32(len(entries)))
	type place struct {
		name oid
		at   int
	}
	var places []place
	for _, e := range entries {
		places = append(places, place{e.name, len(pack)})
		first, rest := e.code<<4|byte(e.size&15), e.size>>4
		for rest > 0 {
			pack = append(pack, first|0x80)
			first, rest = byte(rest&0x7f), rest>>7
		}
		pack = append(append(pack, first), e.base...)
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		w.Write(e.data)
		w.Close()
		pack = append(pack, z.Bytes()...)
	}
	sum := sha1.Sum(pack)
	pack = append(pack, sum[:]...)
	slices.SortFunc(places, func(a, b place) int { return bytes.Compare(a.name[:], b.name[:]) })
	index := []byte("\xfftOc\x00\x00\x00\x02")
	for i := range 256 {
		n := 0
		for _, p := range places {
			if int(p.name[0]) <= i {
				n++
			}
		}
		index = binary.BigEndian.AppendUint32(index, uint32(n))
	}
	for _, p := range places {
		index = append(index, p.name[:]...)
	}
	for range places {
		index = binary.BigEndian.AppendUint32(index, crc32.ChecksumIEEE(nil))
	}
	for _, p := range places {
		index = binary.BigEndian.AppendUint32(index, uint32(p.at))
	}
	index = append(index, sum[:]...)
	own := sha1.Sum(index)
	index = append(index, own[:]...)
	must(t, os.WriteFile(filepath.Join(dir, "objects/pack/pack-x.pack"), pack, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "objects/pack/pack-x.idx"), index, 0o600))
}

// Hostile packs are one sentence each, and take neither time nor memory. The control is a pack of
// the same maker that is read.
func TestHostilePacks(t *testing.T) {
	blob := object{blobKind, []byte("hello")}
	hello, err := blob.named()
	must(t, err)
	a, b := oid{0xaa, 1}, oid{0xbb, 2}
	// A delta that copies all of a base of five bytes.
	same := []byte{5, 5, 0x90, 5}
	chain := []madeEntry{{oid{0}, 3, 5, nil, []byte("hello")}}
	for i := 1; i < maxDeltas+3; i++ {
		base := oid{byte((i - 1) >> 8), byte(i - 1)}
		chain = append(chain,
			madeEntry{oid{byte(i >> 8), byte(i)}, nameDelta, len(same), base[:], same})
	}
	// 64 KiB a copy of two bytes each: a bomb of deltas.
	bomb := append(binary.AppendUvarint([]byte{5}, 1<<40), bytes.Repeat([]byte{0x90, 5}, 1000)...)
	for name, tc := range map[string]struct {
		entries []madeEntry
		load    oid
		want    string
	}{
		"control": {[]madeEntry{{hello, 3, 5, nil, []byte("hello")}}, hello, ""},
		"control of deltas": {[]madeEntry{{a, 3, 5, nil, []byte("hello")},
			{hello, nameDelta, len(same), a[:], same}}, hello, ""},
		"a loop": {[]madeEntry{{a, nameDelta, len(same), b[:], same},
			{b, nameDelta, len(same), a[:], same}}, a, "chain of deltas is too long"},
		"itself": {[]madeEntry{{a, nameDelta, len(same), a[:], same}}, a,
			"chain of deltas is too long"},
		"deep": {chain, oid{byte((maxDeltas + 2) >> 8), byte((maxDeltas + 2) & 0xff)},
			"chain of deltas is too long"},
		"no base": {[]madeEntry{{a, nameDelta, len(same), b[:], same}}, a,
			"base of its delta is missing"},
		"huge": {[]madeEntry{{a, 3, 1 << 40, nil, []byte("hello")}}, a, "more than 64 MiB"},
		"short": {[]madeEntry{{a, 3, 1 << 20, nil, []byte("hello")}}, a,
			"another size than it says"},
		"long": {[]madeEntry{{a, 3, 2, nil, []byte("hello")}}, a, "another size than it says"},
		"bomb": {[]madeEntry{{hello, 3, 5, nil, []byte("hello")},
			{a, nameDelta, len(bomb), hello[:], bomb}}, a, "more than 64 MiB"},
		"bad copy": {[]madeEntry{{hello, 3, 5, nil, []byte("hello")},
			{a, nameDelta, 4, hello[:], []byte{5, 9, 0x90, 9}}}, a, "damaged"},
		"before the pack": {
			[]madeEntry{{a, offsetDelta, len(same), []byte{0xff, 0xff, 0x7f}, same}}, a, "damaged"},
		"no type": {[]madeEntry{{a, 5, 5, nil, []byte("hello")}}, a, "damaged"},
		"another name": {[]madeEntry{{a, 3, 5, nil, []byte("hello")}}, a,
			"its content is that of object " + hello.String()},
	} {
		t.Run(name, func(t *testing.T) {
			files, _, shadow := sides(t, "mkdir -p .git/objects/pack")
			makePack(t, filepath.Join(shadow, ".git"), tc.entries)
			r, err := openRepository(t.Context(), files)
			must(t, err)
			defer r.Close()
			o, err := r.load(tc.load)
			if tc.want == "" && (err != nil || string(o.data) != "hello") ||
				tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %q, %v", o.data, err)
			}
			if r.inflated > 1<<20 {
				t.Errorf("%d bytes were inflated", r.inflated)
			}
		})
	}
}

// FuzzDelta: a delta of any bytes is applied or refused.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("hello"), []byte{5, 5, 0x90, 5})
	f.Add([]byte("hello"), []byte{5, 3, 3, 'a', 'b', 'c'})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		r := &repository{}
		out, err := r.applyDelta(base, delta)
		if err == nil && len(out) > maxObject {
			t.Error(fmt.Sprint(len(out)))
		}
	})
}

// FuzzCommit: a commit of any bytes is read or refused.
func FuzzCommit(f *testing.F) {
	f.Add([]byte("tree 0123456789012345678901234567890123456789\ncommitter x <x> 1 +0000\n\ntitle"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCommit(data)
		if err == nil && clean(c.title, maxTitle+1) != c.title {
			t.Errorf("the title is %q", c.title)
		}
		_, _ = parseConfig(string(data))
	})
}

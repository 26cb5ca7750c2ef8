package wasi

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// dataSection encodes active segments at the addresses.
func dataSection(at []int32, data [][]byte) []byte {
	out := binary.AppendUvarint(nil, uint64(len(at)))
	for i := range at {
		out = append(appendS32(append(out, 0, 0x41), at[i]), 0x0b)
		out = append(binary.AppendUvarint(out, uint64(len(data[i]))), data[i]...)
	}
	return out
}

// instantiated returns linear memory after the segments of a section, and how many there are.
func instantiated(t *testing.T, section []byte, size int) ([]byte, int) {
	t.Helper()
	memory, r := make([]byte, size), reader{b: section}
	count := int(r.u32())
	for range count {
		at, data, ok := r.segment()
		if !ok || at+uint64(len(data)) > uint64(size) {
			t.Fatalf("a segment of %d bytes at %d, %v", len(data), at, ok)
		}
		copy(memory[at:], data)
	}
	if len(r.b) > 0 {
		t.Fatalf("%d bytes behind the segments", len(r.b))
	}
	return memory, count
}

// joined returns the section of data that appendData makes of one.
func joined(t *testing.T, section []byte, numbered bool) []byte {
	t.Helper()
	r := reader{b: appendData(nil, section, numbered)}
	if id := r.u8(); id != 11 {
		t.Fatalf("section %d", id)
	}
	body := r.take(r.u32())
	if r.short || len(r.b) > 0 {
		t.Fatalf("a section of %d bytes, and %d behind it", len(body), len(r.b))
	}
	return body
}

// TestAppendData: however segments lie, in order, apart or over each other, fewer of them make the
// same memory.
func TestAppendData(t *testing.T) {
	const size = 1 << 16
	random := rand.New(rand.NewPCG(1, 2))
	fewer := 0
	for range 300 {
		var at []int32
		var data [][]byte
		next, most := random.IntN(1000), []int{16, 80, 400}[random.IntN(3)]
		for range manySegments + random.IntN(200) {
			if random.IntN(30) == 0 {
				next = random.IntN(size)
			}
			part := make([]byte, random.IntN(20))
			for i := range part {
				part[i] = byte(1 + random.IntN(255))
			}
			if next += random.IntN(most) - 8; next < 0 || next+len(part) > size {
				next = 0
			}
			at, data = append(at, int32(next)), append(data, part)
			next += len(part)
		}
		section := dataSection(at, data)
		want, before := instantiated(t, section, size)
		got, after := instantiated(t, joined(t, section, false), size)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d segments make another memory than the %d before: %v", after, before, at)
		}
		if after < before {
			fewer++
		}
		if same := joined(t, section, true); !bytes.Equal(same, section) {
			t.Fatal("segments that a module uses by their numbers were joined")
		}
	}
	if fewer < 50 {
		t.Errorf("control: fewer segments in %d of 300 sections", fewer)
	}
}

// TestAppendDataForms: what is no list of many active segments at constant addresses stays as it
// is.
func TestAppendDataForms(t *testing.T) {
	var at []int32
	for i := range manySegments {
		at = append(at, int32(-2000+10*i))
	}
	data := slices.Repeat([][]byte{[]byte("12345678")}, manySegments)
	many := dataSection(at, data)
	if got := joined(t, many, false); len(got) != 8+10*manySegments-2 ||
		!bytes.HasPrefix(got, []byte("\x01\x00\x41\xb0\x70\x0b\xfe\x0412345678\x00\x0012345678")) {
		t.Errorf("at 2000 bytes before the end of the addresses: %x", got)
	}
	for name, section := range map[string][]byte{
		"empty":                  nil,
		"few":                    dataSection(at[1:], data[1:]),
		"cut short":              many[:len(many)-1],
		"more behind":            append(slices.Clone(many), 0),
		"passive":                append([]byte{many[0], 1}, many[2:]...),
		"of another memory":      append([]byte{many[0], 2}, many[2:]...),
		"at a global":            append([]byte{many[0], 0, 0x23}, many[3:]...),
		"of a longer expression": append(append(slices.Clone(many[:5]), 0x41), many[6:]...),
	} {
		if got := joined(t, section, false); !bytes.Equal(got, section) {
			t.Errorf("%s: %x, want %x", name, got, section)
		}
	}
	for i := range at {
		at[i] = int32(1000 * i)
	}
	if apart := dataSection(append(at, 1<<20), append(data, nil)); !bytes.Equal(joined(t, apart, false),
		apart) {
		t.Error("segments that are all apart were joined")
	}
}

package linear

import (
	"errors"
	"strings"
	"testing"
)

// TestBounds tries pointers at and behind the end of memory, with sums that do not fit 32 bits.
func TestBounds(t *testing.T) {
	mem := make([]byte, 16)
	for _, c := range []struct {
		ptr, n uint64
		ok     bool
	}{
		{0, 0, true}, {0, 16, true}, {16, 0, true}, {12, 4, true}, {1 << 32, 4, true},
		{0, 17, false}, {16, 1, false}, {17, 0, false}, {13, 4, false},
		{0xffffffff, 4, false}, {4, 0xffffffff, false}, {0xffffffff, 0xffffffff, false},
	} {
		b, err := At(mem, c.ptr, c.n)
		if (err == nil) != c.ok || err != nil && !Has(err, BadPointer) {
			t.Errorf("%d bytes at %d: %v", c.n, c.ptr, err)
		}
		if err == nil && (len(b) != int(uint32(c.n)) || cap(b) != len(b)) {
			t.Errorf("%d bytes at %d: %d of %d", c.n, c.ptr, len(b), cap(b))
		}
	}
	if err := PutU32(mem, 13, 1); !Has(err, BadPointer) {
		t.Errorf("a number past the end: %v", err)
	}
	// Where its length has no room, nothing is written.
	if err := Put(mem, 0, 8, 14, []byte("text")); !Has(err, BadPointer) || mem[0] != 0 {
		t.Errorf("%v, %q", err, mem)
	}
	if err := Put(mem, 0, 2, 12, []byte("text")); err != nil || string(mem[:3]) != "te\x00" ||
		mem[12] != 4 {
		t.Errorf("%v, %q", err, mem)
	}
}

func TestText(t *testing.T) {
	mem := []byte("abcdef")
	text, err := Text(mem, 1, 3, "name", 3)
	mem[1] = 'x'
	if text != "bcd" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Text(mem, 0, 4, "name", 3); !Has(err, BadArgument) ||
		err.Error() != "the name has 4 bytes, more than 3" {
		t.Error(err)
	}
	if _, err := Text(mem, 4, 3, "name", 3); !Has(err, BadPointer) {
		t.Error(err)
	}
}

func TestLastError(t *testing.T) {
	var last LastError
	mem := make([]byte, 1000)
	long := Fail(TooMany, "%s", strings.Repeat("x", 600))
	if e := last.Keep(long, BadHandle); e != TooMany {
		t.Errorf("number %d", e)
	}
	if e := last.Keep(nil, BadHandle); e != Success {
		t.Errorf("number %d without an error", e)
	}
	if err := last.Put(mem, 0, 900, 996); err != nil {
		t.Fatal(err)
	}
	if n := int(mem[996]) | int(mem[997])<<8; n == 0 || n > MaxError+3 || mem[n] != 0 {
		t.Errorf("%d bytes: %q", n, mem)
	}
	if e := last.Keep(errors.New("other"), BadHandle); e != BadHandle {
		t.Errorf("number %d", e)
	}
}

package stdio

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
)

// ownIDs are those of this process.
func ownIDs() jail.IDs {
	return jail.IDs{Base: uint32(os.Geteuid()), GroupBase: uint32(os.Getegid()), User: true}
}

// What a tool wrote is counted and its run goes on to its end though nobody reads it; who reads
// later has all of it, up to the limit.
func TestPipesWithoutReader(t *testing.T) {
	const limit = 50 << 10
	for name, size := range map[string]int{"within the limit": limit, "beyond it": 60 << 10} {
		t.Run(name, func(t *testing.T) {
			var over int64
			p, err := New(ownIDs())
			if err != nil {
				t.Fatal(err)
			}
			reader, out := io.Pipe()
			p.Start(Streams{Out: out, Err: io.Discard}, limit, func(seen int64) {
				over = max(over, seen)
			}, func() { t.Error("nobody is gone") })
			text := strings.Repeat("0123456789abcdef", size/16)
			if _, err := io.WriteString(p.jail[1], text); err != nil { // a pipe holds it
				t.Fatal(err)
			}
			p.HandOver()
			p.Finish()
			if p.Seen() != int64(size) || p.Truncated() != (size > limit) ||
				(over > 0) != (size > limit) {
				t.Errorf("seen %d, truncated %v, over %d", p.Seen(), p.Truncated(), over)
			}
			go func() {
				p.Wait()
				out.Close()
			}()
			if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got,
				[]byte(text[:min(size, limit)])) {
				t.Errorf("%d bytes came, %v", len(got), err)
			}
		})
	}
}

// A caller that goes while the tool lives ends the run; one that goes afterwards changes nothing.
func TestPipesWhoseReaderGoes(t *testing.T) {
	for _, ended := range []bool{false, true} {
		gone := make(chan struct{}, 1)
		p, err := New(ownIDs())
		if err != nil {
			t.Fatal(err)
		}
		reader, out := io.Pipe()
		p.Start(Streams{Out: out, Err: io.Discard}, 1<<20, nil, func() { gone <- struct{}{} })
		if _, err := io.WriteString(p.jail[1], "text"); err != nil {
			t.Fatal(err)
		}
		if ended {
			p.HandOver()
			p.Finish()
		}
		reader.Close()
		if !ended {
			<-gone
			p.HandOver()
			p.Finish()
		}
		p.Wait()
		if len(gone) > 0 {
			t.Errorf("ended %v: told that the caller is gone", ended)
		}
	}
}

// A caller that goes before its input ended leaves the tool with no end of the input, until the
// tool has ended. Otherwise the tool would take a part for the whole.
func TestPipesWithPartOfInput(t *testing.T) {
	p, err := New(ownIDs())
	if err != nil {
		t.Fatal(err)
	}
	p.Start(Streams{In: io.MultiReader(strings.NewReader("part"),
		iotest.ErrReader(io.ErrUnexpectedEOF)), Out: io.Discard, Err: io.Discard}, 1<<10,
		func(int64) {}, func() {})
	buf := make([]byte, 8)
	if n, err := io.ReadFull(p.jail[0], buf[:4]); err != nil || string(buf[:n]) != "part" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	ready := []unix.PollFd{{Fd: int32(p.jail[0].Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 100); n != 0 || err != nil {
		t.Errorf("the input has an end: %+v, %v", ready, err)
	}
	input, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.jail[0].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	p.HandOver()
	p.Finish()
	p.Wait()
	if n, err := input.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

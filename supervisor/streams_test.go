package supervisor

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// What a tool wrote is counted and its run goes on to its end though nobody reads it; who reads later has all of it, up to the limit.
func TestPumpsWithoutReader(t *testing.T) {
	const limit = 50 << 10
	for name, size := range map[string]int{"within the limit": limit, "beyond it": 60 << 10} {
		t.Run(name, func(t *testing.T) {
			var over int64
			p, err := newPumps(limit, func(seen int64) { over = max(over, seen) }, func() { t.Error("nobody is gone") })
			if err != nil {
				t.Fatal(err)
			}
			reader, out := io.Pipe()
			p.start(Streams{Out: out, Err: io.Discard})
			text := strings.Repeat("0123456789abcdef", size/16)
			if _, err := io.WriteString(p.jail[1], text); err != nil { // a pipe holds it
				t.Fatal(err)
			}
			p.handOver()
			p.finish()
			if p.seen.Load() != int64(size) || p.truncated.Load() != (size > limit) || (over > 0) != (size > limit) {
				t.Errorf("seen %d, truncated %v, over %d", p.seen.Load(), p.truncated.Load(), over)
			}
			r := &run{pumps: p}
			go func() {
				r.given()
				out.Close()
			}()
			if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, []byte(text[:min(size, limit)])) {
				t.Errorf("%d bytes came, %v", len(got), err)
			}
		})
	}
}

// A caller that goes while the tool lives ends the run; one that goes afterwards changes nothing.
func TestPumpsWhoseReaderGoes(t *testing.T) {
	for _, ended := range []bool{false, true} {
		gone := make(chan struct{}, 1)
		p, err := newPumps(1<<20, nil, func() { gone <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		reader, out := io.Pipe()
		p.start(Streams{Out: out, Err: io.Discard})
		if _, err := io.WriteString(p.jail[1], "text"); err != nil {
			t.Fatal(err)
		}
		if ended {
			p.handOver()
			p.finish()
		}
		reader.Close()
		if !ended {
			<-gone
			p.handOver()
			p.finish()
		}
		(&run{pumps: p}).given()
		if len(gone) > 0 {
			t.Errorf("ended %v: told that the caller is gone", ended)
		}
	}
}

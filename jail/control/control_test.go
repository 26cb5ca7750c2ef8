package control_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/control"
)

type message struct {
	Text string `json:"text"`
}

// pair returns two ends, closed with the test.
func pair(t testing.TB) (*control.Conn, *control.Conn) {
	t.Helper()
	a, f, err := control.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	b := control.New(f)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// descriptors counts those that this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func TestMessages(t *testing.T) {
	a, b := pair(t)
	for _, text := range []string{"", "x", strings.Repeat("long ", 1<<18), "\x00ä\n"} {
		sent := make(chan error, 1)
		go func() { sent <- a.Send(message{text}) }()
		var got message
		files, err := b.Receive(&got)
		if err != nil || got.Text != text || len(files) != 0 {
			t.Errorf("%d bytes came as %d, with %d descriptors, %v", len(text), len(got.Text),
				len(files), err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
	a.Close()
	if _, err := b.Receive(&message{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the other end has closed: %v", err)
	}
}

func TestDescriptors(t *testing.T) {
	a, b := pair(t)
	before := descriptors(t)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("through"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Send(message{"x"}, f, f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	files, err := b.Receive(&message{})
	if err != nil || len(files) != 2 {
		t.Fatalf("%d descriptors, %v", len(files), err)
	}
	content, err := io.ReadAll(files[0])
	if err != nil || string(content) != "through" {
		t.Errorf("read %q, %v", content, err)
	}
	for _, f := range files {
		f.Close()
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// TestTooMuch: what cannot be received is not sent, and the connection is as good as before.
func TestTooMuch(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(message{strings.Repeat("x", control.MaxMessage)}); !errors.Is(err,
		control.ErrTooLarge) {
		t.Errorf("a message above the limit: %v", err)
	}
	many := make([]*os.File, 49)
	for i := range many {
		many[i] = os.Stdin
	}
	if err := a.Send(message{}, many...); err == nil {
		t.Error("more descriptors were sent than a message carries")
	}
	if err := a.Send(func() {}); err == nil {
		t.Error("a function was sent")
	}
	if err := a.Send(message{"still here"}); err != nil {
		t.Fatal(err)
	}
	var got message
	if _, err := b.Receive(&got); err != nil || got.Text != "still here" {
		t.Errorf("%+v, %v", got, err)
	}
}

// frame is a message's bytes.
func frame(size uint32, body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, size), body...)
}

// TestHostileFrames: whatever comes, it is an error, and no descriptor that came along stays open.
func TestHostileFrames(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"nothing":                {nil, io.EOF},
		"half a length":          {[]byte{0, 0}, io.ErrUnexpectedEOF},
		"a length alone":         {frame(5, ""), io.ErrUnexpectedEOF},
		"half a body":            {frame(5, "{}"), io.ErrUnexpectedEOF},
		"a length above the max": {frame(control.MaxMessage+1, "{}"), control.ErrTooLarge},
		"the largest length":     {frame(1<<32-1, "{}"), control.ErrTooLarge},
		"no JSON":                {frame(2, "{{"), nil},
		"an empty body":          {frame(0, ""), nil},
		"another type":           {frame(12, `{"text": [1]}`)[:16], nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			before := descriptors(t)
			if len(c.bytes) > 0 {
				if err := control.SendRaw(a, c.bytes, os.Stdin); err != nil {
					t.Fatal(err)
				}
			}
			a.Close()
			files, err := b.Receive(&message{})
			if err == nil || c.want != nil && !errors.Is(err, c.want) || files != nil {
				t.Errorf("%v, %v; want %v", files, err, c.want)
			}
			if n := descriptors(t); n != before-1 { // a is closed
				t.Errorf("%d descriptors, want %d", n, before-1)
			}
		})
	}
}

// FuzzReceive reads what a jail could send: never a panic, never more memory than was sent or the
// limit, and what is taken is what was sent.
func FuzzReceive(f *testing.F) {
	for _, seed := range [][]byte{nil, {0}, frame(2, "{}"), frame(12, `{"text":"x"}`),
		frame(1<<32-1, ""), frame(control.MaxMessage, "x"), append(frame(2, "{}"),
			frame(2, "{}")...)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<16 {
			// More than the socket holds without a reader.
			return
		}
		a, b := pair(t)
		if _, err := a.File().Write(in); err != nil {
			t.Fatal(err)
		}
		a.Close()
		rest := in
		for {
			var got json.RawMessage
			files, err := b.Receive(&got)
			if len(files) != 0 {
				t.Fatal("descriptors came from nowhere")
			}
			if err != nil {
				if errors.Is(err, io.EOF) && len(rest) != 0 {
					t.Fatalf("the end, with %d bytes left", len(rest))
				}
				return
			}
			size := binary.BigEndian.Uint32(rest)
			if !bytes.Equal(bytes.TrimSpace(rest[4:4+size]), got) {
				t.Fatalf("took %q of %q", got, rest)
			}
			rest = rest[4+size:]
		}
	})
}

// Who waits for no more loses nothing of what has come: a busy machine lets the reader wait for its
// turn long after the sender has gone.
func TestEndReceive(t *testing.T) {
	a, b := pair(t)
	if err := errors.Join(a.Send(message{"said"}), b.EndReceive()); err != nil {
		t.Fatal(err)
	}
	var got message
	if _, err := b.Receive(&got); err != nil || got.Text != "said" {
		t.Errorf("what was said is %q, %v", got.Text, err)
	}
	if _, err := b.Receive(&got); !errors.Is(err, io.EOF) {
		t.Errorf("after it: %v", err)
	}
	// One that waits already, for an end that is still open.
	c, d := pair(t)
	told := make(chan error)
	go func() {
		_, err := d.Receive(&message{})
		told <- err
	}()
	if err := d.EndReceive(); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, io.EOF) {
		t.Errorf("one that waits: %v", err)
	}
	c.Close()
}

// TestOrderWithManyFiles: an order may have more descriptors than one message carries, and one that
// comes with others than it says is refused.
func TestOrderWithManyFiles(t *testing.T) {
	files := make([]*os.File, 130)
	for i := range files {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	before := descriptors(t)
	for _, n := range []int{0, 1, 48, 49, 130} {
		a, b := pair(t)
		sent := make(chan error, 1)
		go func() { sent <- a.SendOrder(control.Order{RunDir: "x"}, files[:n]) }()
		o, got, err := b.ReceiveOrder()
		if err = errors.Join(err, <-sent); err != nil || o.RunDir != "x" || len(got) != n {
			t.Fatalf("%d descriptors: order %+v with %d, %v", n, o, len(got), err)
		}
		for i, f := range got {
			want, wantErr := files[i].Stat()
			info, err := f.Stat()
			if errors.Join(err, wantErr) != nil || !os.SameFile(info, want) {
				t.Errorf("descriptor %d of %d is another file", i, n)
			}
			f.Close()
		}
		a.Close()
		b.Close()
	}
	for name, send := range map[string]func(a *control.Conn) error{
		"none of two": func(a *control.Conn) error { return a.Send(control.Order{Files: 2}) },
		"two of one": func(a *control.Conn) error {
			return a.Send(control.Order{Files: 1}, files[:2]...)
		},
		"one of two, then none": func(a *control.Conn) error {
			return errors.Join(a.Send(control.Order{Files: 2}, files[0]), a.Send(control.More{}))
		},
	} {
		a, b := pair(t)
		if err := send(a); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if _, got, err := b.ReceiveOrder(); err == nil || errors.Is(err, io.EOF) || got != nil {
			t.Errorf("%s: %d descriptors, %v", name, len(got), err)
		}
		b.Close()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and %d were before", after, before)
	}
}

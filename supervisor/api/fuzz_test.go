package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// FuzzInput (T-508): whatever a client sends for standard input, the tool reads what its frames
// held, in order, and never more than the window lies in memory.
func FuzzInput(f *testing.F) {
	f.Add([]byte("i\x00\x00\x00\x01xe\x00\x00\x00\x00"))
	f.Add([]byte("i\x00\x00\x00\x02xyi\x00\x00\x00\x00"))
	f.Add([]byte("e\x00\x00\x00\x00i\x00\x00\x00\x01x"))
	f.Add([]byte(strings.Repeat("i\x00\x00\x00\x01x", 9)))
	f.Add([]byte("r\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want []byte
		for r, n := bufio.NewReader(bytes.NewReader(text)), 0; n < wire.InputWindow; n++ {
			kind, content, err := readFrame(r, nil, wire.MaxClientFrame)
			if err != nil || kind != wire.FrameInput || len(content) == 0 {
				break
			}
			want = append(want, content...)
		}
		var mu sync.Mutex
		in := newInput(frameWriter{&mu, io.Discard, wire.FrameCredit})
		// returns: nobody has to read meanwhile
		in.receive(bufio.NewReader(bytes.NewReader(text)))
		var end error
		if !in.whole.Load() {
			end = io.ErrUnexpectedEOF
		}
		if got, err := io.ReadAll(in); !errors.Is(err, end) || !bytes.Equal(got, want) {
			t.Errorf("the tool reads %q, %v, want %q, %v", got, err, want, end)
		}
	})
}

// FuzzBody (T-508): a body is the one JSON value that it is read as, or is refused as the caller's
// fault.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"tool":"ls","args":["a",{"base64":"/w=="}],"dir":"/w","limits":["memory=1MiB"]}`,
		`{"signal":9}`, `{"digest":"sha256:00","paths":["a"]}`,
		`{} {}`, `{"tool":"a","tool":"b"}`, `{"x":1}`, `[`, "", `{"signal":9999999999999999999}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, v := range []any{&message.Request{}, &shadows.CommitRequest{}, &KillRequest{}} {
			r, err := http.NewRequest("POST", "http://jail/", bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			err = readJSON(r, v)
			var e *problem.Error
			if err != nil && (!errors.As(err, &e) || e.Code != problem.Usage || e.Message == "") {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// FuzzStream is the client's side: whatever the daemon sends, the client returns, and writes out no
// byte that was in no frame of output.
func FuzzStream(f *testing.F) {
	f.Add([]byte("1\x00\x00\x00\x01x2\x00\x00\x00\x01yr\x00\x00\x00\x02{}"))
	f.Add([]byte("c\x00\x00\x00\x00c\x00\x00\x00\x00r\x00\x00\x00\x04null"))
	f.Add([]byte("i\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &runStream{credit: make(chan struct{}, wire.InputWindow)}
		var out, errOut bytes.Buffer
		_, err := s.receive(bufio.NewReader(bytes.NewReader(text)), &out, &errOut)
		if out.Len()+errOut.Len() > len(text) {
			t.Errorf("%d bytes became %d", len(text), out.Len()+errOut.Len())
		}
		if err == nil && !bytes.Contains(text, []byte{byte(wire.FrameResult)}) {
			t.Error("a run ended without a result")
		}
	})
}

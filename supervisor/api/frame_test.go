package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

func TestFramesComeBack(t *testing.T) {
	var conn bytes.Buffer
	var mu sync.Mutex
	texts := []string{"", "x", strings.Repeat("long", 50_000)}
	for _, text := range texts {
		if n, err := (frameWriter{&mu, &conn, wire.FrameOutput}).Write([]byte(text)); err != nil ||
			n != len(text) {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	r := bufio.NewReader(&conn)
	for _, text := range texts {
		kind, content, err := readFrame(r, nil, wire.MaxFrame)
		if err != nil || kind != wire.FrameOutput || string(content) != text {
			t.Fatalf("read %q of %d bytes, %v", kind, len(content), err)
		}
	}
	if _, _, err := readFrame(r, nil, wire.MaxFrame); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
}

// T-508: no frame is larger than what is kept of one.
func TestFramesAreBounded(t *testing.T) {
	var mu sync.Mutex
	if _, err := (frameWriter{&mu, io.Discard, wire.FrameInput}).Write(make([]byte,
		wire.MaxFrame+1)); err == nil {
		t.Error("wrote a frame that is too large")
	}
	head := binary.BigEndian.AppendUint32([]byte{byte(wire.FrameInput)}, wire.MaxFrame+1)
	if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(head)), nil, wire.MaxFrame); err == nil ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame that is too large: %v", err)
	}
}

// T-508: a client may not send more than it was given leave for, and its end is seen while the tool
// does not read.
func TestInputKeepsToItsWindow(t *testing.T) {
	var frames bytes.Buffer
	var mu sync.Mutex
	w := frameWriter{&mu, &frames, wire.FrameInput}
	for range wire.InputWindow + 1 {
		if _, err := w.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	in := newInput(frameWriter{&mu, io.Discard, wire.FrameCredit})
	// Returns at the frame too many, with nobody reading.
	in.receive(bufio.NewReader(&frames))
	text, err := io.ReadAll(in)
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(text) != wire.InputWindow {
		t.Fatalf("read %d bytes, %v; want %d", len(text), err, wire.InputWindow)
	}
}

// What a client may not send ends its run, and is told; a large frame before there is memory for
// it.
func TestClientFramesAreBounded(t *testing.T) {
	frame := func(kind FrameKind, size uint32, content string) string {
		return string(binary.BigEndian.AppendUint32([]byte{byte(kind)}, size)) + content
	}
	for sent, want := range map[string]string{
		frame(wire.FrameInput, wire.MaxClientFrame,
			strings.Repeat("x", wire.MaxClientFrame)) + frame(wire.FrameInputEnd, 0, ""): "",
		frame(wire.FrameInput, wire.MaxClientFrame+1, ""): "frame of 65537 bytes, at most " +
			"65536",
		frame(wire.FrameSize, wire.MaxFrame, ""): "frame of 16777216 bytes, at " +
			"most 65536",
		frame(wire.FrameInput, 0, ""):                                      `frame of kind 'i' with 0 bytes`,
		frame(wire.FrameResult, 2, "{}"):                                   `frame of kind 'r' with 2 bytes`,
		strings.Repeat(frame(wire.FrameInput, 1, "x"), wire.InputWindow+1): "more frames of input",
	} {
		srv := &Server{ending: t.Context()}
		theirs, ours := net.Pipe()
		go srv.carry(ours, bufio.NewReader(ours), func(ctx context.Context,
			s stdio.Streams) message.Result {
			// Nobody reads: the window is full.
			if want != "" {
				<-ctx.Done()
			} else if text, err := io.ReadAll(s.In); err != nil || len(text) != wire.MaxClientFrame {
				t.Errorf("%d bytes came, %v", len(text), err)
			}
			return message.Result{ID: "x"}
		})
		go io.WriteString(theirs, sent)
		res, err := (&runStream{conn: theirs, credit: make(chan struct{}, wire.InputWindow)}).receive(
			bufio.NewReader(theirs), io.Discard, io.Discard)
		theirs.Close()
		if err != nil || (res.Error == nil) != (want == "") || want != "" &&
			(res.ExitCode != problem.ExitUsage || !strings.Contains(res.Error.Message, want)) {
			t.Errorf("%.20q of %d bytes: %+v, %v, %v; want %q", sent, len(sent), res, res.Error,
				err, want)
		}
	}
}

func TestInputEndsWithTheRun(t *testing.T) {
	var mu sync.Mutex
	in := newInput(frameWriter{&mu, io.Discard, wire.FrameCredit})
	in.stop()
	if n, err := in.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("read %d, %v", n, err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("i\x00\x00\x00\x01x"))
	f.Add([]byte("r\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		for {
			_, content, err := readFrame(r, nil, wire.MaxFrame)
			if err != nil {
				return
			}
			if len(content) > len(text) {
				t.Fatal("a frame of more bytes than there were")
			}
		}
	})
}

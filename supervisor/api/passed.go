package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// Agents run for hours, and each event crosses their standard streams several times. So their
// clients may ask for the daemon's ends of the input and output pipes, which saves waking the
// daemon for each message. Only these ends leave the daemon, and no descriptor of the client's
// enters the jail.

// passes reports whether the pipes of a request may be passed to the client. They may for an agent,
// whose output is messages of jail's own that no limit counts.
func passes(req any) bool {
	r, ok := req.(*message.Request)
	return ok && r.Agent != nil
}

// messageWriter is a connection that can send descriptors, such as *net.UnixConn.
type messageWriter interface {
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
}

// pass sends the two descriptors with a frame of kind FramePassed. The caller keeps its files.
func (p *parting) pass(in, out *os.File) error {
	to, ok := p.Conn.(messageWriter)
	if !ok {
		return fmt.Errorf("connection %T takes no descriptors", p.Conn)
	}
	frame := binary.BigEndian.AppendUint32([]byte{wire.FramePassed}, 0)
	_, err := p.write(func() (int, error) {
		n, _, err := to.WriteMsgUnix(frame, syscall.UnixRights(int(in.Fd()), int(out.Fd())), nil)
		if err == nil && n < len(frame) {
			err = io.ErrShortWrite
		}
		return n, err
	})
	return err
}

// A passedReader reads from a connection and keeps the descriptors that come with what it reads.
type passedReader struct {
	*net.UnixConn
	files []*os.File
}

// Read reads from the connection. It fails if more than passedFiles descriptors arrive.
func (r *passedReader) Read(p []byte) (int, error) {
	oob := make([]byte, syscall.CmsgSpace(4*passedFiles))
	n, oobn, flags, _, err := r.ReadMsgUnix(p, oob)
	if err != nil || oobn == 0 {
		// n is -1 with an error, which no reader may return.
		return max(n, 0), err
	}
	all, err := syscall.ParseSocketControlMessage(oob[:oobn])
	for i := range all {
		fds, e := syscall.ParseUnixRights(&all[i])
		for _, fd := range fds {
			// A blocking descriptor would block a thread.
			err = errors.Join(err, syscall.SetNonblock(fd, true))
			r.files = append(r.files, os.NewFile(uintptr(fd), "passed"))
		}
		err = errors.Join(err, e)
	}
	if flags&syscall.MSG_CTRUNC != 0 || len(r.files) > passedFiles {
		err = errors.Join(err, errors.New("the daemon sent more descriptors than it may"))
	}
	return n, err
}

// passedFiles is the number of passed descriptors: standard input and output.
const passedFiles = 2

func (r *passedReader) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// RunPassed is Run for an agent. Its input and output use the passed pipes if the daemon passes
// them, else frames.
func RunPassed(ctx context.Context, c *Client, req message.Request, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	return c.link.streamed(ctx, PathRuns+"?"+wire.Passed, req, in, out, errOut, nil)
}

// carried copies the streams of one run through the passed pipes.
type carried struct {
	files *passedReader
	work  sync.WaitGroup
}

// begin starts to copy in and out through the two passed pipes.
func (c *carried) begin(in io.Reader, out io.Writer) error {
	if c.files == nil || len(c.files.files) != passedFiles {
		return errors.New("the daemon has not passed two pipes")
	}
	to, from := c.files.files[0], c.files.files[1]
	go func() {
		// The tool need not read. The struct hides ReadFrom, which would check whether in is a
		// file.
		_, _ = io.Copy(struct{ io.Writer }{to}, in)
		to.Close()
	}()
	c.work.Go(func() { _, _ = io.Copy(out, struct{ io.Reader }{from}) })
	return nil
}

// end waits until the rest of the output is copied, after the run has ended.
func (c *carried) end() { c.work.Wait() }

// close closes the pipes and waits for the copying to end.
func (c *carried) close() {
	if c.files != nil {
		c.files.close()
	}
	c.work.Wait()
}

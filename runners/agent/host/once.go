package host

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/runners/agent"
)

// outputPart is how many bytes of output go into one report.
const outputPart = 32 << 10

// callOnce makes a call of a program that runs once. Its parent named its bindings, so jail-agentd
// answers calls of any name. Of the agents' own bindings it may have only AI, if that is in
// Options.Bindings.
func (h *Host) callOnce(binding, name string, params []byte) *Answer {
	known := slices.Contains(agent.Bindings, binding)
	if known && (binding != agent.AI || !slices.Contains(h.o.Bindings, agent.AI)) ||
		len(binding) > agent.MaxName || len(name) > agent.MaxName {
		return answerOf(nil, agent.Errorf(agent.ErrNoBinding, "there is no binding %s: env of "+
			"load names those that there are", printable(binding)))
	}
	params, err := bounded(params, agent.MaxParams)
	if err != nil {
		return answerOf(nil, err)
	}
	return h.forward(binding, name, params, binding == agent.AI && forwarded[agent.AI][name])
}

// Output returns files for the standard output and standard error of a program that runs once. All
// that is written to them is reported to jail-agentd. done closes both and returns after the rest
// is reported.
func (h *Host) Output() (out, errOut *os.File, done func(), err error) {
	var files []*os.File
	var work sync.WaitGroup
	done = func() {
		for _, f := range files {
			f.Close()
		}
		work.Wait()
	}
	for _, isErr := range []bool{false, true} {
		from, to, err := pair()
		if err != nil {
			done()
			return nil, nil, nil, err
		}
		files = append(files, to)
		work.Go(func() {
			defer from.Close()
			h.carry(from, isErr)
		})
	}
	return files[0], files[1], done, nil
}

// carry reads from until its end and reports the data as output, on standard error if isErr.
func (h *Host) carry(from io.Reader, isErr bool) {
	part := make([]byte, outputPart)
	for {
		n, err := from.Read(part)
		if n > 0 {
			h.report(agent.Report{Output: &agent.Output{Err: isErr, Data: part[:n]}})
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				// Output would be lost: fail instead.
				h.o.Exit(1)
			}
			return
		}
	}
}

// pair returns the two ends of a Unix socket pair.
func pair() (*os.File, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|
		syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent"), nil
}

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

// outputPart is the maximum number of bytes in one Output report.
const outputPart = 32 << 10

// callOnce makes a call of a program that runs once. Beside the models, if the policy grants them,
// its bindings have the names that its parent gave them: jail-agentd knows those, and answers.
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

// Output returns the standard output and standard error of a program that runs once. What is written
// to them is reported, all of it when done returns, which closes them.
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

// carry reports what comes from a file until its end.
func (h *Host) carry(from io.Reader, isErr bool) {
	part := make([]byte, outputPart)
	for {
		n, err := from.Read(part)
		if n > 0 {
			h.report(agent.Report{Output: &agent.Output{Err: isErr, Data: part[:n]}})
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				// Output must not get lost silently.
				h.o.Exit(1)
			}
			return
		}
	}
}

// pair returns two files that are the ends of one stream.
func pair() (*os.File, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|
		syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent"), nil
}

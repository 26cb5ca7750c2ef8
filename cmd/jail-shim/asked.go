package main

import (
	"errors"
	"os"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/runc"
)

// request is a request of jaild to a prewarmed or running jail.
type request struct {
	control.Ask
	files []*os.File
}

func (r request) close() { control.CloseAll(r.files) }

// standing is a jail whose jail-init waits for its invocation.
type standing struct {
	jail  *runc.Jail
	order control.Order
}

// answer serves requests until the jail ends. It runs on the thread in whose mount namespace the
// mounts of the jail were made.
func answer(conn *control.Conn, s *standing, asked <-chan request,
	ended chan struct{}) (exited control.Exited, err error) {
	go func() {
		defer close(ended)
		exited, err = s.jail.Wait()
	}()
	for {
		select {
		case ask := <-asked:
			if err := s.do(conn, ask); err != nil {
				// The connection to jaild is broken.
				_ = s.jail.Kill()
			}
			ask.close()
		case <-ended:
			return exited, err
		}
	}
}

func (s *standing) do(conn *control.Conn, ask request) error {
	switch {
	case ask.Attach != nil:
		return s.attach(conn, ask.files)
	case ask.Share != nil:
		return handOut(conn, s.jail, ask.Share.Target)
	case ask.Refresh:
		return sendDone(conn, s.jail.RefreshShadow())
	}
	return sendDone(conn, nil)
}

// sendDone sends a Done with the error of a request, if any.
func sendDone(conn *control.Conn, err error) error {
	done := control.Done{}
	if err != nil {
		done.Error = err.Error()
	}
	return conn.Send(control.FromShim{Done: &done})
}

// attach mounts the workspace of the jail. It kills a jail that cannot get its workspace.
func (s *standing) attach(conn *control.Conn, files []*os.File) error {
	err := errors.New("no two layers came with it, and no state of an agent")
	if agent := s.order.Plan.HostsAgent(); len(files) == 1 && agent {
		err = s.jail.Attach(s.order, files[0], nil, nil)
	} else if len(files) >= 2 && !agent {
		err = s.jail.Attach(s.order, files[0], files[1], files[2:])
	}
	sent := sendDone(conn, err)
	if err != nil {
		return errors.Join(sent, s.jail.Kill())
	}
	return sent
}

func handOut(conn *control.Conn, jail *runc.Jail, target string) error {
	mount, err := jail.Share(target)
	if err != nil {
		return conn.Send(control.FromShim{Shared: &control.Shared{Error: err.Error()}})
	}
	defer mount.Close()
	return conn.Send(control.FromShim{Shared: &control.Shared{}}, mount)
}

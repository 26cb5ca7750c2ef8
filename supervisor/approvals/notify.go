package approvals

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/supervisor/caller"
)

const (
	// notifyTime bounds one notification.
	notifyTime = 10 * time.Second
	// maxNotified bounds the concurrent notifications of one user, and maxNotifiedAll those of all
	// users together. Further actions are not notified.
	maxNotified    = 4
	maxNotifiedAll = 32
)

// A Notifier starts a program of the operator for each new pending action. Its methods may be
// called concurrently.
type Notifier struct {
	// Words are the program and its arguments.
	Words []string
	// Background calls a function in the background.
	Background func(func())
	// Ended is called with the result of each program, nil for success.
	Ended func(error)

	mu sync.Mutex
	// own counts the running programs of each user, and all those of all users.
	own map[uint32]int
	all int
}

// Notify starts the program for an action and does not wait for it.
func (n *Notifier) Notify(a Action) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.own[a.UID] >= maxNotified || n.all >= maxNotifiedAll {
		return
	}
	if n.own == nil {
		n.own = map[uint32]int{}
	}
	n.own[a.UID]++
	n.all++
	n.Background(func() {
		n.Ended(n.run(a))
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all--
		if n.own[a.UID]--; n.own[a.UID] == 0 {
			delete(n.own, a.UID)
		}
	})
}

// run runs the program as the owner of the action, with the action as JSON on standard input, in a
// new session. Its environment has only PATH and HOME, and nothing of the daemon's. After
// notifyTime its process group is killed.
func (n *Notifier) run(a Action) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	owner, known := caller.Of(a.UID)
	cmd := exec.Command(n.Words[0], n.Words[1:]...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = "/", bytes.NewReader(append(text, '\n')), time.Second
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + asuser.Home(a.UID)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A rootless daemon already runs as the owner.
	if rootless.User() == nil {
		if !known {
			return fmt.Errorf("notify: this host does not know the user %d", a.UID)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.UID, Gid: owner.GID,
			Groups: owner.Groups}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	timer := time.AfterFunc(notifyTime, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err = cmd.Wait()
	if !timer.Stop() {
		err = fmt.Errorf("no end within %s", notifyTime)
	}
	if err != nil {
		return fmt.Errorf("notify for user %d: %w", a.UID, err)
	}
	return nil
}

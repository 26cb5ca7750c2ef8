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
	// maxNotified bounds the notifications of one user at one time, and maxNotifiedAll those of all
	// users. An action beyond that is only in the list.
	maxNotified    = 4
	maxNotifiedAll = 32
)

// A Notifier starts a program of the operator's for each action that begins to wait. Its methods may
// be called from several goroutines.
type Notifier struct {
	// Words are the program and its arguments.
	Words []string
	// Background calls a function in the background.
	Background func(func())
	// Ended gets what became of each start, nil for success.
	Ended func(error)

	mu sync.Mutex
	// own counts those of each user, and all those of all.
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

// run runs the program as the owner of the action, in a session and a process group of its own, with
// nothing of the daemon's environment. The group is killed when its time is over.
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
	// The daemon of an ordinary user has no other rights than the owner.
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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"time"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor"
)

// probeTime is how long the attempts of a user's jaild may take.
const probeTime = 30 * time.Second

// probed asks what a run needs of the host. For an ordinary user it is the user's own jaild that tries, by the way that it goes for each run; where
// it does not get so far, what can be tried here says why.
func (a *app) probed(ctx context.Context) []probe.Finding {
	here := probe.All(existing(a.config.StateDir))
	if os.Geteuid() == 0 {
		return here
	}
	for _, f := range here {
		if f.Answer == probe.No && f.Name != probe.RoomName { // which is no layer
			return here
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, supervisor.Jaild(a.exe), "--probe")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var inside []probe.Finding
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &inside)
	}
	if err != nil {
		return append(here, probe.Finding{Name: "jaild as a user", Answer: probe.No, Detail: cause(err).Error() + ": " + string(bytes.TrimSpace(errOut.Bytes())),
			Fix: "start jaild as this user, and see what it says"})
	}
	return inside
}

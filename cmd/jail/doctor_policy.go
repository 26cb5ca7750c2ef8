package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// policyFiles asks the daemon, where there is one, whether the policy files on the disk are those in force, and reads them anew where there is none.
func (a *app) policyFiles(ctx context.Context) probe.Finding {
	f := probe.Finding{Name: "policy files", Answer: probe.Yes}
	if c, err := api.Dial(ctx, a.config.Socket); err == nil {
		defer c.Close()
		if status, err := c.Policy(ctx); err == nil {
			if status.Error != "" {
				return brokenPolicy(fmt.Sprintf("what is on the disk is not all in force (%d refused since the start): %s", status.Failures, status.Error))
			}
			f.Detail = "the shipped profiles; there are no others"
			if status.Digest != "" {
				f.Detail = fmt.Sprintf("in force since %s, %s", status.Loaded.Format("2006-01-02 15:04:05"), status.Digest)
			}
			return f
		}
	}
	source, err := profiles.Open(profiles.Options{Dir: a.config.Profiles, Ceiling: a.config.Ceiling})
	if err == nil {
		err = source.Status().Err
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return probe.Finding{Name: f.Name, Answer: probe.Unknown, Detail: err.Error(), Fix: "run jail doctor as root"}
	case err != nil:
		return brokenPolicy(err.Error())
	}
	if f.Detail = "the shipped profiles; there are no others"; source.Status().Digest != "" {
		f.Detail = strings.TrimSpace(source.Status().Digest)
	}
	return f
}

func brokenPolicy(why string) probe.Finding {
	return probe.Finding{Name: "policy files", Answer: probe.No, Detail: why, Fix: "jail policy check says what is wrong, and where"}
}

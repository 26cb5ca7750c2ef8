// Package gitview starts the readers of repositories that tools wrote, each with an id of its own.
package gitview

import (
	"context"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/gitreader"
	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/supervisor/idrange"
)

// A Host starts the readers of a daemon. Its methods may be called from several goroutines.
type Host struct {
	Launcher launch.Launcher
	// Exe is the program that becomes a reader.
	Exe string

	// filter is the system call filter of readers.
	filter launch.FilterOnce
}

// spec returns what a reader is started with, and a function that gives back its id.
func (h *Host) spec(ctx context.Context) (gitreader.Spec, func(), error) {
	filter, err := h.filter.Get(ctx, h.Launcher, confine.ReaderFilter())
	if err != nil {
		return gitreader.Spec{}, nil, err
	}
	ids, err := idrange.Take()
	if err != nil {
		return gitreader.Spec{}, nil, err
	}
	return gitreader.Spec{Exe: h.Exe, UID: ids.Base, Filter: filter}, ids.Release, nil
}

// Explain returns what changed in a repository.
func (h *Host) Explain(ctx context.Context, files gitrepo.Files) (gitrepo.Report, error) {
	spec, release, err := h.spec(ctx)
	if err != nil {
		return gitrepo.Report{}, err
	}
	defer release()
	return spec.Explain(ctx, files)
}

// Take finds what a branch of a shadow needs.
func (h *Host) Take(ctx context.Context, files gitrepo.Files, want gitrepo.Want) (gitrepo.Taken,
	error) {
	spec, release, err := h.spec(ctx)
	if err != nil {
		return gitrepo.Taken{}, err
	}
	defer release()
	return spec.Take(ctx, files, want)
}

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

// with returns what f returns, which starts a reader. The reader's id is given back after that.
func with[T any](ctx context.Context, h *Host, f func(gitreader.Spec) (T, error)) (out T, err error) {
	filter, err := h.filter.Get(ctx, h.Launcher, confine.ReaderFilter())
	if err != nil {
		return out, err
	}
	ids, err := idrange.Take()
	if err != nil {
		return out, err
	}
	defer ids.Release()
	return f(gitreader.Spec{Exe: h.Exe, UID: ids.Base, Filter: filter})
}

// Explain returns what changed in a repository.
func (h *Host) Explain(ctx context.Context, files gitrepo.Files) (gitrepo.Report, error) {
	return with(ctx, h, func(s gitreader.Spec) (gitrepo.Report, error) {
		return s.Explain(ctx, files)
	})
}

// Take finds what a branch of a shadow needs.
func (h *Host) Take(ctx context.Context, files gitrepo.Files, want gitrepo.Want) (gitrepo.Taken,
	error) {
	return with(ctx, h, func(s gitreader.Spec) (gitrepo.Taken, error) {
		return s.Take(ctx, files, want)
	})
}

// Package gitview reads git repositories that tools wrote. Each read runs in a confined process
// with a user id of its own.
package gitview

import (
	"context"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/gitreader"
	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/supervisor/idrange"
)

// A Host starts reader processes. Its methods may be called from several goroutines.
type Host struct {
	Launcher launch.Launcher
	// Exe is the executable of a reader.
	Exe string

	// filter is the seccomp filter of readers.
	filter launch.FilterOnce
}

// with calls f with the Spec of a reader that has a user id of its own, and returns f's results.
// The user id is released when f returns.
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

// Explain returns a report of the changes in a repository.
func (h *Host) Explain(ctx context.Context, files gitrepo.Files) (gitrepo.Report, error) {
	return with(ctx, h, func(s gitreader.Spec) (gitrepo.Report, error) {
		return s.Explain(ctx, files)
	})
}

// Take finds the git objects and refs that a commit of the branch or tag want needs.
func (h *Host) Take(ctx context.Context, files gitrepo.Files, want gitrepo.Want) (gitrepo.Taken,
	error) {
	return with(ctx, h, func(s gitreader.Spec) (gitrepo.Taken, error) {
		return s.Take(ctx, files, want)
	})
}

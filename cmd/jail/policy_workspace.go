package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor"
)

// workspaceSource is what the directory's own policy file says, which a run over it meets too; nil where there is none, or no workspace.
func (a *app) workspaceSource(set *profiles.Set, p policy.Policy) (*meaning.Source, error) {
	if p.Workspace.Access == policy.WorkspaceNone {
		return nil, nil
	}
	dir, err := os.Open(".")
	if err != nil {
		return nil, failed(err, "", "%v", cause(err))
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return nil, failed(err, "", "%v", cause(err))
	}
	text, err := profiles.ReadWorkspace(dir, supervisor.WorkspaceFile, uint32(os.Geteuid()), info.Sys().(*syscall.Stat_t).Uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	path := filepath.Join(a.places().Workspace, supervisor.WorkspaceFile)
	if err != nil {
		return nil, usage("a run over this directory is refused until it is mended or taken away", "%s: %v", path, cause(err))
	}
	file, err := set.Parse(syntax.Request, path, text)
	if err != nil {
		return nil, usage("a run over this directory is refused until it is mended or taken away", "%v", err)
	}
	return &meaning.Source{Layer: file.Layer(supervisor.WorkspaceLayer, path), File: &file}, nil
}

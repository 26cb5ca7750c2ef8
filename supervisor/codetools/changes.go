package codetools

import (
	"context"
	"fmt"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// A DiffInput says which changes to show.
type DiffInput struct {
	Paths []string `json:"paths,omitempty" jsonschema:"only changes at and below these, or that match these patterns"`
	Stat  bool     `json:"stat,omitempty" jsonschema:"only the list of paths"`
}

// A DiffOutput is how the shadow of a session differs from the real directory.
type DiffOutput struct {
	Added     int    `json:"added"`
	Modified  int    `json:"modified"`
	Deleted   int    `json:"deleted"`
	Digest    string `json:"digest"`
	Text      string `json:"text"`
	Truncated bool   `json:"truncated" jsonschema:"there is more text"`
}

// Changes returns how the shadow of a session differs from the real directory.
func Changes(ctx context.Context, s *toolsession.Session, in DiffInput) (o DiffOutput, err error) {
	list := stdio.Kept{Most: toolsession.MaxShown}
	patch := stdio.Kept{Most: toolsession.MaxShown}
	kind := api.PatchPlain
	if in.Stat {
		kind = ""
	}
	for l, err := range s.Client().Changes(ctx, s.ID(), kind, in.Paths...) {
		switch {
		case err != nil:
			return o, err
		case l.Change != nil && !l.Change.Folds():
			line := fmt.Sprintf("%s %s", l.Change.Kind, l.Change.Path)
			if why := l.Change.Conflict; why != "" {
				line += ": conflict: " + why
			} else if l.Change.Protected != "" {
				line += ": held back: " + l.Change.Protected
			}
			fmt.Fprintln(&list, line)
		case l.Patch != nil:
			patch.Write(l.Patch)
		case l.Summary != nil:
			o.Added, o.Modified, o.Deleted = l.Summary.Added, l.Summary.Modified, l.Summary.Deleted
			o.Digest = l.Summary.Digest
			for _, g := range l.Summary.Git {
				for _, what := range g.Lines {
					fmt.Fprintln(&list, "git: "+what)
				}
			}
		}
	}
	o.Text = list.String()
	if patch.Len() > 0 {
		o.Text += "\n" + patch.String()
	}
	o.Truncated = list.Cut || patch.Cut
	return o, nil
}

package console

import (
	"net/http"
	"slices"

	"github.com/jail-sandbox/jail/jail/workspace"
)

// maxBeside bounds the changes of one shadow that are compared with those of its branches.
const maxBeside = 2000

// A family is the body of the page that compares a shadow with its branches.
type family struct {
	// Of is the shadow that the branches were forked from.
	Of      string
	Members []member
	Rows    []row
	// Skipped says that some changes are not listed.
	Skipped bool
}

// A member is a shadow in one column of the page.
type member struct {
	ID     string
	Parent bool
	Merged int
}

// A row is one path, with the change that each member made to it.
type row struct {
	Path  string
	Cells []cell
}

// A cell is a change as text, with a CSS class. Equal texts in a row mean equal changes.
type cell struct{ Text, Class string }

// branches answers with the page that compares the changes of a shadow and its branches.
func (c *Console) branches(r *http.Request, s *session) (answer, error) {
	all, err := c.Daemon.Workspaces(r.Context())
	if err != nil {
		return answer{}, err
	}
	f := family{Of: r.PathValue("id")}
	for _, i := range all {
		if (i.ID == f.Of || i.GlobalID == f.Of) && i.Parent != "" {
			f.Of = i.Parent
			break
		}
	}
	var changes [][]workspace.Change
	for _, i := range all {
		parent := i.ID == f.Of || i.GlobalID == f.Of
		if !parent && i.Parent != f.Of {
			continue
		}
		m := member{ID: i.ID, Parent: parent}
		for _, merge := range i.Merges {
			if merge.Reverted.IsZero() {
				m.Merged += merge.Paths
			}
		}
		list, cut, err := c.changesOf(r, i.ID)
		if err != nil {
			return answer{}, err
		}
		f.Skipped = f.Skipped || cut
		at := len(f.Members)
		if parent {
			at = 0
		}
		f.Members = slices.Insert(f.Members, at, m)
		changes = slices.Insert(changes, at, list)
	}
	rows := workspace.Beside(changes)
	f.Skipped = f.Skipped || len(rows) > maxBeside
	for _, x := range rows[:min(len(rows), maxBeside)] {
		line := row{Path: path(x.Path)}
		for _, change := range x.Cells {
			line.Cells = append(line.Cells, cellOf(change))
		}
		f.Rows = append(f.Rows, line)
	}
	return answer{http.StatusOK, "branches.html",
		s.page("Branches of "+text(f.Of), "runs", &f)}, nil
}

// changesOf returns the changes of a shadow, at most maxBeside. cut is true if there are more.
func (c *Console) changesOf(r *http.Request, id string) (list []workspace.Change, cut bool,
	err error) {
	for l, err := range c.Daemon.Changes(r.Context(), id, "") {
		switch {
		case err != nil:
			return nil, false, err
		case l.Change == nil:
		case len(list) == maxBeside:
			return list, true, nil
		default:
			list = append(list, l.Change.Change)
		}
	}
	return list, false, nil
}

func cellOf(c *workspace.Change) cell {
	if c == nil {
		return cell{"", "dim"}
	}
	t := kindWord(c.Kind)
	if c.After != nil && c.After.SHA256 != "" {
		t += " " + c.After.SHA256[:min(len(c.After.SHA256), 7)]
	}
	return cell{t, kindClass(c.Kind)}
}

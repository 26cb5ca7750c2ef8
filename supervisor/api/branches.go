package api

import (
	"context"
	"net/url"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func (srv *Server) fork(q call, req message.ForkRequest) (any, error) {
	id, done, err := srv.s.Names().Take(q.caller, req.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return srv.s.Sessions().Branches().Fork(q.Context(), q.caller, q.id, id, req.Session)
}

// compare compares two branches.
func (srv *Server) compare(q call) (any, error) {
	text := q.URL.Query().Get("with")
	if text == "" {
		return nil, problem.New(problem.Usage, "with: no other shadow is named")
	}
	other, err := srv.s.Names().Named(q.caller, text)
	if err != nil {
		return nil, err
	}
	return shadows.BranchesOf(srv.s.Workspaces()).Compare(q.Context(), q.caller, q.id, other)
}

// Branches has the requests of a client about branches of shadows.
type Branches struct{ link *link }

// BranchesOf returns the client's requests about branches.
func BranchesOf(c *Client) Branches { return Branches{&c.link} }

// Fork makes a branch of the shadow of session or run parent.
func (b Branches) Fork(ctx context.Context, parent string,
	req message.ForkRequest) (made shadows.BranchInfo, err error) {
	return made, b.link.do(ctx, "POST", item(pathSessions, parent)+"/fork", req, &made)
}

// List returns the branches that the caller may see.
func (b Branches) List(ctx context.Context) (all []shadows.BranchInfo, err error) {
	return all, b.link.do(ctx, "GET", pathBranches, nil, &all)
}

// Compare compares two shadows of one directory.
func (b Branches) Compare(ctx context.Context, id, with string) (r shadows.Comparison, err error) {
	return r, b.link.do(ctx, "GET", item(pathBranches, id)+"/diff?with="+url.QueryEscape(with), nil, &r)
}

// PreviewMerge returns the changes that a merge of a branch would make to its parent.
func (b Branches) PreviewMerge(ctx context.Context, id string) (p workspace.MergePreview, err error) {
	return p, b.link.do(ctx, "POST", item(pathBranches, id)+"/preview", nil, &p)
}

// Merge applies the changes of a branch to the shadow that it was forked from.
func (b Branches) Merge(ctx context.Context, id string,
	req shadows.MergeRequest) (r workspace.Result, err error) {
	return r, b.link.do(ctx, "POST", item(pathBranches, id)+"/merge", req, &r)
}

// RevertMerge undoes the last merge of a branch.
func (b Branches) RevertMerge(ctx context.Context, id string) (r workspace.MergeRecord, err error) {
	return r, b.link.do(ctx, "POST", item(pathBranches, id)+"/revert", nil, &r)
}

// Discard ends the session of a branch and deletes its shadow.
func (b Branches) Discard(ctx context.Context, id string) error {
	return b.link.do(ctx, "DELETE", item(pathBranches, id), nil, &struct{}{})
}

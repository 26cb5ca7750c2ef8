package jailed

import (
	"context"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// conversationMark separates the name of an instance and of a conversation in a session id. Names
// of instances have no such capital letter.
const conversationMark = ".C-"

// maxConversations is how many sessions of conversations one instance may have.
const maxConversations = 16

// sessionOf returns the id of the session of a conversation or, if it is empty, of the instance.
func sessionOf(instance, conversation string) string {
	if conversation == "" {
		return instance
	}
	return instance + conversationMark + conversation
}

// conversations returns the ids of the sessions of an instance's conversations.
func conversations(ctx context.Context, c *client.Client, instance string) (all []string, err error) {
	sessions, err := c.Sessions(ctx)
	for _, s := range sessions {
		if strings.HasPrefix(s.ID, instance+conversationMark) {
			all = append(all, s.ID)
		}
	}
	return all, err
}

// converse sets the ID of req for a conversation. It returns an error if the instance already has
// maxConversations others.
func converse(ctx context.Context, c *client.Client, req *message.SessionRequest, instance,
	conversation string) error {
	req.ID = sessionOf(instance, conversation)
	all, err := conversations(ctx, c, instance)
	if err == nil && len(all) >= maxConversations && !slices.Contains(all, req.ID) {
		err = problem.New(problem.Refused, "%d conversations of the agent have changes already",
			len(all)).WithHint("discardChanges ends one")
	}
	return err
}

// withdraw withdraws the pending commits of a session whose ids are in asked.
func withdraw(ctx context.Context, c *client.Client, session string, asked []string) error {
	all, err := c.Approvals().List(ctx, false)
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.Type != policy.ActionCommit || a.Run != session || a.State != approvals.Pending ||
			!slices.Contains(asked, a.ID) {
			continue
		}
		if _, err := c.Approvals().Withdraw(ctx, a.ID); over(err) != nil {
			return err
		}
	}
	return nil
}

// Propose puts a commit of the tools' changes in a conversation into the approval queue. It
// replaces a waiting commit of the same conversation.
func (j *Jaild) Propose(ctx context.Context, of agents.Changes) (p agents.Proposed, err error) {
	return p, j.ask(ctx, func(c *client.Client) error {
		session := sessionOf(of.Launch.Instance, of.Conversation)
		if err := withdraw(ctx, c, session, of.Asked); err != nil {
			return err
		}
		a, err := c.Approvals().Propose(ctx, api.ProposeRequest{Type: policy.ActionCommit, Run: session,
			Commit: &shadows.CommitRequest{}, Words: runners.Cut(of.Words, maxWords)})
		if err != nil {
			return err
		}
		p.ID, p.State = a.ID, string(a.State)
		if a.Commit != nil {
			changed := a.Commit.Changes
			p.Added, p.Modified, p.Deleted = changed.Added, changed.Modified, changed.Deleted
		}
		return nil
	})
}

// Discard ends a conversation and drops its uncommitted changes.
func (j *Jaild) Discard(ctx context.Context, of agents.Changes) error {
	return j.ask(ctx, func(c *client.Client) error {
		session := sessionOf(of.Launch.Instance, of.Conversation)
		if err := withdraw(ctx, c, session, of.Asked); err != nil {
			return err
		}
		_, err := c.StopSession(ctx, session, message.StopRequest{Fate: message.FateDiscard})
		if unlessMissing(err) == nil && err != nil {
			// The session may have ended before.
			err = unlessMissing(c.Discard(ctx, session))
		}
		return err
	})
}

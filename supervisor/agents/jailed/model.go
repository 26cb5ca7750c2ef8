package jailed

import (
	"context"

	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/models"
)

// Ask sends a request to the model of a role, as package models does.
func (j *Jaild) Ask(ctx context.Context, role manifest.Role, key string,
	body []byte) (*agents.Response, error) {
	return models.Jail{Sender: j.Sender()}.Ask(ctx, role, key, body)
}

// Sender returns what sends HTTP requests by jails.
func (j *Jaild) Sender() fetchrun.Sender { return fetchrun.Sender{Client: j.client} }

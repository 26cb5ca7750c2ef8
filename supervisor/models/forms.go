package models

import (
	"encoding/json"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// Forms of requests.
const (
	formMessages  = "messages"
	formResponses = "responses"
)

type object = map[string]any

// body writes a request in the form of a role's API.
func body(role manifest.Role, r Request) ([]byte, error) {
	most := r.MaxTokens
	if role.MaxTokens > 0 && (most == 0 || role.MaxTokens < most) {
		most = role.MaxTokens
	}
	out := object{"model": role.Model, "stream": true}
	switch role.Form {
	case formMessages:
		messages(out, r, most)
	case formResponses:
		responses(out, r, most)
	default:
		chat(out, r, most)
	}
	return json.Marshal(out)
}

// messages is the form of https://docs.anthropic.com/en/api/messages: turns of user and assistant
// alternate, and results are said by the user.
func messages(out object, r Request, most int64) {
	out["max_tokens"] = most
	if r.System != "" {
		out["system"] = r.System
	}
	var all []object
	say := func(role string, blocks ...object) {
		if len(blocks) == 0 {
			return
		}
		if n := len(all); n > 0 && all[n-1]["role"] == role {
			all[n-1]["content"] = append(all[n-1]["content"].([]object), blocks...)
			return
		}
		all = append(all, object{"role": role, "content": blocks})
	}
	for _, t := range r.Turns {
		var user, model []object
		if t.User != "" {
			user = append(user, object{"type": "text", "text": t.User})
		}
		for _, result := range t.Results {
			block := object{"type": "tool_result", "tool_use_id": result.ID, "content": result.Text}
			if result.Error {
				block["is_error"] = true
			}
			user = append(user, block)
		}
		if t.Text != "" {
			model = append(model, object{"type": "text", "text": t.Text})
		}
		for _, c := range t.Calls {
			model = append(model, object{"type": "tool_use", "id": c.ID, "name": c.Name,
				"input": c.Input})
		}
		say("assistant", model...)
		say("user", user...)
	}
	out["messages"] = all
	if tools := []object{}; len(r.Tools) > 0 {
		for _, t := range r.Tools {
			tools = append(tools, object{"name": t.Name, "description": t.About,
				"input_schema": t.Schema})
		}
		out["tools"] = tools
	}
}

// failed marks the result of a tool that failed, in the forms that have no field for that.
func failed(r Result) string {
	if r.Error {
		return "error: " + r.Text
	}
	return r.Text
}

// chat is the form of https://platform.openai.com/docs/api-reference/chat, which many hosts have.
func chat(out object, r Request, most int64) {
	out["stream_options"] = object{"include_usage": true}
	if most > 0 {
		out["max_tokens"] = most
	}
	var all []object
	if r.System != "" {
		all = append(all, object{"role": "system", "content": r.System})
	}
	for _, t := range r.Turns {
		switch {
		case t.User != "":
			all = append(all, object{"role": "user", "content": t.User})
		case len(t.Results) > 0:
			for _, result := range t.Results {
				all = append(all, object{"role": "tool", "tool_call_id": result.ID,
					"content": failed(result)})
			}
		case t.Text != "" || len(t.Calls) > 0:
			said := object{"role": "assistant", "content": t.Text}
			var calls []object
			for _, c := range t.Calls {
				calls = append(calls, object{"id": c.ID, "type": "function",
					"function": object{"name": c.Name, "arguments": string(c.Input)}})
			}
			if calls != nil {
				said["tool_calls"] = calls
			}
			all = append(all, said)
		}
	}
	out["messages"] = all
	if tools := []object{}; len(r.Tools) > 0 {
		for _, t := range r.Tools {
			tools = append(tools, object{"type": "function", "function": object{"name": t.Name,
				"description": t.About, "parameters": t.Schema}})
		}
		out["tools"] = tools
	}
}

// responses is the form of https://platform.openai.com/docs/api-reference/responses, without a
// conversation that the host keeps.
func responses(out object, r Request, most int64) {
	out["store"] = false
	if r.System != "" {
		out["instructions"] = r.System
	}
	if most > 0 {
		out["max_output_tokens"] = most
	}
	var all []object
	for _, t := range r.Turns {
		if t.User != "" {
			all = append(all, object{"role": "user", "content": t.User})
		}
		for _, result := range t.Results {
			all = append(all, object{"type": "function_call_output", "call_id": result.ID,
				"output": failed(result)})
		}
		if t.Text != "" {
			all = append(all, object{"role": "assistant", "content": t.Text})
		}
		for _, c := range t.Calls {
			all = append(all, object{"type": "function_call", "call_id": c.ID, "name": c.Name,
				"arguments": string(c.Input)})
		}
	}
	out["input"] = all
	if tools := []object{}; len(r.Tools) > 0 {
		for _, t := range r.Tools {
			tools = append(tools, object{"type": "function", "name": t.Name,
				"description": t.About, "parameters": t.Schema, "strict": false})
		}
		out["tools"] = tools
	}
}

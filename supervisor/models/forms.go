// Package models asks language models: it writes a conversation in the form of a model's API, sends
// it through a jail to which the fetch proxy attaches the key, and reads the stream that comes back.
//
//	forms.go   a conversation, and the three forms of its requests: messages, chat and responses
//	stream.go  the streams of server-sent events that answer them
//	ask.go     asking with patience, each time as a run of the tool fetch in a jail of its own
package models

import (
	"encoding/json"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// A form is what an API of models has of its own.
type form struct {
	// path is where requests go, below the URL of a role.
	path  string
	write func(out object, r Request, most int64)
	tool  func(Tool) object
	// read takes an event of the stream that answers.
	read func(*reading, []byte) error
}

// formMessages is the name of one of the forms. chat is that of hosts of which nobody says another.
const formMessages = "messages"

// forms are the forms by their names, with what each calls the parts of a tool.
var forms = map[string]form{
	formMessages: {"/v1/messages", messages, func(t Tool) object {
		return object{"name": t.Name, "description": t.About, "input_schema": t.Schema}
	}, (*reading).messages},
	"chat": {"/v1/chat/completions", chat, func(t Tool) object {
		return object{"type": "function", "function": object{"name": t.Name, "description": t.About,
			"parameters": t.Schema}}
	}, (*reading).chat},
	"responses": {"/v1/responses", responses, func(t Tool) object {
		return object{"type": "function", "name": t.Name, "description": t.About,
			"parameters": t.Schema, "strict": false}
	}, (*reading).responses},
}

func formOf(role manifest.Role) form {
	if f, ok := forms[role.Form]; ok {
		return f
	}
	return forms["chat"]
}

type object = map[string]any

// body writes a request in the form of a role's API.
func body(role manifest.Role, r Request) ([]byte, error) {
	most := r.MaxTokens
	if role.MaxTokens > 0 && (most == 0 || role.MaxTokens < most) {
		most = role.MaxTokens
	}
	f, out := formOf(role), object{"model": role.Model, "stream": true}
	f.write(out, r, most)
	var tools []object
	for _, t := range r.Tools {
		tools = append(tools, f.tool(t))
	}
	if tools != nil {
		out["tools"] = tools
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
}

// A Turn is one part of a conversation. One of its fields is set, but for what a model says, which
// may be a text and calls.
type Turn struct {
	// User is what a person says.
	User string
	// Text and Calls are what the model says.
	Text  string
	Calls []Call
	// Results answer the calls before.
	Results []Result
}

// A Call is a tool that the model calls, as the transcript keeps it.
type Call = transcript.Call

// A Result answers a call.
type Result struct {
	ID    string
	Text  string
	Error bool
}

// A Tool is what a model may call.
type Tool struct {
	Name, About string
	// Schema is the JSON Schema of the input.
	Schema json.RawMessage
}

// A Request is a conversation, which the model continues.
type Request struct {
	System string
	Turns  []Turn
	Tools  []Tool
	// MaxTokens bounds the reply. The role may bound it further.
	MaxTokens int64
	// Before is called when the host has answered, before anything of the reply is taken. Its error
	// is that of the request. nil does nothing.
	Before func() error
}

// A Reply is how the model continues a conversation.
type Reply struct {
	Text  string
	Calls []Call
	Usage Usage
}

// A Usage is how many tokens were used.
type Usage = transcript.Usage

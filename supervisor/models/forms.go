// Package models calls language models: it encodes a conversation for the API of a model's host,
// sends it from a jail whose fetch proxy adds the API key, and decodes the streamed response.
//
//	forms.go   a conversation, and its encoding for three APIs: messages, chat and responses
//	stream.go  decodes their streams of server-sent events
//	ask.go     sends a request, each attempt as a run of the tool fetch in a new jail, and retries
package models

import (
	"encoding/json"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// A form holds what differs between the API formats of model hosts.
type form struct {
	// path is the path of the endpoint, appended to the URL of a role.
	path  string
	write func(out object, r Request, most int64)
	tool  func(Tool) object
	// read decodes the data of one event of the response stream.
	read func(*reading, []byte) error
}

// formMessages is the API format of Anthropic, in the field form of a role. The default is chat.
const formMessages = "messages"

// forms holds the API formats by name. The functions encode the definition of a tool.
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

// body encodes a request as JSON in the API format of a role.
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

// messages encodes r into out for https://docs.anthropic.com/en/api/messages. User and assistant
// messages alternate, so it merges neighbours; tool results are part of user messages.
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

// failed returns a result's text, marked if the tool failed, for APIs without an error field.
func failed(r Result) string {
	if r.Error {
		return "error: " + r.Text
	}
	return r.Text
}

// chat encodes r into out for https://platform.openai.com/docs/api-reference/chat.
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

// responses encodes r into out for https://platform.openai.com/docs/api-reference/responses, and
// asks the host not to store the conversation.
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

// A Turn is one part of a conversation: of the user, of the model or the results of tools. A turn
// of the model may have both Text and Calls; in other turns one field is set.
type Turn struct {
	// User is what a person says.
	User string
	// Text and Calls are the text and the tool calls of the model.
	Text  string
	Calls []Call
	// Results are the results of the tool calls in the turn before.
	Results []Result
}

// A Call is a tool call of the model.
type Call = transcript.Call

// A Result is the result of a tool call. ID is the ID of the Call; Error says that the tool failed.
type Result struct {
	ID    string
	Text  string
	Error bool
}

// A Tool is the definition of a tool that a model may call. About is its description.
type Tool struct {
	Name, About string
	// Schema is the JSON Schema of the input.
	Schema json.RawMessage
}

// A Request asks a model for the next reply in a conversation. System is the system prompt.
type Request struct {
	System string
	Turns  []Turn
	Tools  []Tool
	// MaxTokens bounds the tokens of the reply. The role may set a lower bound.
	MaxTokens int64
	// Before is called after the host answers and before the reply is read. If it returns an error,
	// the request fails with that error. Before may be nil.
	Before func() error
}

// A Reply is the next turn of the model in a conversation.
type Reply struct {
	Text  string
	Calls []Call
	Usage Usage
}

// A Usage counts the input and output tokens of a request.
type Usage = transcript.Usage

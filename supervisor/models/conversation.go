package models

import "encoding/json"

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

// A Call is a tool that the model calls.
type Call struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Input is a JSON object.
	Input json.RawMessage `json:"input"`
	// Malformed is what the model sent in place of an object.
	Malformed string `json:"malformed,omitempty"`
}

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
type Usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
}

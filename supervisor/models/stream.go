package models

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Bounds of a stream.
const (
	// maxLine bounds one line of the stream, and so an event, in bytes.
	maxLine = 8 << 20
	// maxReply bounds the text and the tool inputs of a reply together, in bytes.
	maxReply = 16 << 20
	// maxCalls bounds the number of tool calls in a reply.
	maxCalls = 128
)

// errCut reports that a stream ended before the reply was complete.
var errCut = errors.New("the stream broke off before the reply ended")

// A reading collects a reply from the events of a stream.
type reading struct {
	text  strings.Builder
	calls []*calling
	// whole is true after the host has marked the reply as complete.
	whole bool
	usage Usage
	size  int
	delta func(string)
}

// calling is a tool call whose input arrives in parts. key identifies it within the stream.
type calling struct {
	key      string
	id, name string
	input    strings.Builder
}

// read decodes a response stream in the API format f. It calls delta, which may be nil, with each
// part of the text as it arrives.
func read(f form, stream io.Reader, delta func(string)) (Reply, error) {
	r := &reading{delta: delta}
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			r.whole = true
			break
		}
		if err := f.read(r, data); err != nil {
			return Reply{}, err
		}
		if r.size > maxReply || len(r.calls) > maxCalls {
			return Reply{}, fmt.Errorf("the reply is larger than %d MiB, or has more than %d calls",
				maxReply>>20, maxCalls)
		}
	}
	if err := lines.Err(); err != nil {
		return Reply{}, err
	}
	if !r.whole {
		return Reply{}, errCut
	}
	return r.reply()
}

func (r *reading) reply() (Reply, error) {
	out := Reply{Text: r.text.String(), Usage: r.usage}
	for n, c := range r.calls {
		if c.id == "" || c.name == "" {
			return Reply{}, fmt.Errorf("call %d of the reply has no id or no name", n+1)
		}
		call := Call{ID: c.id, Name: c.name, Input: json.RawMessage("{}")}
		var input map[string]json.RawMessage
		switch text := strings.TrimSpace(c.input.String()); {
		case text == "":
		case json.Unmarshal([]byte(text), &input) != nil || input == nil:
			call.Malformed = text
		default:
			call.Input = json.RawMessage(text)
		}
		out.Calls = append(out.Calls, call)
	}
	return out, nil
}

func (r *reading) say(text string) {
	if text == "" {
		return
	}
	r.text.WriteString(text)
	r.size += len(text)
	if r.delta != nil {
		r.delta(text)
	}
}

// call returns the tool call with this key in the stream. It creates the call if there is none.
func (r *reading) call(key string) *calling {
	for _, c := range slices.Backward(r.calls) {
		if c.key == key {
			return c
		}
	}
	c := &calling{key: key}
	r.calls = append(r.calls, c)
	return c
}

func (r *reading) input(key, part string) {
	r.call(key).input.WriteString(part)
	r.size += len(part)
}

// event decodes the JSON of an event into to. It ignores unknown fields.
func event(data []byte, to any) error {
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("the stream has an event that cannot be read: %w", err)
	}
	return nil
}

// said is an error that a host reports within a stream.
type said struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// err returns the error for an event with which a host aborts a stream. s may be nil.
func (s *said) err() error {
	if s == nil {
		s = &said{Type: "error", Message: "without a reason"}
	}
	return fmt.Errorf("the model's host ended the stream: %.200s: %.1000s", s.Type, s.Message)
}

func (r *reading) messages(data []byte) error {
	var e struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message struct {
			Usage messagesUsage `json:"usage"`
		} `json:"message"`
		ContentBlock struct {
			Type  string          `json:"type"`
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			Text  string          `json:"text"`
			Input json.RawMessage `json:"input"`
		} `json:"content_block"`
		Delta struct {
			Text        string `json:"text"`
			PartialJSON string `json:"partial_json"`
		} `json:"delta"`
		Usage messagesUsage `json:"usage"`
		Error *said         `json:"error"`
	}
	if err := event(data, &e); err != nil {
		return err
	}
	key := fmt.Sprint(e.Index)
	switch e.Type {
	case "message_start":
		r.count(e.Message.Usage)
	case "content_block_start":
		if e.ContentBlock.Type == "tool_use" {
			c := r.call(key)
			c.id, c.name = e.ContentBlock.ID, e.ContentBlock.Name
		}
		r.say(e.ContentBlock.Text)
	case "content_block_delta":
		r.say(e.Delta.Text)
		if e.Delta.PartialJSON != "" {
			r.input(key, e.Delta.PartialJSON)
		}
	case "message_delta":
		r.count(e.Usage)
	case "message_stop":
		r.whole = true
	case "error":
		return e.Error.err()
	}
	return nil
}

type messagesUsage struct {
	Input         int64 `json:"input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Output        int64 `json:"output_tokens"`
}

// count updates the token counts. The counts in u are totals of the reply so far, not increments.
func (r *reading) count(u messagesUsage) {
	r.usage.Input = max(r.usage.Input, u.Input+u.CacheCreation+u.CacheRead)
	r.usage.Output = max(r.usage.Output, u.Output)
}

func (r *reading) chat(data []byte) error {
	var e struct {
		Choices []struct {
			Delta struct {
				Content   string `json:"content"`
				ToolCalls []struct {
					Index    int    `json:"index"`
					ID       string `json:"id"`
					Function struct {
						Name      string `json:"name"`
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"delta"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
		Error *said `json:"error"`
	}
	if err := event(data, &e); err != nil {
		return err
	}
	if e.Error != nil {
		return e.Error.err()
	}
	if e.Usage != nil {
		r.usage.Input = max(r.usage.Input, e.Usage.Prompt)
		r.usage.Output = max(r.usage.Output, e.Usage.Completion)
	}
	for _, choice := range e.Choices {
		r.say(choice.Delta.Content)
		for _, part := range choice.Delta.ToolCalls {
			key := fmt.Sprint(part.Index)
			c := r.call(key)
			if part.ID != "" {
				c.id = part.ID
			}
			if part.Function.Name != "" {
				c.name = part.Function.Name
			}
			r.input(key, part.Function.Arguments)
		}
		// Some hosts end a stream without [DONE].
		r.whole = r.whole || choice.FinishReason != ""
	}
	return nil
}

func (r *reading) responses(data []byte) error {
	var e struct {
		Type   string `json:"type"`
		ItemID string `json:"item_id"`
		Delta  string `json:"delta"`
		Item   struct {
			ID        string `json:"id"`
			Type      string `json:"type"`
			CallID    string `json:"call_id"`
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"item"`
		Response struct {
			Usage Usage `json:"usage"`
			Error *said `json:"error"`
		} `json:"response"`
		Message string `json:"message"`
	}
	if err := event(data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "response.output_text.delta":
		r.say(e.Delta)
	case "response.output_item.added", "response.output_item.done":
		if e.Item.Type != "function_call" {
			break
		}
		c := r.call(e.Item.ID)
		c.id, c.name = e.Item.CallID, e.Item.Name
		if c.input.Len() == 0 {
			r.input(e.Item.ID, e.Item.Arguments)
		}
	case "response.function_call_arguments.delta":
		r.input(e.ItemID, e.Delta)
	case "response.completed", "response.incomplete":
		r.whole = true
		r.usage = e.Response.Usage
	case "response.failed":
		return e.Response.Error.err()
	case "error":
		return (&said{Type: "error", Message: e.Message}).err()
	}
	return nil
}

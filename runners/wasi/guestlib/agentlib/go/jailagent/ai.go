//go:build wasip1

package jailagent

import (
	"strings"
	"unsafe"
)

//go:wasmimport jail_agent_ai_v1 call
func aiCall(method unsafe.Pointer, methodLen uint32, params unsafe.Pointer, paramsLen uint32, handle unsafe.Pointer) uint32

//go:wasmimport jail_agent_ai_v1 read
func aiRead(handle uint32, to unsafe.Pointer, len uint32, got unsafe.Pointer) uint32

//go:wasmimport jail_agent_ai_v1 close
func aiClose(handle uint32) uint32

//go:wasmimport jail_agent_ai_v1 error
func aiError(to unsafe.Pointer, len uint32, total unsafe.Pointer) uint32

type ai struct{}

// AI asks the manifest's models. It needs capabilities.ai = true. API keys never enter the jail.
var AI ai

func aiModule() module { return module{aiCall, aiRead, aiClose, aiError} }

// Roles returns the names of the roles.
func (ai) Roles() (all []string, err error) {
	return all, invoke(aiModule(), "listRoles", nil, &all)
}

// Stream asks a model and calls f with each part of the answer's text as it arrives. params are the
// parameters of streamText: role, prompt or messages, system, max_tokens and others.
func (ai) Stream(params map[string]any, f func(text string) error) error {
	h, err := aiModule().open("streamText", params)
	if err != nil {
		return err
	}
	return stream(h, f)
}

// Ask asks a model and returns the text of its answer.
func (a ai) Ask(prompt string) (string, error) { return a.text(map[string]any{"prompt": prompt}) }

func (a ai) text(params map[string]any) (string, error) {
	var b strings.Builder
	err := a.Stream(params, func(text string) error {
		b.WriteString(text)
		return nil
	})
	return b.String(), err
}

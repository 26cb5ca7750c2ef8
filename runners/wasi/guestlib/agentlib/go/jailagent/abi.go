//go:build wasip1

package jailagent

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"unsafe"
)

// A module has the host functions of one binding: docs/agent-abi.md.
type module struct {
	call  func(method unsafe.Pointer, methodLen uint32, params unsafe.Pointer, paramsLen uint32, handle unsafe.Pointer) uint32
	read  func(handle uint32, to unsafe.Pointer, len uint32, got unsafe.Pointer) uint32
	close func(handle uint32) uint32
	error func(to unsafe.Pointer, len uint32, total unsafe.Pointer) uint32
}

var (
	hostModule   = module{hostCall, hostRead, hostClose, hostError}
	pubsubModule = module{pubsubCall, pubsubRead, pubsubClose, pubsubError}
)

//go:wasmimport jail_agent_host_v1 call
func hostCall(method unsafe.Pointer, methodLen uint32, params unsafe.Pointer, paramsLen uint32, handle unsafe.Pointer) uint32

//go:wasmimport jail_agent_host_v1 read
func hostRead(handle uint32, to unsafe.Pointer, len uint32, got unsafe.Pointer) uint32

//go:wasmimport jail_agent_host_v1 close
func hostClose(handle uint32) uint32

//go:wasmimport jail_agent_host_v1 error
func hostError(to unsafe.Pointer, len uint32, total unsafe.Pointer) uint32

//go:wasmimport jail_agent_host_v1 wait
func hostAwait(ms uint32, handle unsafe.Pointer) uint32

//go:wasmimport jail_agent_pubsub_v1 call
func pubsubCall(method unsafe.Pointer, methodLen uint32, params unsafe.Pointer, paramsLen uint32, handle unsafe.Pointer) uint32

//go:wasmimport jail_agent_pubsub_v1 read
func pubsubRead(handle uint32, to unsafe.Pointer, len uint32, got unsafe.Pointer) uint32

//go:wasmimport jail_agent_pubsub_v1 close
func pubsubClose(handle uint32) uint32

//go:wasmimport jail_agent_pubsub_v1 error
func pubsubError(to unsafe.Pointer, len uint32, total unsafe.Pointer) uint32

// A handle is an open answer.
type handle struct {
	m  module
	id uint32
}

// failed returns the error for a host function's error number, nil for 0.
func (m module) failed(errno uint32) error {
	if errno == 0 {
		return nil
	}
	text := make([]byte, 512)
	var total uint32
	if m.error(unsafe.Pointer(&text[0]), uint32(len(text)), unsafe.Pointer(&total)) != 0 {
		return syscall.Errno(errno)
	}
	return fmt.Errorf("%w: %s", syscall.Errno(errno), text[:min(int(total), len(text))])
}

// open calls a method and returns a handle to read the answer.
func (m module) open(method string, params any) (handle, error) {
	text := []byte("{}")
	if params != nil {
		var err error
		if text, err = json.Marshal(params); err != nil {
			return handle{}, err
		}
	}
	var id uint32
	errno := m.call(unsafe.Pointer(unsafe.StringData(method)), uint32(len(method)),
		unsafe.Pointer(unsafe.SliceData(text)), uint32(len(text)), unsafe.Pointer(&id))
	return handle{m, id}, m.failed(errno)
}

func hostWait(ms uint32) (handle, error) {
	var id uint32
	errno := hostAwait(ms, unsafe.Pointer(&id))
	return handle{hostModule, id}, hostModule.failed(errno)
}

// Read reads a part of the answer.
func (h handle) Read(to []byte) (int, error) {
	var got uint32
	errno := h.m.read(h.id, unsafe.Pointer(unsafe.SliceData(to)), uint32(len(to)),
		unsafe.Pointer(&got))
	if errno == 0 && got == 0 {
		return 0, io.EOF
	}
	return int(got), h.m.failed(errno)
}

func (h handle) close() { h.m.close(h.id) }

// buffer is shared by all reads, since a module has one thread.
var buffer = make([]byte, 16<<10)

// all reads the whole answer and closes it.
func (h handle) all() ([]byte, error) {
	defer h.close()
	var out strings.Builder
	for {
		n, err := h.Read(buffer)
		if err == io.EOF {
			return []byte(out.String()), nil
		}
		if err != nil {
			return nil, err
		}
		out.Write(buffer[:n])
	}
}

func (h handle) decode(into any) error {
	text, err := h.all()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// unwrap decodes {"result": …} into result, or returns the error of {"error": …}.
func unwrap(text []byte, result any) error {
	var said struct {
		Result json.RawMessage
		Error  *Error
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return err
	}
	if said.Error != nil {
		return said.Error
	}
	if result == nil || len(said.Result) == 0 {
		return nil
	}
	return json.Unmarshal(said.Result, result)
}

func invoke(m module, method string, params, result any) error {
	h, err := m.open(method, params)
	if err != nil {
		return err
	}
	text, err := h.all()
	if err != nil {
		return err
	}
	return unwrap(text, result)
}

// Package agentabi calls the host functions of agents (docs/agent-abi.md) for the guests of tests.
// Each fault of the host ends the guest with the exit code 3.
package agentabi

import (
	"fmt"
	"os"
	"unsafe"
)

//go:wasmimport jail_agent_host_v1 wait
func hostWait(ms uint32, handle *uint32) uint32

//go:wasmimport jail_agent_host_v1 read
func hostRead(handle uint32, to *byte, n uint32, got *uint32) uint32

//go:wasmimport jail_agent_host_v1 close
func hostClose(handle uint32) uint32

//go:wasmimport jail_agent_host_v1 call
func hostCall(method *byte, mlen uint32, params *byte, plen uint32, handle *uint32) uint32

//go:wasmimport jail_agent_storage_v1 call
func storageCall(method *byte, mlen uint32, params *byte, plen uint32, handle *uint32) uint32

//go:wasmimport jail_agent_pubsub_v1 call
func pubsubCall(method *byte, mlen uint32, params *byte, plen uint32, handle *uint32) uint32

var calls = map[string]func(*byte, uint32, *byte, uint32, *uint32) uint32{"HOST": hostCall,
	"STORAGE": storageCall, "PUBSUB": pubsubCall}

// Ask calls a method of the binding HOST, STORAGE or PUBSUB, and returns the answer as JSON.
func Ask(binding, method string, params []byte) []byte {
	var h uint32
	if e := calls[binding](unsafe.StringData(method), uint32(len(method)),
		unsafe.SliceData(params), uint32(len(params)), &h); e != 0 {
		End("%s.%s: %d", binding, method, e)
	}
	return all(h)
}

// Wait waits for what comes next, at most 30 seconds, and returns it as JSON.
func Wait() []byte {
	var h uint32
	if e := hostWait(30_000, &h); e != 0 {
		End("wait: %d", e)
	}
	return all(h)
}

// buf is for all: a module has one thread, and does nothing else while the host reads.
var buf = make([]byte, 64<<10)

func all(h uint32) (text []byte) {
	defer hostClose(h)
	for {
		var n uint32
		if e := hostRead(h, &buf[0], uint32(len(buf)), &n); e != 0 {
			End("read: %d", e)
		}
		if n == 0 {
			return text
		}
		text = append(text, buf[:n]...)
	}
}

// End ends the guest with the exit code 3.
func End(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	os.Exit(3)
}

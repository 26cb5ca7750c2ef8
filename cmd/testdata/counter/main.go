// Command counter is the guest of an agent that counts events in its database. With {"pass":true} in
// its CONFIG it sends each to the channel. An event whose data is "total" has it send the count.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
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

type next struct {
	Type  string `json:"type"`
	Event struct {
		Seq  uint64          `json:"seq"`
		ID   string          `json:"id"`
		Data json.RawMessage `json:"data"`
	} `json:"event"`
}

func main() {
	pass := strings.Contains(os.Getenv("CONFIG"), `"pass":true`)
	for {
		var n next
		check(json.Unmarshal(wait(), &n))
		switch n.Type {
		case "wake":
			sql("run", "CREATE TABLE IF NOT EXISTS counted (id TEXT PRIMARY KEY, n INTEGER) "+
				"WITHOUT ROWID")
		case "sleep":
			return
		case "event":
			if string(n.Event.Data) == `"total"` {
				ask(pubsubCall, "send", map[string]any{
					"content": sql("get", "SELECT count(*) AS ids, sum(n) AS events FROM counted"),
					// It is for nobody else.
					"options": map[string]string{"type": "result"}})
			} else {
				sql("run", "INSERT INTO counted VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1",
					n.Event.ID)
				if pass {
					ask(pubsubCall, "send", map[string]any{"content": n.Event.ID})
				}
			}
			ask(hostCall, "checkpoint", map[string]any{"seq": n.Event.Seq})
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
}

func sql(method, statement string, params ...any) json.RawMessage {
	return ask(storageCall, method, map[string]any{"sql": statement, "params": params})
}

func ask(call func(*byte, uint32, *byte, uint32, *uint32) uint32, method string,
	params any) json.RawMessage {
	text, err := json.Marshal(params)
	check(err)
	var h uint32
	if e := call(unsafe.StringData(method), uint32(len(method)), unsafe.SliceData(text),
		uint32(len(text)), &h); e != 0 {
		check(fmt.Errorf("%s: %d", method, e))
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	check(json.Unmarshal(all(h), &answer))
	if answer.Error != nil {
		check(fmt.Errorf("%s: %s", method, answer.Error))
	}
	return answer.Result
}

func wait() []byte {
	var h uint32
	if e := hostWait(30_000, &h); e != 0 {
		check(fmt.Errorf("wait: %d", e))
	}
	return all(h)
}

func all(h uint32) (text []byte) {
	defer hostClose(h)
	buf := make([]byte, 64<<10)
	for {
		var n uint32
		if e := hostRead(h, &buf[0], uint32(len(buf)), &n); e != 0 {
			check(fmt.Errorf("read: %d", e))
		}
		if n == 0 {
			return text
		}
		text = append(text, buf[:n]...)
	}
}

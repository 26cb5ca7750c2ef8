// Command agent is the guest of an agent: for each event it makes the calls that the event's data
// lists, sends their answers, and commits the event. It calls its bindings by host functions.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
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

// A call is one of those that an event asks for.
type call struct {
	Binding string          `json:"binding"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type next struct {
	Type  string `json:"type"`
	Event struct {
		Seq  uint64          `json:"seq"`
		Data json.RawMessage `json:"data"`
	} `json:"event"`
}

func main() {
	for {
		var n next
		if err := json.Unmarshal(wait(), &n); err != nil {
			fmt.Println("no JSON:", err)
			os.Exit(3)
		}
		switch n.Type {
		case "wake":
			fmt.Printf("awake: %s %s %s %s %s\n", os.Getenv("AGENT_ID"), os.Getenv("CHANNEL"),
				os.Getenv("HANDLE"), os.Getenv("CONFIG"), os.Getenv("AGENT_BINDINGS"))
		case "sleep":
			for stays {
			}
			return
		case "event":
			onEvent(n)
		}
	}
}

// stays says that the guest does not end when it is asked to.
var stays bool

func onEvent(n next) {
	var order struct {
		Calls []call `json:"calls"`
		// Do is what the guest does besides: loop, crash, exit, stay, or nothing.
		Do string `json:"do"`
	}
	if err := json.Unmarshal(n.Event.Data, &order); err != nil {
		fmt.Println("no order:", err)
		os.Exit(3)
	}
	answers := []json.RawMessage{}
	for _, c := range order.Calls {
		answers = append(answers, ask(c.Binding, c.Method, c.Params))
	}
	switch order.Do {
	case "loop":
		for {
		}
	case "crash":
		panic("crash")
	case "exit":
		os.Exit(7)
	case "forget":
		return
	case "stay":
		stays = true
	case "http":
		overHTTP()
	case "eat":
		var all [][]byte
		for {
			all = append(all, make([]byte, 1<<20))
			all[len(all)-1][5] = 1
		}
	}
	if len(answers) > 0 {
		content, _ := json.Marshal(map[string]any{"content": answers})
		ask("PUBSUB", "send", content)
	}
	fmt.Printf("checkpoint: %s\n", ask("HOST", "checkpoint", fmt.Appendf(nil, `{"seq":%d}`, n.Event.Seq)))
}

// overHTTP makes a call by HTTP over a stream of the listener.
func overHTTP() {
	n, err := strconv.Atoi(os.Getenv("JAIL_AGENT_FD"))
	if err != nil {
		panic(err)
	}
	l, err := net.FileListener(os.NewFile(uintptr(n), "agent"))
	if err != nil {
		panic(err)
	}
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	const body = `{"method":"ready"}`
	fmt.Fprintf(c, "POST /rpc/HOST HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	if half, ok := c.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		panic("the stream has no halves")
	}
	text, err := io.ReadAll(c)
	fmt.Printf("%s %v\n", text, err)
}

func wait() []byte {
	var h uint32
	if e := hostWait(30_000, &h); e != 0 {
		fmt.Println("wait:", e)
		os.Exit(3)
	}
	return all(h)
}

func all(h uint32) (text []byte) {
	defer hostClose(h)
	buf := make([]byte, 64<<10)
	for {
		var n uint32
		if e := hostRead(h, &buf[0], uint32(len(buf)), &n); e != 0 {
			fmt.Println("read:", e)
			os.Exit(3)
		}
		if n == 0 {
			return text
		}
		text = append(text, buf[:n]...)
	}
}

func ask(binding, method string, params []byte) []byte {
	call := map[string]func(*byte, uint32, *byte, uint32, *uint32) uint32{"HOST": hostCall,
		"STORAGE": storageCall, "PUBSUB": pubsubCall}[binding]
	var h uint32
	e := call(unsafe.StringData(method), uint32(len(method)), unsafe.SliceData(params),
		uint32(len(params)), &h)
	if e != 0 {
		fmt.Printf("%s.%s: %d\n", binding, method, e)
		os.Exit(3)
	}
	return all(h)
}

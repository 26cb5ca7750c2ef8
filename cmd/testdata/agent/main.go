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

	"github.com/jail-sandbox/jail/cmd/testdata/agentabi"
)

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
		if err := json.Unmarshal(agentabi.Wait(), &n); err != nil {
			agentabi.End("no JSON: %v", err)
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
		agentabi.End("no order: %v", err)
	}
	answers := []json.RawMessage{}
	for _, c := range order.Calls {
		answers = append(answers, agentabi.Ask(c.Binding, c.Method, c.Params))
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
		agentabi.Ask("PUBSUB", "send", content)
	}
	seq := fmt.Appendf(nil, `{"seq":%d}`, n.Event.Seq)
	fmt.Printf("checkpoint: %s\n", agentabi.Ask("HOST", "checkpoint", seq))
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

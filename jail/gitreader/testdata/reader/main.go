// Command reader is a reader of repositories, and a victim that tries what a reader may not do.
package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/gitreader"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == gitreader.Arg {
		os.Exit(gitreader.Main(os.Stderr))
	}
	victim(os.Args[1] == "confined")
}

// victim tries it, and says which attempts succeeded.
func victim(confined bool) {
	conn, err := control.Inherit(3)
	if err != nil {
		panic(err)
	}
	var s struct {
		UID    uint32 `json:"uid"`
		Filter []byte `json:"filter"`
	}
	if _, err := conn.Receive(&s); err != nil {
		panic(err)
	}
	if confined {
		if err := confine.Reader(s.UID, s.Filter); err != nil {
			panic(err)
		}
	}
	done := []string{}
	for name, try := range map[string]func() error{
		"open":   func() error { _, err := os.Open("/etc/passwd"); return err },
		"create": func() error { return os.WriteFile(os.Getenv("DIR")+"/made", nil, 0o666) },
		"socket": func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
		"exec":   func() error { return exec.Command("/bin/true").Run() },
		"signal": func() error { return syscall.Kill(os.Getppid(), 0) },
		"id":     func() error { return syscall.Setresuid(0, 0, 0) },
	} {
		if try() == nil {
			done = append(done, name)
		}
	}
	text, err := json.Marshal(done)
	if err != nil {
		panic(err)
	}
	if err := conn.Send(map[string]string{"failed": string(text)}); err != nil {
		panic(err)
	}
}

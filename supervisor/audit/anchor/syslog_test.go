package anchor

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rfc5424 is the form of a message.
var rfc5424 = regexp.MustCompile(
	`^<110>1 (\S+) (\S{1,255}) jail \d+ anchor ((?:\[[^\]= "]+(?: [^\]= "]+="(?:[^"\\\]]|\\["\\\]])*")*\])+) @cee: \{.*\}$`)

// sendHead sends the newest head of a new log to a place, and returns the log.
func sendHead(t *testing.T, to string) (dir string, err error) {
	t.Helper()
	dir, _ = newLog(t)
	s, err := settings(t, "[[anchor]]\nname = \"syslog\"\nto = \""+to+"\"\n")
	if err != nil {
		t.Fatal(err)
	}
	all, err := (Keeper{Log: dir, State: filepath.Join(t.TempDir(), "state"),
		Targets: s.Anchors}).Once(t.Context())
	if err == nil && all[0].Error != "" {
		err = fmt.Errorf("%s", all[0].Error)
	}
	return dir, err
}

// Every kind of collector gets a message of RFC 5424, on a connection behind its length (RFC 6587).
func TestSyslog(t *testing.T) {
	place := filepath.Join(t.TempDir(), "log")
	for _, network := range []string{"udp", "tcp", "unixgram", "unix"} {
		t.Run(network, func(t *testing.T) {
			scheme, address := network, "127.0.0.1:0"
			if strings.HasPrefix(network, "unix") {
				scheme, address = "unix", place+network
			}
			var at net.Addr
			got := make(chan []byte, 1)
			if network == "udp" || network == "unixgram" {
				c, err := net.ListenPacket(network, address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				at = c.LocalAddr()
				go func() {
					buf := make([]byte, 64<<10)
					_ = c.SetReadDeadline(time.Now().Add(bound))
					n, _, _ := c.ReadFrom(buf)
					got <- buf[:n]
				}()
			} else {
				l, err := net.Listen(network, address)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				at = l.Addr()
				go func() {
					c, err := l.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					text, _ := io.ReadAll(c)
					length, m, _ := bytes.Cut(text, []byte(" "))
					if string(length) != fmt.Sprint(len(m)) {
						t.Errorf("length %q of %d bytes", length, len(m))
					}
					got <- m
				}()
			}
			dir, err := sendHead(t, scheme+"://"+at.String())
			if err != nil {
				t.Fatal(err)
			}
			m := <-got
			if !rfc5424.Match(m) {
				t.Errorf("no message of RFC 5424: %.300q", m)
			}
			fits(t, dir, m, 1)
		})
	}
}

func TestSyslogAddress(t *testing.T) {
	for _, to := range []string{"udp://", "tcp://h:1/x", "udp://h?x=1", "smtp://h"} {
		if _, err := settings(t, "[[anchor]]\nname = \"x\"\nto = \""+to+"\"\n"); err == nil {
			t.Errorf("%s is taken", to)
		}
	}
}

// TestRsyslog: a collector of Debian's takes what is sent, and writes down the note.
func TestRsyslog(t *testing.T) {
	program := "/usr/sbin/rsyslogd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("rsyslog is not installed")
	}
	dir := t.TempDir()
	conf := fmt.Sprintf(`global(workDirectory=%q parser.escapeControlCharactersOnReceive="off")
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="0" listenPortFileName=%q)
template(name="m" type="string" string="%%msgid%%|%%app-name%%|%%syslogfacility%%|%%msg:::drop-last-lf%%\n")
*.* action(type="omfile" file=%q template="m")
`, dir, dir+"/port", dir+"/out")
	if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-n", "-f", dir+"/conf", "-i", dir+"/pid")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var log string
	end := time.Now().Add(bound)
	for err := io.EOF; err != nil; time.Sleep(50 * time.Millisecond) {
		// The collector chooses a free port, and writes it down.
		port, _ := os.ReadFile(dir + "/port")
		if len(port) > 0 {
			log, err = sendHead(t, "tcp://127.0.0.1:"+strings.TrimSpace(string(port)))
		}
		if err != nil && time.Now().After(end) {
			t.Fatalf("%v\n%s", err, said.Bytes())
		}
	}
	var line string
	for line == "" {
		if time.Now().After(end) {
			t.Fatalf("the message did not come\n%s", said.Bytes())
		}
		time.Sleep(20 * time.Millisecond)
		text, _ := os.ReadFile(dir + "/out")
		for l := range strings.Lines(string(text)) {
			if strings.HasPrefix(l, "anchor|jail|13|") && strings.HasSuffix(l, "\n") {
				line = l
			}
		}
	}
	fits(t, log, []byte(line), 1)
}

// Command decides tries, inside a jail, what it is asked about, one thing after the other, and says of each whether the kernel let it. It is built for
// WASI and for Linux.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A question is what is to be tried: read, write or exec of a path, connect to an address, or a request.
type question struct{ Op, What string }

var try = map[string]func(string) bool{"read": read, "write": write, "exec": execute, "connect": connect, "copy": copySelf}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	answers := make([]bool, len(questions))
	for i, q := range questions {
		answers[i] = try[q.Op](q.What)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		os.Exit(1)
	}
}

func read(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_, err = f.ReadDir(1)
		return err == nil || errors.Is(err, io.EOF)
	}
	_, err = f.Read(make([]byte, 1))
	return err == nil || errors.Is(err, io.EOF)
}

// write opens what is there for writing and changes nothing of it; where a directory or nothing is there, it makes a file and takes it away.
func write(path string) bool {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		return err == nil
	}
	if err == nil {
		path = filepath.Join(path, "jail-decides")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return os.Remove(path) == nil
}

// execute starts a program and ends it at once. One that is in no format which the kernel knows was let through as well.
func execute(path string) bool {
	cmd := exec.Command(path)
	err := cmd.Start()
	if err == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err == nil || errors.Is(err, syscall.ENOEXEC)
}

func connect(address string) bool {
	c, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// copySelf puts a program where others are asked about.
func copySelf(path string) bool {
	return os.WriteFile(path, []byte("#!/workspace/decides\n"), 0o700) == nil
}

package view

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

func mkfifo(p string) error { return exec.Command("mkfifo", p).Run() }

func listen(t *testing.T, p string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openWaits reports whether an open for reading is still waiting when the other
// end is opened a while later, and so gets through.
func openWaits(p string) bool {
	opened := make(chan time.Time, 1)
	go func() {
		f, err := os.Open(p)
		opened <- time.Now()
		if err == nil {
			f.Close()
		}
	}()
	select {
	case <-opened:
		return false
	case <-time.After(20 * time.Millisecond):
		// However slow: it cannot end by itself.
	}
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	<-opened
	return true
}

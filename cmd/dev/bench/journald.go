package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// journaldPrograms is where systemd-journald may be.
var journaldPrograms = []string{"/usr/lib/systemd/systemd-journald",
	"/lib/systemd/systemd-journald"}

// journaldScript starts one of our own: a namespace of its name in a mount namespace of its own, so
// that it has neither the kernel's messages nor the host's sockets nor the host's journal.
const journaldScript = `mount --bind "$1/run" /run && mkdir -p /run/systemd && mkdir -p /var/log/journal && mount --bind "$1/log" /var/log/journal &&
mount --bind "$1/etc" /etc/systemd && exec "$2" jailbench`

// A journald is one that runs for the comparison.
type journald struct {
	cmd     *exec.Cmd
	sockets string // directory
	said    bytes.Buffer
}

// startJournald returns nil and why where there can be none. It keeps its files in dir, on the disk
// on which the audit log is measured, and flushes them once a second.
func startJournald(ctx context.Context, dir string) (*journald, string, error) {
	program := ""
	for _, path := range journaldPrograms {
		if _, err := os.Stat(path); err == nil {
			program = path
		}
	}
	switch _, err := os.Stat("/etc/machine-id"); {
	case program == "":
		return nil, "there is no systemd-journald on this machine", nil
	case os.Geteuid() != 0 || err != nil:
		return nil, "systemd-journald wants root and a machine id", nil
	}
	for _, sub := range []string{"run", "log", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, "", err
		}
	}
	conf := "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\nRateLimitIntervalSec=0\nRateLimitBurst=0\nSystemMaxUse=4G\n"
	if err := os.WriteFile(filepath.Join(dir, "etc", "journald@jailbench.conf"), []byte(conf),
		0o644); err != nil {
		return nil, "", err
	}
	j := &journald{cmd: exec.CommandContext(ctx, "unshare", "-m", "--propagation", "private", "sh",
		"-c", journaldScript, "sh", dir, program), sockets: filepath.Join(dir,
		"run/systemd/journal.jailbench")}
	j.cmd.Stdout, j.cmd.Stderr = &j.said, &j.said
	if err := j.cmd.Start(); err != nil {
		return nil, "", err
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(
		50 * time.Millisecond) {
		if err := j.sync(); err == nil {
			return j, "", nil
		}
	}
	err := j.end()
	return nil, "", fmt.Errorf("systemd-journald does not answer: %s: %w",
		strings.TrimSpace(j.said.String()), err)
}

// end kills it: what it has is not wanted any more.
func (j *journald) end() error {
	err := j.cmd.Process.Kill()
	_ = j.cmd.Wait() // it was killed
	return err
}

// sync returns when all that was sent is processed and flushed, as journalctl --sync has it.
func (j *journald) sync() error {
	c, err := net.Dial("unix", filepath.Join(j.sockets, "io.systemd.journal"))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(
		[]byte("{\"method\":\"io.systemd.Journal.Synchronize\"}\x00")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c).ReadString(0)
	if err == nil && strings.Contains(answer, `"error"`) {
		err = fmt.Errorf("journald: %s", strings.TrimRight(answer, "\x00"))
	}
	return err
}

// appends measures messages a second, from the first that is sent until the last is flushed. Of
// priority 2 journald flushes each before it takes the next, of 6 as it is set up: once a second.
// Its socket has no answer: who sends learns of neither.
func (j *journald) appends(writers, priority int) (float64, error) {
	message := fmt.Appendf(nil, "PRIORITY=%d\nSYSLOG_IDENTIFIER=jail\nMESSAGE=%s\n", priority,
		strings.Repeat("x", 420))
	senders := make(chan net.Conn, writers)
	defer func() {
		close(senders)
		for c := range senders {
			c.Close()
		}
	}()
	for range writers {
		c, err := net.Dial("unixgram", filepath.Join(j.sockets, "socket"))
		if err != nil {
			return 0, err
		}
		senders <- c
	}
	var n atomic.Int64
	start := time.Now()
	_, err := during(appendFor, writers, func() error {
		c := <-senders
		_, err := c.Write(message)
		senders <- c
		n.Add(1)
		return err
	})
	if err = errors.Join(err, j.sync()); err != nil {
		return 0, err
	}
	return float64(n.Load()) / time.Since(start).Seconds(), nil
}

// rows are those of the comparison.
func (j *journald) rows(writers []int) ([][]string, error) {
	var rows [][]string
	for _, how := range []struct {
		what     string
		priority int
	}{{"systemd-journald, each message flushed (PRIORITY=2), nobody is told", 2},
		{"systemd-journald, flushed once a second, nobody is told", 6}} {
		row := []string{how.what}
		for _, w := range writers {
			n, err := j.appends(w, how.priority)
			if err != nil {
				return nil, err
			}
			row = append(row, perSecond(n))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

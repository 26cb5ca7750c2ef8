package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestSameMemory: a process has an address space of its own, and no other program has the same one.
func TestSameMemory(t *testing.T) {
	if !sameMemory(os.Getpid(), os.Getpid()) {
		t.Skip("this kernel compares no processes")
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if sameMemory(os.Getpid(), cmd.Process.Pid) {
		t.Error("another program has the same address space")
	}
}

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// A source is where a kernel may come from.
type source struct {
	// Whose programs the machine has.
	suite string
	// The suite with the kernel.
	from    string
	version string // how it must begin
}

// kernels in order, each with its sources, the first that has it being taken.
var kernels = []struct {
	name    string
	sources []source
}{
	{"6.1", []source{{"bookworm", "bookworm", "6.1."}}},
	{"6.12", []source{{"bookworm", "bookworm-backports", "6.12."}, {"trixie", "trixie", "6.12."}}},
	{"newest", []source{{"trixie", "trixie-backports", ""}, {"trixie", "trixie", ""}}},
}

func kernelNames() []string {
	var names []string
	for _, k := range kernels {
		names = append(names, k.name)
	}
	return names
}

// An image is a machine that can be started any number of times: what a run writes to it is thrown
// away.
type image struct {
	dir, suite, kernel string
	// What was wanted and not to be had; empty if it was.
	instead string
}

// exit code of the script
const noSuchKernel = 3

// makeImage returns the image of a kernel, made anew only if the script that makes it has changed,
// or on request.
func makeImage(ctx context.Context, c config, name string, log io.Writer) (image, error) {
	script := filepath.Join(c.tree, ".ci", "vm", "image")
	text, err := os.ReadFile(script)
	if err != nil {
		return image{}, err
	}
	var missing []string
	for _, s := range sources(name) {
		img := image{dir: filepath.Join(c.dir, "image", name), suite: s.suite,
			instead: strings.Join(missing, "; ")}
		mark := fmt.Sprintf("%x %s\n", sha256.Sum256(text), s)
		// If there is none it is made.
		have, _ := os.ReadFile(filepath.Join(img.dir, "made-by"))
		if string(have) != mark || c.fresh {
			fmt.Fprintf(log, "vmtest: making a machine of %s with the kernel of %s\n", s.suite,
				s.from)
			// Another making of it may have /proc and /sys mounted below.
			rm := exec.CommandContext(ctx, "rm", "-rf", "--one-file-system", img.dir)
			rm.Stdout, rm.Stderr = log, log
			if err := rm.Run(); err != nil {
				return image{}, fmt.Errorf("remove %s: %w", img.dir, err)
			}
			cmd := exec.CommandContext(ctx, script, img.dir, s.suite, s.from, s.version)
			cmd.Stdout, cmd.Stderr = log, log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			// What it has started ends with it.
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
			err := cmd.Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok &&
				exit.ExitCode() == noSuchKernel {
				missing = append(missing, fmt.Sprintf("%s has no kernel %s*", s.from, s.version))
				continue
			} else if err != nil {
				return image{}, fmt.Errorf("%s: %w", script, err)
			}
			if err := os.WriteFile(filepath.Join(img.dir, "made-by"), []byte(mark),
				0o644); err != nil {
				return image{}, err
			}
		}
		kernel, err := os.ReadFile(filepath.Join(img.dir, "kernel"))
		img.kernel = strings.TrimSpace(string(kernel))
		return img, err
	}
	return image{}, fmt.Errorf("kernel %s is not to be had here: %s", name,
		strings.Join(missing, "; "))
}

func sources(name string) []source {
	for _, k := range kernels {
		if k.name == name {
			return k.sources
		}
	}
	return nil
}

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// describeHost says on what the figures were made: one paragraph.
func describeHost() (string, error) {
	load, err := loadAverage()
	if err != nil {
		return "", err
	}
	memory, err := field("/proc/meminfo", "MemTotal:")
	if err != nil {
		return "", err
	}
	cpu, err := field("/proc/cpuinfo", "model name")
	if err != nil {
		// Not every processor has a name.
		cpu = runtime.GOARCH
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	distribution, err := field("/etc/os-release", "PRETTY_NAME=")
	if err != nil {
		distribution = "no known distribution"
	}
	groups, err := cgroup.Detect()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(
		"Machine: %d cores (%s), %s memory; Linux %s, control groups %s, %s; built with %s; %s, %s. Load average at the start: %s.",
		runtime.NumCPU(), cpu, gibibytes(memory), bytes.TrimSpace(kernel), groups,
		strings.Trim(distribution, `"`), runtime.Version(),
		version("bwrap"), version("runc"), load), nil
}

// loadAverage returns those of the last one, five and fifteen minutes, as the kernel counts them.
func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(string(text))[:3], " "), nil
}

// field returns what follows a key on the first line that begins with it.
func field(path, key string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), key); ok {
			return strings.TrimLeft(rest, " \t:"), nil
		}
	}
	return "", fmt.Errorf("%s has no %q", path, key)
}

func gibibytes(kib string) string {
	var n float64
	if _, err := fmt.Sscanf(kib, "%g kB", &n); err != nil {
		return kib
	}
	return fmt.Sprintf("%.1f GiB", n/(1<<20))
}

// find returns where a program is, or "": some are in places that only root's PATH has.
func find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	return ""
}

// version is what a program says of itself, on one line.
func version(program string) string {
	path := find(program)
	if path == "" {
		return "no " + program
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return program + " of unknown version"
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(bytes.Replace(line, []byte(" version"), nil, 1))
}

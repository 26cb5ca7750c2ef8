package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// resultSpace is how much the logs of a machine may take.
const resultSpace = 256 << 20

// boots is how often a machine is started anew that came to nothing before its job began: the
// emulator loses a race with the kernel's patching of its own code about once in a hundred times.
const boots = 3

var errStopped = errors.New("stopped")

// boot runs the job in a machine, whose results are then in results/NAME.
func boot(ctx context.Context, c config, img image, j job, log io.Writer) error {
	dir := filepath.Join(c.dir, "results", filepath.Base(img.dir))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for n := 1; ; n++ {
		fmt.Fprintf(log, "vmtest: starting %s\n", img.kernel)
		err := bootOnce(ctx, c.bound, img, j, dir, log)
		if err == nil {
			return nil
		}
		said, readErr := os.ReadFile(filepath.Join(dir, "job.log"))
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		if strings.Contains(string(said), "vm: started") || n == boots || ctx.Err() != nil ||
			errors.Is(err, errStopped) {
			return err
		}
		fmt.Fprintf(log, "vmtest: it came to nothing, %v: once more\n", err)
	}
}

func bootOnce(ctx context.Context, bound time.Duration, img image, j job, dir string,
	log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	results, jobLog := filepath.Join(dir, "results.tar"), filepath.Join(dir, "job.log")
	if err := errors.Join(os.WriteFile(results, nil, 0o644), os.Truncate(results, resultSpace),
		os.WriteFile(jobLog, nil, 0o644)); err != nil {
		return err
	}
	disk := func(id, file, more string) []string {
		return []string{"-drive", "if=none,format=raw,id=" + id + ",file=" + file + "," + more,
			"-device", "virtio-blk-pci,drive=" + id}
	}
	// cmpxchg16b is left out: qemu 7.2 emulates it wrongly, and newer kernels die of that. The
	// processors take turns on one thread: side by side they lose the race against the kernel's
	// patching of its own code now and then (a panic, "Oops: int3").
	audit := "audit=0 "
	if filepath.Base(img.dir) == kernels[len(kernels)-1].name {
		// Off, and a test of what the newest kernel tells may switch it on.
		audit = ""
	}
	args := []string{"-M", "q35", "-accel", "tcg,thread=single,tb-size=1024", "-cpu", "max,-cx16",
		"-m", "3072", "-smp", "2",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + filepath.Join(dir, "console.log"), "-serial", "file:" + jobLog,
		"-kernel", filepath.Join(img.dir, "vmlinux"), "-initrd", filepath.Join(img.dir,
			"initrd.gz"),
		"-append", "console=ttyS0 panic=-1 reboot=t quiet systemd.show_status=0 mitigations=off " +
			audit + "random.trust_cpu=on net.ifnames=0 no_timer_check"}
	args = append(args,
		disk("root", filepath.Join(img.dir, "base.ext4"), "snapshot=on,file.locking=off")...)
	args = append(args, disk("job", j.disk, "snapshot=on,file.locking=off")...)
	args = append(args, disk("results", results, "cache=unsafe")...)
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	// What the machine writes to its disks.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	stop := follow(jobLog, log)
	died := cmd.Run()
	stop()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		died = fmt.Errorf("%w after %v", errStopped, bound)
	}
	// A machine that did not come to its end has saved what it had until then.
	_, err := output(context.WithoutCancel(ctx), dir, nil, "tar", "-xf", results, "-C", dir)
	if err = errors.Join(died, err); err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "rc")); err != nil {
		return fmt.Errorf("the machine ended without results; see %s",
			filepath.Join(dir, "console.log"))
	}
	return os.Remove(results)
}

// follow copies what is added to a file, until it is told to stop.
func follow(path string, to io.Writer) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f, err := os.Open(path)
		if err != nil {
			fmt.Fprintln(to, "vmtest:", err)
			return
		}
		defer f.Close()
		for {
			if _, err := io.Copy(to, f); err != nil {
				return
			}
			select {
			case <-done:
				// It is in the file, too.
				_, _ = io.Copy(to, f)
				return
			case <-time.After(time.Second):
			}
		}
	}()
	return func() { close(done); <-ended }
}

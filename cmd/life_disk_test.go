package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// T-418: no room for the state or the log: the run does not start, and the sentence says what to do. The small file systems are mounted in a mount
// namespace of the commands' own.
func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		name, dir, options, before string
		code                       int
		pattern                    string
	}{
		{"control", "state", "size=1g", "true", 0, ""},
		{"room for less than the limit", "state", "size=64m", "true", 125,
			`the state directory .* has .* left, less than the limit of 512.0 MiB(.|\n)*hint: make room, or take less with --limit workspace=SIZE`},
		{"state full", "state", "size=1m", "head -c 2m /dev/zero > $DIR/ballast", 125, `no space left on device(.|\n)*hint: .*make room`},
		{"state full, used before", "state", "size=1m", "jail ps; head -c 2m /dev/zero > $DIR/ballast", 125, `no space left on device(.|\n)*hint: .*make room`},
		{"state without inodes", "state", "size=1g,nr_inodes=2", "true", 125, `no space left on device(.|\n)*hint: .*make room`},
		{"state that takes no module", "state", "size=512k", "jail ps", 125, `no space left on device(.|\n)*hint: .*make room`},
		{"state, read-only", "state", "ro", "true", 125, `read-only file system`},
		{"log full", "audit", "size=64k", "head -c 1m /dev/zero > $DIR/ballast", 125, `audit log: .*no space left on device(.|\n)*hint: .*make room`},
		{"log full, used before", "audit", "size=64k", "jail ps; head -c 1m /dev/zero > $DIR/ballast; while jail ps; do :; done", 125, `audit log: .*no space left on device(.|\n)*hint: .*make room`},
		{"log without inodes", "audit", "size=1m,nr_inodes=2", "true", 125, `audit log: .*no space left on device(.|\n)*hint: .*make room`},
		{"log, read-only", "audit", "ro", "true", 125, `audit log: .*read-only file system`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			dir := filepath.Join(h.state, c.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := h.program(must(withoutProgram())(t), "-tmpfs", dir+"=mode=0700,"+c.options,
				"sh", "-c", "{ "+c.before+"; } > /dev/null 2>&1; exec jail run --commit -- touch ran")
			cmd.Env = append(cmd.Env, "DIR="+dir)
			h.wants(h.run(cmd), c.code, c.pattern)
			if _, err := os.Stat(filepath.Join(h.work, "ran")); (err == nil) != (c.code == 0) {
				t.Errorf("did the tool run? %v", err)
			}
		})
	}
}

// The log fills up while a daemon runs: what is live ends and is not lost, nothing new starts, and with room again all goes on, with a log that verifies.
func TestLogFillsUp(t *testing.T) {
	h := newHost(t)
	without := must(withoutProgram())(t)
	log := filepath.Join(h.state, "audit")
	if err := os.MkdirAll(log, 0o700); err != nil {
		t.Fatal(err)
	}
	script := `
i=0 code=0
while [ $code = 0 ]; do jail run --no-workspace --id run$i -- true 2>err; code=$?; i=$((i+1)); done
echo "runs=$i code=$code"
cat err >&2
jail audit verify >verify 2>&1; echo "verify=$? $(cat verify)"
mount -o remount,size=4m ` + log + `
jail run --no-workspace --id after -- true; echo "after=$?"
jail audit verify; echo "verify=$?"
`
	cmd := h.program(without, "-tmpfs", log+"=mode=0700,size=48k", "sh", "-c", script)
	o := h.run(cmd)
	var runs, code int
	if _, err := fmt.Sscanf(o.out, "runs=%d code=%d\n", &runs, &code); err != nil || runs < 2 || code != 125 {
		t.Errorf("%d runs before the log was full, then exit code %d (%v)", runs, code, err)
	}
	h.wants(outcome{code: code, err: o.err}, 125, `audit log: .*no space left on device(.|\n)*hint: `)
	for _, want := range []string{"\nafter=0\n", "\nverify=0\n"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("%q is missing in %s", want, o.out)
		}
	}
}

// A file system that fills up while the tool runs is the tool's to see; the rest of the host pays no more than was promised.
func TestDiskFillsUpInRun(t *testing.T) {
	h := newHost(t)
	without := must(withoutProgram())(t)
	state := filepath.Join(h.state, "state")
	// The promise is checked at the start only: somebody else takes the room meanwhile.
	script := `
mkfifo in out
jail run --id victim --limit workspace=64MiB -- "$PROBE" fillwhen 32 < in > out 2>err &
exec 3>in 4<out
read word <&4
head -c 200m /dev/zero > ` + state + `/ballast 2>/dev/null
echo go >&3
exec 3>&-
cat <&4
wait $!
echo "code=$?"
rm ` + state + `/ballast
jail discard victim >/dev/null; echo "discard=$?"
cat err >&2
jail run --discard --limit workspace=64MiB -- touch x; echo "after=$?"
`
	cmd := h.program(without, "-tmpfs", state+"=mode=0700,size=100m", "bash", "-c", script)
	cmd.Env = append(cmd.Env, "PROBE="+h.probe)
	o := h.run(cmd)
	if !strings.Contains(o.out, "code=125\ndiscard=0\nafter=0\n") || !regexp.MustCompile(`jail: error: workspace victim: .*input/output error\njail: hint: jail discard victim`).MatchString(o.err) {
		t.Errorf("%+v", o)
	}
}

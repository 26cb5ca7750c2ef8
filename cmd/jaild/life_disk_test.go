package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// T-418: no room for the state or the log: the run does not start, and the sentence says what to
// do. The small file systems are mounted in a mount namespace of the commands' own.
func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		name, dir, options, before string
		code                       int
		pattern                    string
	}{
		{"control", "state", "size=1g", "true", 0, ""},
		{"room for less than the limit", "state", "size=64m", "true", 125,
			`the state directory .* has .* left, .* a shadow of 512.0 MiB needs (.|\n)*hint: make room, end other runs, or take less with --limit workspace=SIZE`},
		{"state full", "state", "size=1m", "head -c 2m /dev/zero > $DIR/ballast", 125,
			`no space left on device(.|\n)*hint: .*make room`},
		{"state full, used before", "state", "size=1m",
			"jail ps; head -c 2m /dev/zero > $DIR/ballast", 125,
			`no space left on device(.|\n)*hint: .*make room`},
		{"state without inodes", "state", "size=1g,nr_inodes=2", "true", 125,
			`no space left on device(.|\n)*hint: .*make room`},
		{"state that takes no module", "state", "size=512k", "jail ps", 125,
			`no space left on device(.|\n)*hint: .*make room`},
		{"state, read-only", "state", "ro", "true", 125, `read-only file system`},
		{"log full", "audit", "size=64k", "head -c 1m /dev/zero > $DIR/ballast", 125,
			`audit log: .*no space left on device(.|\n)*hint: .*make room`},
		{"log full, used before", "audit", "size=64k",
			"jail ps; head -c 1m /dev/zero > $DIR/ballast; while jail ps; do :; done", 125,
			`audit log: .*no space left on device(.|\n)*hint: .*make room`},
		{"log without inodes", "audit", "size=1m,nr_inodes=2", "true", 125,
			`audit log: .*no space left on device(.|\n)*hint: .*make room`},
		{"log, read-only", "audit", "ro", "true", 125, `audit log: .*read-only file system`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := cmdtest.New(t)
			dir := filepath.Join(h.State, c.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := h.Program(cmdtest.Must(cmdtest.WithoutProgram())(t), "-tmpfs", dir+"=mode=0700,"+c.options,
				"sh", "-c", "{ "+c.before+
					"; } > /dev/null 2>&1; exec jail run --commit -- touch ran")
			cmd.Env = append(cmd.Env, "DIR="+dir)
			h.Wants(h.Run(cmd), c.code, c.pattern)
			if _, err := os.Stat(filepath.Join(h.Work, "ran")); (err == nil) != (c.code == 0) {
				t.Errorf("did the tool run? %v", err)
			}
		})
	}
}

// The log fills up while a daemon runs: what is live ends and is not lost, nothing new starts, and
// with room again all goes on, with a log that verifies.
func TestLogFillsUp(t *testing.T) {
	h := cmdtest.New(t)
	without := cmdtest.Must(cmdtest.WithoutProgram())(t)
	log := filepath.Join(h.State, "audit")
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
	cmd := h.Program(without, "-tmpfs", log+"=mode=0700,size=48k", "sh", "-c", script)
	o := h.Run(cmd)
	var runs, code int
	if _, err := fmt.Sscanf(o.Out, "runs=%d code=%d\n", &runs, &code); err != nil || runs < 2 ||
		code != 125 {
		t.Errorf("%d runs before the log was full, then exit code %d (%v)", runs, code, err)
	}
	h.Wants(cmdtest.Outcome{Code: code, Err: o.Err}, 125,
		`audit log: .*no space left on device(.|\n)*hint: `)
	for _, want := range []string{"\nafter=0\n", "\nverify=0\n"} {
		if !strings.Contains(o.Out, want) {
			t.Errorf("%q is missing in %s", want, o.Out)
		}
	}
}

// The ends that a full log did not take are on record once a daemon starts with room again: of runs
// and of a session, each once, with what their callers were told.
func TestLogFullAtEnd(t *testing.T) {
	h := cmdtest.New(t)
	log := filepath.Join(h.State, "audit")
	if err := os.MkdirAll(log, 0o700); err != nil {
		t.Fatal(err)
	}
	script := `
# Without a daemon a command has one of its own, which would take the place of this one.
serve() {
	jaild >/dev/null 2>&1 & daemon=$!
	until [ -S "$JAIL_STATE/jail.sock" ]; do sleep 0.01; done
}
serve
jail session start --profile build --id held 2>/dev/null
mkfifo in out
jail run --id live -- "$PROBE" lines < in > out 2>err &
live=$!
exec 3>in 4<out
echo hello >&3; read word <&4
head -c 1m /dev/zero > ` + log + `/ballast
i=0
while jail run --no-workspace --id run$i -- true 2>/dev/null; do i=$((i+1)); done
# Records that are smaller than any end fill the rest.
jail run --no-workspace --id small -- x 2>/dev/null
while [ $? = 127 ]; do jail run --no-workspace --id small -- x 2>/dev/null; done
exec 3>&-
wait $live; echo "live=$?"
jail session stop held; echo "held=$?"
kill $daemon; wait $daemon
rm -f ` + log + `/ballast "$JAIL_STATE/jail.sock"
serve
until jail run --no-workspace --id after -- true 2>/dev/null; do :; done
kill $daemon; wait $daemon
for type in run.started run.finished; do
	jail audit show --json --type $type | sed "s/.*\"run\":\"\([^\"]*\)\".*/$type \1/"
done
jail audit show --json --type run.finished --run live
jail audit verify; echo "verify=$?"
`
	cmd := h.Program(cmdtest.Must(cmdtest.WithoutProgram())(t), "-tmpfs", log+"=mode=0700,size=96k", "bash", "-c",
		script)
	cmd.Env = append(cmd.Env, "PROBE="+h.Probe)
	o := h.Run(cmd)
	// ids, but of those that were never to start
	on := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^(run\.\w+) (\S+)$`).FindAllStringSubmatch(o.Out,
		-1) {
		if m[2] == "small" {
			continue
		}
		on[m[1]] = append(on[m[1]], m[2])
	}
	begun, ended := on["run.started"], on["run.finished"]
	slices.Sort(begun)
	slices.Sort(ended)
	for _, id := range begun {
		if !slices.Contains(ended, id) {
			t.Errorf("%s has no end", id)
		}
	}
	if len(slices.Compact(slices.Clone(ended))) != len(ended) || !slices.Contains(begun, "live") ||
		!slices.Contains(begun, "held") {
		t.Errorf("started %q, ended %q", begun, ended)
	}
	for _, want := range []string{"live=125\n", "held=125\n",
		`"type":"run.finished"(.*)"exit_code":125(.*)no space left on device`, "verify=0\n"} {
		if !regexp.MustCompile(want).MatchString(o.Out) {
			t.Errorf("%q is missing in %+v", want, o)
		}
	}
}

// The disk of the state fills up while a tool writes to its shadow. The run is ended with the
// reason, what the disk has of the shadow is kept, and the rest is named.
func TestDiskFillsUpInRun(t *testing.T) {
	h := cmdtest.New(t)
	state := filepath.Join(h.State, "state")
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
jail diff victim
rm ` + state + `/ballast
jail discard victim >/dev/null; echo "discard=$?"
cat err >&2
jail run --discard --limit workspace=64MiB -- touch x; echo "after=$?"
`
	o := onSmallDisk(h, state, script)
	if !regexp.MustCompile(`code=125\n(.|\n)*\(damaged: (.|\n)*discard=0\nafter=0\n`).MatchString(
		o.Out) ||
		!regexp.MustCompile(
			`jail: error: workspace victim: .*no space on the host.*damaged(.|\n)*jail: hint: make room`).MatchString(o.Err) {
		t.Errorf("%+v", o)
	}
}

// The same while a session is open: its invocation is told, and what tools had written before is
// committed.
func TestDiskFillsUpInSession(t *testing.T) {
	h := cmdtest.New(t)
	state := filepath.Join(h.State, "state")
	script := `
jaild >/dev/null 2>&1 &
until jail session start --profile build --id s --limit workspace=64MiB --keep 2>/dev/null; do :; done
jail run --id second --limit workspace=64MiB -- true; echo "second=$?"
mkfifo in out
jail session exec s -- sh -c "mkdir d; echo early >d/early; echo written; read go; head -c 48M /dev/zero | tr '\0' y >late; sleep 1000" <in >out &
exec 3>in 4<out
read word <&4
sync # as the kernel does by itself after half a minute
head -c 200m /dev/zero > ` + state + `/ballast 2>/dev/null
echo go >&3
wait %2; echo "late=$?"
jail session stop s; echo "stop=$?"
rm ` + state + `/ballast
jail diff s; jail commit s; echo "commit=$?"
cat d/early; ls late
jail discard s
kill %1; wait
`
	o := onSmallDisk(h, state, script)
	if !regexp.MustCompile(
		`second=125\nlate=125\n(.|\n)*late +\(damaged: (.|\n)*commit=0\nearly\n`).MatchString(
		o.Out) {
		t.Errorf("%+v", o)
	}
	for _, want := range []string{"shadows that are being written may still take",
		"session s was ended: .*no space on the host", "cannot access 'late'"} {
		if !regexp.MustCompile(want).MatchString(o.Err) {
			t.Errorf("%q is not in %s", want, o.Err)
		}
	}
}

// onSmallDisk runs a script with a state directory of 100 MiB.
func onSmallDisk(h *cmdtest.Host, state, script string) cmdtest.Outcome {
	h.T.Helper()
	cmd := h.Program(cmdtest.Must(cmdtest.WithoutProgram())(h.T), "-tmpfs", state+"=mode=0700,size=100m", "bash",
		"-c", script)
	cmd.Env = append(cmd.Env, "PROBE="+h.Probe)
	return h.Run(cmd)
}

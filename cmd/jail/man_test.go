package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/config"
)

const manuals = "../../docs/man/"

// jail(1) is made of what the commands say of themselves, so that it has every command and every
// flag, and says the same.
func TestManualOfJail(t *testing.T) {
	text := manual(newRoot(&cli.Env{}))
	path := manuals + "jail.1"
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(was, text) {
		t.Errorf("%s is not what the commands say; go test ./cmd/jail -update writes it anew", path)
	}
}

func manual(root *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b,
		".\\\" Made of the help of jail's commands by cmd/jail/man_test.go; changes here are "+
			"lost.\n.TH JAIL 1 \"\" \"jail %s\" \"jail\"\n", config.Version)
	b.WriteString(
		".SH NAME\njail \\- run tools that nobody trusts\n.SH SYNOPSIS\n.B jail\n.I COMMAND\n" +
			"[\\fIflags\\fR] [\\fIarguments\\fR]\n.SH DESCRIPTION\n" + roff(root.Long) + "\n")
	b.WriteString(".SH COMMANDS\n")
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.HasParent() {
			manualOf(&b, cmd)
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				visit(sub)
			}
		}
	}
	visit(root)
	b.WriteString(`.SH EXIT STATUS
.TP
the tool's own
it ran and ended by itself
.TP
.B 124
ended by a time limit
.TP
.B 125
jail itself failed; the tool was not started, or was stopped for our fault
.TP
.B 126
refused by policy, or a layer of the stack cannot be enforced here
.TP
.B 127
no such tool, profile, run or file
.TP
.BI 128+ n
ended by signal
.I n
.TP
.B 2
a wrong command line
.SH ENVIRONMENT
.TP
.B JAIL_SOCKET
the daemon's socket; /run/jail/jail.sock where it is not set. The commands of
.B jail audit
that take
.BR \-\-log ,
and
.BR "jail console" ,
ask that daemon where its log is
.TP
.B JAIL_STATE
a directory that holds state, log, settings, pulled bundles and socket of a daemon of one's own; ceiling and profiles stay those of /etc/jail
.TP
.B NO_COLOR
no colours, whatever it is set to
.SH SEE ALSO
.BR jaild (8),
.BR jail-policy (5),
.BR jail-audit (5)
`)
	return b.Bytes()
}

func manualOf(b *bytes.Buffer, cmd *cobra.Command) {
	usage := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		usage = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(b, ".SS %s\n", roff(usage))
	about := cmd.Long
	if about == "" {
		about = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	b.WriteString(roff(strings.TrimSpace(about)) + "\n")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, about := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s", roff(about))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
		}
		b.WriteString("\n")
	})
	if cmd.Example != "" {
		fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimRight(cmd.Example, "\n")))
	}
}

// roff writes text so that nothing of it is an instruction (groff(7)).
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "\n\n", "\n.PP\n").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") && line != ".PP" {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func readManual(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(manuals + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "").Replace(string(text))
}

// Each flag of jaild, each key of the settings that it reads, and each signal is in jaild(8).
func TestManualOfJaild(t *testing.T) {
	source, err := os.ReadFile("../jaild/main.go")
	if err != nil {
		t.Fatal(err)
	}
	text := readManual(t, "jaild.8")
	flags := regexp.MustCompile(`flags\.\w+\("([a-z]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(flags) < 4 {
		t.Fatalf("jaild has flags %v", flags)
	}
	// For jail and jaild themselves.
	internal := []string{"private", "successor"}
	for _, f := range flags {
		if !slices.Contains(internal, f[1]) && !strings.Contains(text, "--"+f[1]) {
			t.Errorf("jaild(8) has no --%s", f[1])
		}
	}
	settings, err := os.ReadFile("../../supervisor/config/settings.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range regexp.MustCompile(`json:"([a-z]+)"`).FindAllStringSubmatch(
		string(settings), -1) {
		if !regexp.MustCompile(`(?m)^\.(B|BR|SS) \[?` + key[1] + `\b`).MatchString(text) {
			t.Errorf("jaild(8) has no setting %s", key[1])
		}
	}
	for _, sig := range []string{"SIGHUP", "SIGUSR2", "SIGTERM"} {
		if !strings.Contains(text, sig) {
			t.Errorf("jaild(8) says nothing of %s", sig)
		}
	}
}

// The keys of a policy file in jail-policy(5) are those of the schema, which is made of what the
// parser knows.
func TestManualOfPolicies(t *testing.T) {
	const begin, end = ".\\\" keys, from policy.schema.json\n", ".\\\" end of keys\n"
	path := manuals + "jail-policy.5"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("../../docs/policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root schemaPart
	if err := json.Unmarshal(schema, &root); err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the keys", path)
	}
	var keys strings.Builder
	root.keys(&keys, "")
	want := before + begin + keys.String() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s has not the keys of the schema; go test ./cmd/jail -update writes them anew",
			path)
	}
}

// schemaPart is what the manual says of a part of the schema.
type schemaPart struct {
	Description string
	Enum        []any
	Properties  map[string]*schemaPart
	Items       *schemaPart
	Additional  any `json:"additionalProperties"`
}

// keys writes each key of a section with what it is. What takes items out again, and what narrows
// single tools, has the keys of the rest.
func (p *schemaPart) keys(b *strings.Builder, section string) {
	var names, sections []string
	for name, sub := range p.Properties {
		if sub.Properties != nil || sub.Items != nil && sub.Items.Properties != nil {
			sections = append(sections, name)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Sort(sections)
	for _, name := range names {
		sub := p.Properties[name]
		fmt.Fprintf(b, ".TP\n.B %s\n%s", roff(name), roff(sub.Description))
		var values []string
		for _, v := range sub.Enum {
			values = append(values, fmt.Sprint(v))
		}
		if len(values) > 0 {
			fmt.Fprintf(b, " (%s)", roff(strings.Join(values, ", ")))
		}
		if sub.Description == "" && len(values) == 0 {
			b.WriteString("see below")
		}
		b.WriteString("\n")
	}
	for _, name := range sections {
		sub, path, open, closing := p.Properties[name], section+name, "[", "]"
		if sub.Properties == nil {
			sub, open, closing = sub.Items, "[[", "]]"
		}
		fmt.Fprintf(b, ".SS %s%s%s\n", open, roff(path), closing)
		if name == "without" {
			b.WriteString(
				"Takes out again what is inherited: the same sections and keys, each a list of " +
					"patterns or names.\n")
			continue
		}
		sub.keys(b, path+".")
	}
}

// Each type of record is in jail-audit(5).
func TestManualOfTheLog(t *testing.T) {
	text := readManual(t, "jail-audit.5")
	source, err := os.ReadFile("../../supervisor/audit/event.go")
	if err != nil {
		t.Fatal(err)
	}
	types := regexp.MustCompile(`(?m)^\tType\w+\s*(?:\w+\s*)?= "([a-z_.]+)"`).FindAllStringSubmatch(
		string(source), -1)
	if len(types) < 10 {
		t.Fatalf("the log has types %v", types)
	}
	for _, m := range types {
		if !strings.Contains(text, m[1]) {
			t.Errorf("jail-audit(5) has no type %s", m[1])
		}
	}
}

// No manual has an instruction that is none, where there is a judge of that.
func TestManualsAreWellFormed(t *testing.T) {
	names, err := os.ReadDir(manuals)
	if err != nil {
		t.Fatal(err)
	}
	judge, err := exec.LookPath("groff")
	for _, n := range names {
		text := readManual(t, n.Name())
		if !strings.Contains(text, "\n.SH NAME\n") || !strings.Contains(text,
			"\n.SH DESCRIPTION\n") || !strings.Contains(text, "\n.SH SEE ALSO\n") {
			t.Errorf("%s has no NAME, DESCRIPTION or SEE ALSO", n.Name())
		}
		known := regexp.MustCompile(
			`^\.(\\"|TH|SH|SS|PP|TP|B|BI|BR|I|IR|RI|IP|RS|RE|nf|fi|RB)\b|^\.\\"`)
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, ".") && !known.MatchString(line) {
				t.Errorf("%s:%d: %q is no instruction", n.Name(), i+1, line)
			}
		}
		if err != nil {
			continue
		}
		if out, err := exec.Command(judge, "-k", "-man", "-Tutf8", "-ww", "-z",
			manuals+n.Name()).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", n.Name(), err, out)
		}
	}
}

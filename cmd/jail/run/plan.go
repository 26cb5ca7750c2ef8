package run

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// NewPlan returns the command jail plan.
func NewPlan(env *cli.Env) *cobra.Command {
	var f request.Flags
	var script string
	cmd := &cobra.Command{
		Use:   "plan [flags] [--] TOOL [ARG...]",
		Short: "show the plan of a run, and start nothing",
		Long: "Show what the kernel would enforce for a run, layer by layer, and " +
			"start nothing. The flags are those of run.",
		Example: "  jail plan --limit memory=64MiB -- sort big.txt\n" +
			"  jail plan --json -- grep x .\n  jail plan --sh 'sort < in | uniq -c > out'",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: complete.Tool(env),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var req message.Request
			if cmd.Flags().Changed("sh") {
				text := &message.Script{Name: "-c", Text: script}
				req, err = requestOf(env, cmd, &f, text, args)
			} else {
				req, err = f.Request(env, cmd, args)
			}
			if err != nil {
				return err
			}
			return runPlan(cmd.Context(), env, req, f.JSON)
		},
	}
	f.Add(cmd, "print the plan as an object")
	cmd.Flags().StringVar(&script, "sh", "",
		"show the plan of the shell script `SCRIPT`, and the tool of each command")
	return cmd
}

func runPlan(ctx context.Context, env *cli.Env, req message.Request, asJSON bool) error {
	return env.WithDaemon(ctx, func(c *api.Client) error {
		p, err := c.Plan(ctx, req)
		if err != nil {
			return err
		}
		return env.Show(asJSON, p, func(w io.Writer) { writePlan(w, p) })
	})
}

// writePlan writes a plan layer by layer, the outermost first.
func writePlan(w io.Writer, p jail.Plan) {
	rows := [][]string{
		{"run", string(p.ID)},
		{"policy", p.Policy},
		{"layers", layersText(p.Layers)},
		{"watched", fmt.Sprintf("wall %s, cpu time %s, output %s", p.Limits.Wall, p.Limits.CPUTime,
			output.Size(p.Limits.Output))},
		{"cgroup", p.Cgroup.Path},
		{"", fmt.Sprintf("memory %s, cpu %s, tasks %d, goes first when memory runs out (%+d)",
			output.Size(p.Cgroup.Memory), quota(p.Cgroup), p.Cgroup.PIDs,
			p.Cgroup.OOMScore) + bandwidth(p.Cgroup)},
	}
	rows = append(rows, outerRows(p.Outer)...)
	rows = append(rows, [][]string{
		{"namespaces", joined(p.Namespaces)},
		{"ids", fmt.Sprintf("uid %d gid %d inside; %d to %d on the host", p.IDs.UID, p.IDs.GID,
			p.IDs.Base, uint64(p.IDs.Base)+uint64(p.IDs.Size)-1)},
	}...)
	for _, m := range p.IDs.Extra {
		rows = append(rows,
			[]string{"", fmt.Sprintf("and %d inside is %d on the host", m.Inside, m.Host)})
	}
	rows = append(rows, []string{"hostname", p.Hostname}, []string{"root", rootText(p)})
	for i, m := range p.Mounts {
		rows = append(rows, []string{output.Once(i, "mounts"), mountText(m)})
	}
	rows = append(rows, []string{"devices", joined(p.Devices)},
		[]string{"workspace", workspaceText(p.Workspace)})
	rows = append(rows, []string{"capabilities", cmp.Or(joined(p.Capabilities), "none")},
		[]string{"privileges",
			map[bool]string{true: "none can be gained", false: "can be gained"}[p.NoNewPrivileges]},
		[]string{"outer filter", filterText(p.OuterFilter)})
	for i, r := range p.Landlock.Rules {
		rows = append(rows, []string{output.Once(i, "landlock"),
			r.Path + "  " + access(r.Write, r.Exec) + alsoMay(r)})
	}
	if p.KernelInside() {
		rows = append(rows, []string{"landlock", "none inside: see the outer layer"})
	}
	reported := map[bool]string{true: "; refusals are reported"}[p.Landlock.Told]
	if !p.KernelInside() {
		rows = append(rows,
			[]string{"", portsText(p.Landlock) + fmt.Sprintf("version %d or newer, nothing else",
				p.Landlock.MinABI) + reported})
	}
	for i, r := range p.Rlimits {
		rows = append(rows, []string{output.Once(i, "rlimits"), r.Name + " " +
			strconv.FormatUint(r.Value, 10)})
	}
	rows = append(rows, ceilingRows(p.Ceiling)...)
	rows = append(rows, []string{"inner filter", filterText(p.InnerFilter)},
		[]string{"tool",
			fmt.Sprintf("%s (%s, %s)", p.Command.Tool, p.Command.Runner, p.Command.Digest)},
		[]string{"arguments", joined(p.Command.Args)}, []string{"variables",
			cmp.Or(joined(p.Command.Env), "none")}, []string{"directory", p.Command.Cwd})
	if p.FileEvents != "" {
		rows = append(rows, []string{"file events", p.FileEvents + ", put on record"})
	}
	for i, c := range p.Command.Script {
		rows = append(rows, []string{output.Once(i, "commands"), scriptText(c)})
	}
	output.Table(w, rows)
}

func rootText(p jail.Plan) string {
	if image := p.ImageRoot(); image != nil {
		return "image " + image.Name + "; what is written to it ends with the run"
	}
	return "a fresh tmpfs, read-only"
}

// outerRows returns rows for the outer sandbox, and for what replaces the layers that are missing
// inside it. o may be nil.
func outerRows(o *jail.Outer) [][]string {
	if o == nil {
		return nil
	}
	rows := [][]string{{"outer layer", fmt.Sprintf("%s, %s (%s)", o.Layer, o.Runtime.Path,
		o.Runtime.Version)}, {"", o.Runtime.Digest}}
	for _, i := range o.Instead {
		rows = append(rows, []string{"", "in place of " + i.Layer + ": " + i.By})
	}
	return rows
}

func layersText(all []jail.Layer) string {
	var texts []string
	for _, l := range all {
		texts = append(texts, fmt.Sprintf("%s (%s)", l.Name, l.Source))
	}
	return strings.Join(texts, " ∧ ")
}

// ceilingRows returns rows for the host's ceiling, which the kernel enforces beside the plan. c may
// be nil.
func ceilingRows(c *jail.Ceiling) [][]string {
	if c == nil {
		return nil
	}
	rows := [][]string{{"ceiling", "the host's own layers around these, " + c.Policy}}
	if g := c.Cgroup; g != nil {
		rows = append(rows, []string{"  cgroup", g.Path},
			[]string{"", fmt.Sprintf("memory %s, cpu %s, tasks %s", cmp.Or(amount(g.Memory),
				"no bound"), quota(*g), cmp.Or(countText(g.PIDs), "no bound"))})
	}
	for i, r := range c.Landlock.Rules {
		rows = append(rows, []string{output.Once(i, "  landlock"),
			r.Path + "  " + access(r.Write, r.Exec) + alsoMay(r)})
	}
	return append(rows, []string{"", portsText(c.Landlock) + "nothing else"},
		[]string{"  filter", filterText(c.Filter)})
}

func amount(n int64) string {
	if n <= 0 {
		return ""
	}
	return output.Size(n)
}

func countText(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// scriptText returns a line about a command of a script: its position, text, and tool or why it is
// refused.
func scriptText(c jail.ScriptCommand) string {
	text := fmt.Sprintf("%d:%d  %s  ", c.Line, c.Column, c.Text)
	switch {
	case c.Refused != "":
		return text + "REFUSED: " + c.Refused
	case c.Tool == "":
		return text + "(found when it runs, among the tools that the policy allows)"
	}
	text += "(" + c.Tool
	if n := c.Needs; n != nil {
		text += "; its bundle keeps it to hosts: " + cmp.Or(strings.Join(n.Hosts, " "), "none") +
			"; mounts: " + cmp.Or(strings.Join(n.Mounts, " "), "none")
	}
	return text + ")"
}

func joined[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = string(t)
	}
	return strings.Join(texts, " ")
}

// bandwidth returns the limits on disk bandwidth as text, "" for none.
func bandwidth(c jail.Cgroup) string {
	text := ""
	if c.IORead > 0 {
		text += ", disks read at " + output.Size(c.IORead) + "/s"
	}
	if c.IOWrite > 0 {
		text += ", disks written at " + output.Size(c.IOWrite) + "/s"
	}
	return text
}

func quota(c jail.Cgroup) string {
	if c.CPUQuota == 0 || c.CPUPeriod == 0 {
		return "all"
	}
	return strconv.FormatFloat(float64(c.CPUQuota)/float64(c.CPUPeriod), 'f', -1, 64)
}

func access(write, exec bool) string {
	text := "read"
	if write {
		text += ", write"
	}
	if exec {
		text += ", execute"
	}
	return text
}

func mountText(m jail.Mount) string {
	text := fmt.Sprintf("%s  %s, %s", m.Target, m.Kind, access(m.Write, m.Exec))
	if m.Source != "" {
		text += ", from " + m.Source
	}
	if m.Size > 0 {
		text += fmt.Sprintf(", at most %s", output.Size(m.Size))
	}
	if m.Files > 0 {
		text += fmt.Sprintf(" and %d files", m.Files)
	}
	return text
}

func workspaceText(s *jail.Workspace) string {
	switch {
	case s == nil:
		return "none"
	case !s.Shadow:
		return fmt.Sprintf("%s  %s itself, read-only", s.Target, s.Source)
	}
	text := fmt.Sprintf("%s  a shadow of %s, at most %s and %d files", s.Target, s.Source,
		output.Size(s.Bytes), s.Files)
	if s.Exec {
		text += ", whose programs may run"
	}
	return text
}

func alsoMay(r jail.LandlockRule) string {
	text := ""
	if r.Device {
		text += ", devices"
	}
	if r.Pipes {
		text += ", named pipes and sockets"
	}
	return text
}

// portsText returns which TCP ports of its loopback interface the jail may use, "" for none.
func portsText(l jail.Landlock) string {
	switch {
	case l.Network:
		return "any port of its own loopback; "
	case len(l.Ports) > 0:
		return fmt.Sprintf("TCP ports %v of its own loopback; ", l.Ports)
	}
	return ""
}

func filterText(f seccomp.Filter) string {
	text := fmt.Sprintf("%d system calls (%s)", len(f.Allow), strings.Join(f.Groups, " "))
	for _, c := range f.Only {
		text += ", " + c.String()
	}
	return text + ", others fail with " + f.Errno
}

// Package service has the commands about this host and its daemon: doctor, verify, top, console,
// version and completion.
package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/hoststatus"
)

// A diagnosis is the result of jail doctor, as --json prints it.
type diagnosis struct {
	OK       bool            `json:"ok"`
	Findings []probe.Finding `json:"findings"`
	Daemon   string          `json:"daemon"`
	// Refused says whether the kernel reports what Landlock refuses. No isolation depends on it.
	Refused string `json:"refused_paths"`
}

// NewDoctor returns the command jail doctor.
func NewDoctor(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "report what this host can enforce, and how to mend what it cannot",
		Long: `Check what this host can enforce, and say how to mend what it cannot. Each check
tries the feature if that leaves nothing behind, and answers yes, no or unknown. If a daemon
answers, the daemon runs the checks, because a service may lack rights that your shell has. The
command also lists the internal hosts of fetch.toml. It exits with 0 if everything that a run
needs is available, else with 1.`,
		Example: "  jail doctor\n  sudo jail doctor --json",
		Args:    command.Exactly(),
	}
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := diagnose(cmd.Context(), env)
		if err := env.Show(asJSON, d, func(w io.Writer) {
			writeDiagnosis(w, d, env.Colour())
		}); err != nil {
			return err
		}
		if !d.OK {
			return exit.No
		}
		return nil
	}
	return cmd
}

func diagnose(ctx context.Context, env *cli.Env) diagnosis {
	daemon, findings := lookAtHost(ctx, env)
	wanting := slices.ContainsFunc(findings,
		func(f probe.Finding) bool { return f.Answer != probe.Yes && f.Answer != probe.Off })
	return diagnosis{!wanting, findings, daemon,
		refusedText(env.Config.Settings, denials.Available)}
}

// refusedText returns whether results name the paths that Landlock denied to programs of the host,
// and if not, how to enable that. path is the daemon's settings file.
func refusedText(path string, available func() error) string {
	settings, err := config.ReadSettings(path)
	if err != nil {
		return "refusals of programs are perhaps not reported: " + exit.Cause(err).Error()
	}
	err = available()
	ask := "[denied] landlock = true in " + path
	if settings.Denied.Landlock {
		ask = ""
	}
	switch {
	case errors.Is(err, denials.ErrOff):
		return strings.TrimSuffix("refusals of programs are not reported: "+err.Error()+
			"; to get them: auditctl -e 1, or audit=1 on the kernel's command line, and "+ask,
			", and ")
	case err != nil:
		return fmt.Sprintf("refusals of programs are not reported: %v", err)
	case ask != "":
		return "refusals of programs are not reported, though the host's audit is on; to get them: " + ask
	}
	return "refusals of programs are reported, by the host's audit"
}

// byUrgency returns the findings sorted: no, unknown, yes. The sort is stable, since findings that
// others depend on come first.
func byUrgency(findings []probe.Finding) []probe.Finding {
	urgency := map[probe.Answer]int{probe.No: 0, probe.Unknown: 1, probe.Yes: 2, probe.Off: 2}
	return slices.SortedStableFunc(slices.Values(findings),
		func(a, b probe.Finding) int { return urgency[a.Answer] - urgency[b.Answer] })
}

func writeDiagnosis(w io.Writer, d diagnosis, colour bool) {
	words := map[probe.Answer]string{
		probe.Yes: terminal.Paint(colour, terminal.Green, "yes"), probe.No: terminal.Paint(colour,
			terminal.Red, "no "), probe.Unknown: terminal.Paint(colour, terminal.Amber, "?  "),
		probe.Off: "off",
	}
	ordered := byUrgency(d.Findings)
	missing := slices.IndexFunc(append(ordered, probe.Finding{Answer: probe.Yes}),
		func(f probe.Finding) bool { return f.Answer == probe.Yes || f.Answer == probe.Off })
	verdict := "all that a run needs is there"
	if missing > 0 {
		verdict = output.Count(missing, "thing has", "things have") +
			" to be looked at before all runs work; they come first"
	}
	fmt.Fprintf(w, "%s\n\n", terminal.Paint(colour, terminal.Bold, verdict))
	for _, f := range ordered {
		fmt.Fprintf(w, "%s  %-18s %s\n", words[f.Answer], f.Name,
			output.Printable(strings.ReplaceAll(f.Detail, "\n", "; ")))
		if f.Fix != "" {
			fmt.Fprintf(w, "     %-18s %s\n", "", terminal.Paint(colour, terminal.Bold, f.Fix))
		}
	}
	fmt.Fprintf(w, "     %-18s %s\n     %-18s %s\n", "refused paths",
		output.Printable(d.Refused), "daemon", output.Printable(d.Daemon))
}

// lookAtHost returns the state of the daemon that this user's runs would use, and the findings
// about the host. A daemon that answers makes the checks, since its rights differ from those of
// this process. If none listens, each command starts a private one, and this process makes the
// checks.
func lookAtHost(ctx context.Context, env *cli.Env) (daemon string, findings []probe.Finding) {
	c, err := api.Dial(ctx, env.Config.Socket)
	switch {
	case err == nil:
		defer c.Close()
		return daemonFindings(ctx, env, c)
	case client.NobodyListens(err):
		findings = append(probed(ctx, env), hoststatus.Installed(env.Config)...)
		findings = append(findings, hoststatus.OuterLayers(env.Config,
			hoststatus.RuntimesOf(env.Config))...)
		findings = append(findings, policyFiles(ctx, env))
		findings = append(findings, hoststatus.Approvals(env.Config),
			hoststatus.Fetches(env.Config, false))
		findings = append(findings, hoststatus.Anchors(env.Config)...)
		return fmt.Sprintf("none answers on %s (%v); each command has a private one",
			env.Config.Socket, exit.Cause(err)), findings
	case errors.Is(err, fs.ErrPermission):
		return noDaemon(
			fmt.Sprintf("this user may not connect to %s, and no run is started without it",
				env.Config.Socket), client.MayConnect)
	}
	return noDaemon(fmt.Sprintf("socket %s: %v", env.Config.Socket, exit.Cause(err)),
		"JAIL_SOCKET names the daemon's socket")
}

// noDaemon returns the only finding if no run can start because the daemon cannot be reached.
func noDaemon(why, fix string) (string, []probe.Finding) {
	return why, []probe.Finding{{Name: "daemon", Answer: probe.No, Detail: why, Fix: fix}}
}

func daemonFindings(ctx context.Context, env *cli.Env, c *api.Client) (string, []probe.Finding) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return noDaemon(fmt.Sprintf("what listens on %s does not answer: %v", env.Config.Socket,
			err), "look whether that is jaild, and whether it is well: systemctl status jaild")
	}
	daemon := fmt.Sprintf("jaild %s answers on %s", v.Version, env.Config.Socket)
	host, err := c.Host(ctx)
	if err != nil {
		return daemon, []probe.Finding{{Name: "daemon", Answer: probe.Unknown,
			Detail: fmt.Sprintf("%s, and does not say what it can enforce: %v", daemon, err),
			Fix: "restart it where it is older than jail " + config.Version +
				": systemctl restart jaild"}}
	}
	return daemon, append(host.Findings, policyFiles(ctx, env))
}

// policyFiles returns whether the policy files on disk are in force. It asks the daemon, or reads
// them if there is none.
func policyFiles(ctx context.Context, env *cli.Env) probe.Finding {
	f := probe.Finding{Name: "policy files", Answer: probe.Yes}
	if c, err := api.Dial(ctx, env.Config.Socket); err == nil {
		defer c.Close()
		if status, err := c.Policy(ctx); err == nil {
			if status.Error != "" {
				return brokenPolicy(
					fmt.Sprintf(
						"what is on the disk is not all in force (%d refused since the start): %s",
						status.Failures, status.Error))
			}
			f.Detail = "the shipped profiles; there are no others"
			if status.Digest != "" {
				f.Detail = fmt.Sprintf("in force since %s, %s",
					status.Loaded.Format("2006-01-02 15:04:05"), status.Digest)
			}
			return f
		}
	}
	source, err := profiles.Open(profiles.Options{Dir: env.Config.Profiles,
		Ceiling: env.Config.Ceiling})
	if err == nil {
		err = source.Status().Err
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return probe.Finding{Name: f.Name, Answer: probe.Unknown, Detail: err.Error(),
			Fix: "run jail doctor as root"}
	case err != nil:
		return brokenPolicy(err.Error())
	}
	if f.Detail = "the shipped profiles; there are no others"; source.Status().Digest != "" {
		f.Detail = strings.TrimSpace(source.Status().Digest)
	}
	return f
}

func brokenPolicy(why string) probe.Finding {
	return probe.Finding{Name: "policy files", Answer: probe.No, Detail: why,
		Fix: "jail policy check says what is wrong, and where"}
}

// probeTime bounds the checks by a daemon or by the user's jaild.
const probeTime = 30 * time.Second

// probed returns what this host can enforce for runs without a shared daemon. For an ordinary user,
// the user's own jaild makes the checks in its namespaces, unless a check here fails already.
func probed(ctx context.Context, env *cli.Env) []probe.Finding {
	here := probe.All(hoststatus.Existing(env.Config.StateDir), env.Config.Slice)
	if os.Geteuid() == 0 {
		return here
	}
	for _, f := range here {
		// Free room on the disk is a finding, but no layer.
		if f.Answer == probe.No && f.Name != probe.RoomName {
			return here
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, config.Jaild(env.Exe), "--probe")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var inside []probe.Finding
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &inside)
	}
	if err != nil {
		return append(here, probe.Finding{Name: "jaild as a user", Answer: probe.No,
			Detail: exit.Cause(err).Error() + ": " + string(bytes.TrimSpace(errOut.Bytes())),
			Fix:    "start jaild as this user, and see what it says"})
	}
	return inside
}

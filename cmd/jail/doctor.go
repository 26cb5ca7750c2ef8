package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// A diagnosis is what doctor found, as --json shows it.
type diagnosis struct {
	OK       bool            `json:"ok"`
	Findings []probe.Finding `json:"findings"`
	Daemon   string          `json:"daemon"`
	Refused  string          `json:"refused_paths"` // whether it is told what Landlock refuses; no wall depends on it
}

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "say what this host can enforce, and what to do about what it cannot",
		Long: `Say what this host can enforce, by trying it where that leaves nothing behind, and what to do about what it cannot.
Each answer is yes, no, or that it could not be told. Exits with 0 if all that a run needs is there, and with 1 if not.`,
		Example: "  jail doctor\n  sudo jail doctor --json",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := a.diagnose(cmd.Context())
		if err := a.show(*asJSON, d, func(w io.Writer) error { return writeDiagnosis(w, d, a.colour()) }); err != nil {
			return err
		}
		if !d.OK {
			return exitNo
		}
		return nil
	}
	return cmd
}

func (a *app) diagnose(ctx context.Context) diagnosis {
	findings := append(a.probed(ctx),
		program("jail-shim", a.config.Shim), program("jail-init", a.config.Init), program("jaild", supervisor.Jaild(a.exe)),
		bundles(a.config.Places()), writable("state directory", a.config.StateDir), writable("audit log", a.config.LogDir))
	findings = append(findings, a.policyFiles(ctx))
	findings = append(findings, a.anchorFindings()...)
	wanting := slices.ContainsFunc(findings, func(f probe.Finding) bool { return f.Answer != probe.Yes })
	return diagnosis{!wanting, findings, a.daemonText(ctx), refusedText(a.config.Settings, denials.Available)}
}

// refusedText says whether the paths that Landlock refuses to programs of the host are told, and what to do where they are not.
func refusedText(path string, available func() error) string {
	settings, err := supervisor.ReadSettings(path)
	if err != nil {
		return "whether those of programs are told cannot be said: " + cause(err).Error()
	}
	err = available()
	ask := "[denied] landlock = true in " + path
	if settings.Denied.Landlock {
		ask = ""
	}
	switch {
	case errors.Is(err, denials.ErrOff):
		return strings.TrimSuffix("those of programs are not told: "+err.Error()+"; to have them told: auditctl -e 1, or audit=1 on the kernel's command line, and "+ask, ", and ")
	case err != nil:
		return fmt.Sprintf("those of programs are not told: %v", err)
	case ask != "":
		return "those of programs are not told, though the host's audit is on; to have them told: " + ask
	}
	return "those of programs are told, by way of the host's audit"
}

func (a *app) daemonText(ctx context.Context) string {
	c, err := api.Dial(ctx, a.config.Socket)
	if err != nil {
		return fmt.Sprintf("none answers on %s (%v); each command has a private one", a.config.Socket, cause(err))
	}
	defer c.Close()
	v, err := c.Version(ctx)
	if err != nil {
		return fmt.Sprintf("what listens on %s does not answer: %v", a.config.Socket, err)
	}
	return fmt.Sprintf("jaild %s answers on %s", v.Version, a.config.Socket)
}

// existing returns dir, or the nearest directory above it that is there.
func existing(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func program(name, path string) probe.Finding {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return probe.Finding{Name: name, Answer: probe.No, Detail: fmt.Sprintf("%s: %v", path, cause(err)), Fix: "build or install it beside jail"}
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return probe.Finding{Name: name, Answer: probe.No, Detail: path + " is no program", Fix: "build or install it anew"}
	}
	return probe.Finding{Name: name, Answer: probe.Yes, Detail: path}
}

// bundles reads the manifests, of what came with jail and of what was pulled, and each module, which is checked against its manifest.
func bundles(places bundle.Places) probe.Finding {
	f := probe.Finding{Name: "tool bundles", Answer: probe.No, Fix: "install them anew"}
	set, err := bundle.OpenPlaces(places, false)
	if errors.Is(err, fs.ErrPermission) {
		set, err = bundle.Open(places.Dirs...) // what was pulled may be root's alone to see
	}
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	err = errors.Join(set.Problems()...)
	commands, pulled := 0, 0
	for _, b := range set.List() {
		err = errors.Join(err, b.Verify())
		commands += len(b.Commands())
		if b.Origin != nil {
			pulled++
		}
	}
	switch {
	case err != nil:
		f.Detail = err.Error()
	case commands == 0:
		f.Detail, f.Fix = "none below "+strings.Join(places.Dirs, " or "), "make build, or make install"
	default:
		f = probe.Finding{Name: f.Name, Answer: probe.Yes, Detail: count(commands, "command", "commands") + " in " + count(len(set.List()), "bundle", "bundles")}
		if pulled > 0 {
			f.Detail += fmt.Sprintf(", %d of them pulled", pulled)
		}
	}
	return f
}

// writable tries to put a file down, in the directory or in the one that it would be made in.
func writable(name, dir string) probe.Finding {
	f := probe.Finding{Name: name, Answer: probe.Yes, Detail: dir}
	where := existing(dir)
	if where != dir {
		f.Detail += ", to be made"
	}
	if info, err := os.Stat(where); err == nil && os.Geteuid() != 0 && info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return probe.Finding{Name: name, Answer: probe.Unknown, Detail: dir + " is not yours to write", Fix: "run jail doctor as root"}
	}
	file, err := os.CreateTemp(where, ".probe-")
	if err == nil {
		err = errors.Join(file.Close(), os.Remove(file.Name()))
	}
	if err != nil {
		return probe.Finding{Name: name, Answer: probe.No, Detail: fmt.Sprintf("%s: %v", where, cause(err)),
			Fix: "make room in it, or name another place with JAIL_STATE"}
	}
	return f
}

func writeDiagnosis(w io.Writer, d diagnosis, colour bool) error {
	words := map[probe.Answer]string{
		probe.Yes: paint(colour, green, "yes"), probe.No: paint(colour, red, "no "), probe.Unknown: paint(colour, amber, "?  "),
	}
	for _, f := range d.Findings {
		fmt.Fprintf(w, "%s  %-18s %s\n", words[f.Answer], f.Name, printable(strings.ReplaceAll(f.Detail, "\n", "; ")))
		if f.Fix != "" {
			fmt.Fprintf(w, "     %-18s %s\n", "", paint(colour, bold, f.Fix))
		}
	}
	_, err := fmt.Fprintf(w, "     %-18s %s\n     %-18s %s\n", "refused paths", printable(d.Refused), "daemon", printable(d.Daemon))
	return err
}

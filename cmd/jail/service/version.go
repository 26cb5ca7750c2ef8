package service

import (
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// NewVersion returns the command jail version.
func NewVersion(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "show the versions of jail, Go and the kernel",
		Example: "  jail version",
		Args:    command.Exactly(),
		RunE:    func(_ *cobra.Command, _ []string) error { return runVersion(env, asJSON) },
	}
	command.JSON(cmd, &asJSON, "print an object")
	return cmd
}

func runVersion(env *cli.Env, asJSON bool) error {
	v := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		Kernel  string `json:"kernel"`
		Arch    string `json:"arch"`
	}{config.Version, runtime.Version(), "unknown", runtime.GOARCH}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		v.Kernel = strings.TrimSpace(string(text))
	}
	return env.Show(asJSON, v, output.Text("jail %s, %s, linux %s %s\n", v.Version, v.Go,
		output.Printable(v.Kernel), v.Arch))
}

package service

import (
	"fmt"
	"io"
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
	return command.Print(env, &cobra.Command{
		Use:     "version",
		Short:   "show the versions of jail, Go and the kernel",
		Example: "  jail version",
		Args:    command.Exactly(),
	}, "print an object", func(*cobra.Command, []string) (versions, error) {
		v := versions{config.Version, runtime.Version(), "unknown", runtime.GOARCH}
		if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
			v.Kernel = strings.TrimSpace(string(text))
		}
		return v, nil
	}, func(w io.Writer, v versions) {
		fmt.Fprintf(w, "jail %s, %s, linux %s %s\n", v.Version, v.Go, output.Printable(v.Kernel), v.Arch)
	})
}

type versions struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Kernel  string `json:"kernel"`
	Arch    string `json:"arch"`
}

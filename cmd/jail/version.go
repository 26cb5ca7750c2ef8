package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "show the versions of jail, Go and the kernel",
		Example: "  jail version",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := struct {
			Version string `json:"version"`
			Go      string `json:"go"`
			Kernel  string `json:"kernel"`
			Arch    string `json:"arch"`
		}{supervisor.Version, runtime.Version(), "unknown", runtime.GOARCH}
		if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
			v.Kernel = strings.TrimSpace(string(text))
		}
		return a.show(*asJSON, v, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "jail %s, %s, linux %s %s\n", v.Version, v.Go, printable(v.Kernel), v.Arch)
			return err
		})
	}
	return cmd
}

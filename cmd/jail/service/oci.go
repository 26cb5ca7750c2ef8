package service

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// NewOCI returns the command jail oci.
func NewOCI(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "oci [flags] COMMAND [ARG...]",
		Short: "be the OCI runtime of a container engine",
		Long: "Be the OCI runtime of a container engine, such as podman or containerd, which starts " +
			"jail-oci in place of runc: this is the same program. It takes runc's global flags, and " +
			"the commands create, start, run, state, kill, delete, exec, ps, list, pause, resume and " +
			"features: jail oci --help, and jail-oci(8).",
		Example: "  podman --runtime /usr/local/bin/jail-oci run --network none busybox id\n" +
			"  jail oci features",
		// The flags are for jail-oci.
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"--help"}
			}
			path, err := ociProgram(env.Exe)
			if err == nil {
				err = syscall.Exec(path, append([]string{"jail-oci"}, args...), os.Environ())
			}
			return problem.New(problem.Failed, "jail-oci cannot be started: %w", err).
				WithHint("build or install it beside jail")
		},
	}
}

// ociProgram returns the path of jail-oci, beside jail or in the installation's bin.
func ociProgram(exe string) (string, error) {
	dir := filepath.Dir(exe)
	path := filepath.Join(dir, "jail-oci")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	path = filepath.Join(dir, "../../bin/jail-oci")
	_, err := os.Stat(path)
	return path, err
}

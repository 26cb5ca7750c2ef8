package tool

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
)

func newPush(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push [flags] DIR REFERENCE",
		Short: "send a signed bundle to a registry",
		Long: `Send the signed bundle in DIR to a registry, or with oci-layout:DIR into a directory in the OCI image layout, and print the digest that it is
pinned by. Stock tools (oras cp, crane cp, skopeo copy --all) can carry it from there. The tag is the bundle's version where REFERENCE has
none.`,
		Example: "  jail tool push words/ ghcr.io/acme/words\n  jail tool push words/ oci-layout:/media/stick/words",
		Args:    command.Exactly("DIR", "REFERENCE"),
	}
	client := registryFlags(cmd)
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ref, err := oci.ParseReference(args[1])
		if err != nil {
			return exit.Usage("jail tool push --help", "%v", err)
		}
		b, err := loadFolder(args[0])
		if err != nil {
			return err
		}
		digest, err := client.Push(cmd.Context(), b, ref)
		if err != nil {
			return pullError(err)
		}
		return env.Show(asJSON, map[string]string{"name": b.Name, "version": b.Version,
			"digest": digest}, output.Text("%s@%s\n", strings.TrimSuffix(args[1], ":"+ref.Tag),
			digest))
	}
	return cmd
}

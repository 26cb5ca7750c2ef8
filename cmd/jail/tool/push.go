package tool

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
)

type pushOptions struct {
	client         *oci.Client
	dir, reference string
	json           bool
}

func newPush(env *cli.Env) *cobra.Command {
	var o pushOptions
	cmd := &cobra.Command{
		Use:   "push [flags] DIR REFERENCE",
		Short: "send a signed bundle to a registry",
		Long: `Send the signed bundle in DIR to a registry, or with oci-layout:DIR into a directory in the OCI image layout, and print its digest, by which it can be
pinned. Stock tools (oras cp, crane cp, skopeo copy --all) can copy it from there. Without a tag in REFERENCE the tag is the bundle's version.`,
		Example: "  jail tool push words/ ghcr.io/acme/words\n  jail tool push words/ oci-layout:/media/stick/words",
		Args:    command.Exactly("DIR", "REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir, o.reference = args[0], args[1]
			return runPush(cmd.Context(), env, o)
		},
	}
	o.client = registryFlags(cmd)
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runPush(ctx context.Context, env *cli.Env, o pushOptions) error {
	ref, err := oci.ParseReference(o.reference)
	if err != nil {
		return exit.Usage("jail tool push --help", "%v", err)
	}
	b, err := loadFolder(o.dir)
	if err != nil {
		return err
	}
	digest, err := o.client.Push(ctx, b, ref)
	if err != nil {
		return pullError(err)
	}
	pushed := map[string]string{"name": b.Name, "version": b.Version, "digest": digest}
	name := strings.TrimSuffix(o.reference, ":"+ref.Tag)
	return env.Show(o.json, pushed, output.Text("%s@%s\n", name, digest))
}

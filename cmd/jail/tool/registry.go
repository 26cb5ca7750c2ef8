package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/tools"
)

// registryFlags adds the flags of commands that use a registry, and returns the client that they
// set.
func registryFlags(cmd *cobra.Command) *oci.Client {
	c := &oci.Client{}
	cmd.Flags().StringVar(&c.Auth, "auth", "",
		"`FILE` with the credentials for registries, as docker login and oras login write it")
	cmd.Flags().BoolVar(&c.PlainHTTP, "plain-http", false,
		"ask without TLS; only a registry on this host")
	return c
}

// pullError turns an error of a registry, directory or bundle into a problem with a hint.
func pullError(err error) error {
	var known *problem.Error
	var registry *oci.RegistryError
	is := func(target error) bool { return errors.Is(err, target) }
	sorted := func(code, hint string) error {
		return &problem.Error{Code: code, Message: err.Error(), Hint: hint, Err: err}
	}
	switch {
	case errors.As(err, &known):
		return known
	case is(oci.ErrArtifact), is(oci.ErrElsewhere):
		return sorted(problem.Refused, "nothing was installed; ask the publisher for it anew")
	case is(oci.ErrUnsigned):
		return sorted(problem.Refused, "jail tool sign --key FILE DIR signs it")
	case is(oci.ErrDenied):
		return sorted(problem.Refused, "--auth names a file with the credentials for the registry")
	case is(oci.ErrNotFound):
		return sorted(problem.NotFound,
			"look at the reference: HOST/REPOSITORY@sha256:DIGEST, or oci-layout:DIR")
	case is(fs.ErrPermission):
		return sorted(problem.Refused, "the directory is read and written with your own rights")
	case errors.As(err, &registry):
		return sorted(problem.Failed,
			"look whether the registry can be reached and is well, and try again")
	}
	return tools.Problem(err)
}

// pushed is a pushed bundle in --json output.
type pushed struct {
	Digest  string `json:"digest"`
	Name    string `json:"name"`
	Version string `json:"version"`

	reference string
}

func newPush(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push [flags] DIR REFERENCE",
		Short: "send a signed bundle to a registry",
		Long: `Send the signed bundle in DIR to a registry, or with oci-layout:DIR into a
directory in the OCI image layout, and print its digest, by which it can be pinned. Stock tools
(oras cp, crane cp, skopeo copy --all) can copy it from there. Without a tag in REFERENCE the tag
is the bundle's version.`,
		Example: "  jail tool push words/ ghcr.io/acme/words\n" +
			"  jail tool push words/ oci-layout:/media/stick/words",
		Args: command.Exactly("DIR", "REFERENCE"),
	}
	client := registryFlags(cmd)
	return command.Print(env, cmd, "print an object",
		func(cmd *cobra.Command, args []string) (pushed, error) {
			return push(cmd.Context(), client, args[0], args[1])
		}, func(w io.Writer, p pushed) {
			fmt.Fprintf(w, "%s@%s\n", p.reference, p.Digest)
		})
}

func push(ctx context.Context, client *oci.Client, dir, reference string) (p pushed, err error) {
	ref, err := oci.ParseReference(reference)
	if err != nil {
		return p, exit.Usage("jail tool push --help", "%v", err)
	}
	b, err := loadFolder(dir)
	if err != nil {
		return p, err
	}
	digest, err := client.Push(ctx, b, ref)
	if err != nil {
		return p, pullError(err)
	}
	return pushed{digest, b.Name, b.Version, strings.TrimSuffix(reference, ":"+ref.Tag)}, nil
}

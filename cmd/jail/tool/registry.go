package tool

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/tools"
)

// registryFlags are those of commands that ask a registry.
func registryFlags(cmd *cobra.Command) *oci.Client {
	c := &oci.Client{}
	cmd.Flags().StringVar(&c.Auth, "auth", "",
		"`FILE` with the credentials for registries, as docker login and oras login write it")
	cmd.Flags().BoolVar(&c.PlainHTTP, "plain-http", false,
		"ask without TLS; only a registry on this host")
	return c
}

// pullError sorts what a registry or a directory did, and what a bundle is.
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
		return sorted(problem.Refused,
			"nothing was installed; ask the publisher for the bundle anew")
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

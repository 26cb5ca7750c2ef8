package tool

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// NewImage returns the command jail image.
func NewImage(env *cli.Env) *cobra.Command {
	return command.Group("image", "add, list and remove images for jail run --image",
		newImageAdd(env), newImageList(env), newImageRemove(env), newImageSign(env))
}

type imageAdder struct {
	env       *cli.Env
	client    *oci.Client
	signature string
}

func newImageAdd(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add [flags] NAME REFERENCE",
		Short: "add an image by a name, for all users",
		Long: `Unpack an OCI image once, by its digest, so that every user whose profile grants it
can run its programs: jail run --image NAME -- CMD.

REFERENCE is HOST/REPOSITORY@sha256:DIGEST, or oci:DIR[:TAG][@sha256:DIGEST] for a directory in
the OCI image layout. From a registry an image is taken by its digest only. --signature names a
statement of jail image sign; without one the image is added unsigned, unless the ceiling has
[signed] images = true.`,
		Example: "  sudo jail image add debian docker.io/library/debian@sha256:8f0c7a…\n" +
			"  sudo jail image add tools oci:/srv/images/tools",
		Args: command.Exactly("NAME", "REFERENCE"),
	}
	a := imageAdder{env: env, client: registryFlags(cmd)}
	cmd.Flags().StringVar(&a.signature, "signature", "", "`FILE` that jail image sign wrote")
	return command.Print(env, cmd, "print an object",
		func(cmd *cobra.Command, args []string) (images.About, error) {
			return a.add(cmd.Context(), args[0], args[1])
		}, func(w io.Writer, about images.About) {
			fmt.Fprintf(w, "added %s: %s, %d files, %s\n", about.Name, about.Digest,
				about.Usage.Entries, output.Size(about.Usage.Bytes))
		})
}

// layoutOf makes the directory of oci:DIR absolute. The bool reports whether text has that form.
func layoutOf(text string) (string, bool, error) {
	dir, ok := strings.CutPrefix(text, policy.ImageDir)
	if !ok || filepath.IsAbs(dir) {
		return text, ok, nil
	}
	here, err := os.Getwd()
	return policy.ImageDir + strings.TrimSuffix(here, "/") + "/" + dir, ok, err
}

func (a imageAdder) add(ctx context.Context, name, text string) (about images.About, err error) {
	layout, isDir, err := layoutOf(text)
	if err != nil {
		return about, exit.NotFound("go to another directory", "the current directory: %v",
			exit.Cause(err))
	}
	offer, clear := images.ImageOffer{Layout: layout, Source: layout}, func() error { return nil }
	if a.signature != "" {
		signed, err := os.ReadFile(a.signature)
		if err != nil {
			return about, exit.NotFound("jail image sign makes one", "--signature %s: %v",
				a.signature, exit.Cause(err))
		}
		offer.Signed = string(signed)
	}
	if !isDir {
		if offer, clear, err = a.pull(ctx, text, offer); err != nil {
			return about, err
		}
	}
	err = a.env.WithDaemon(ctx, func(c *api.Client) error {
		about, err = api.AddImage(ctx, c, name, offer)
		return err
	})
	if err != nil {
		return about, err
	}
	return about, clear()
}

// pull fetches an image from a registry into a directory of root, where the daemon reads it. The
// returned function removes the directory.
func (a imageAdder) pull(ctx context.Context, text string, o images.ImageOffer) (images.ImageOffer,
	func() error, error) {
	ref, err := oci.ParseReference(text)
	if err != nil || ref.Layout != "" {
		return o, nil, exit.Usage("jail image add --help",
			"image %.200q: want HOST/REPOSITORY@sha256:DIGEST or oci:DIR", text)
	}
	if ref.Digest == "" {
		return o, nil, exit.Usage("get the digest from who publishes the image, not from the registry",
			"%s: a digest is wanted, as in %s/%s@sha256:…", ref, ref.Registry, ref.Repository)
	}
	if os.Geteuid() != 0 {
		return o, nil, problem.New(problem.Refused,
			"only root may add an image that is still to be fetched").
			WithHint("use sudo; or fetch it with skopeo copy, and add oci:DIR")
	}
	p := puller{env: a.env}
	dir, clear, err := p.dir(ref)
	if err != nil {
		return o, nil, err
	}
	a.client.Progress = terminal.Progress(a.env.Stderr, ref.String())
	_, err = a.client.PullImage(ctx, ref, dir)
	terminal.ClearLine(a.env.Stderr)
	if err != nil {
		return o, nil, pullError(err)
	}
	o.Layout, o.Source = policy.ImageDir+dir+"@"+ref.Digest, ref.String()
	return o, clear, nil
}

func newImageList(env *cli.Env) *cobra.Command {
	return command.List(env, &cobra.Command{
		Use:     "list",
		Short:   "list the images that were added, and those that your runs have unpacked",
		Example: "  jail image list",
	}, func(c *api.Client, ctx context.Context) ([]images.About, error) {
		return api.Images(ctx, c)
	}, []string{"NAME", "DIGEST", "SIZE", "SIGNED BY", "SOURCE"}, func(a images.About) []string {
		return []string{cmp.Or(a.Name, "-"), a.Digest, output.Size(a.Usage.Bytes),
			cmp.Or(a.Publisher, "nobody"), output.Printable(a.Source)}
	})
}

func newImageRemove(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:   "remove NAME|DIGEST",
		Short: "remove an image",
		Long: `Remove an image that was added, by its name, or by its digest one that your runs
have unpacked from a directory. Runs that have it go on.`,
		Example: "  sudo jail image remove debian\n  jail image remove sha256:8f0c7a…",
		Args:    command.Exactly("NAME"),
	}, "print an object", func(ctx context.Context, c *api.Client, args []string) (images.About, error) {
		return api.RemoveImage(ctx, c, args[0])
	}, func(w io.Writer, a images.About) {
		fmt.Fprintf(w, "removed %s %s\n", cmp.Or(a.Name, "image"), a.Digest)
	})
}

func newImageSign(env *cli.Env) *cobra.Command {
	client := &oci.Client{}
	var f *signing
	cmd := &cobra.Command{
		Use:   "sign [flags] NAME oci:DIR",
		Short: "sign an image",
		Long: `Print a signed statement that the image in DIR, a directory in the OCI image
layout, is the one to be added as NAME. jail image add --signature takes it, where the keys are a
publisher's that jail tool key list shows.`,
		Example: "  jail image sign --key acme.key tools oci:/srv/images/tools > tools.sig",
		Args:    command.Exactly("NAME", "oci:DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, isDir := strings.CutPrefix(args[1], policy.ImageDir)
			ref, err := oci.ParseReference("oci-layout:" + dir)
			if err != nil || !isDir {
				return exit.Usage("jail image sign --help", "image %.200q: want oci:DIR", args[1])
			}
			secret, err := f.secret()
			if err != nil {
				return err
			}
			image, err := client.FindImage(cmd.Context(), ref)
			if err != nil {
				return pullError(err)
			}
			now := time.Now()
			text, err := f.sign(trust.NewStatement(images.SignedName(args[0]), "1", image.Manifest, now,
				f.until(now)), secret, "")
			if err == nil {
				_, err = io.WriteString(env.Stdout, text)
			}
			return err
		},
	}
	f = signFlags(cmd, "one year")
	return cmd
}

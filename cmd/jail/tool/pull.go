package tool

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func newPull(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull [flags] REFERENCE",
		Short: "fetch a signed bundle and install it",
		Long: `Fetch a bundle from a registry, or from a directory in the OCI image layout, verify
it and install it for all users of this host.

REFERENCE is HOST/REPOSITORY@sha256:DIGEST; HOST/REPOSITORY:TAG for a registry of jail's own
project; or oci-layout:DIR[:TAG][@sha256:DIGEST]. Other bundles are taken by digest only, and only
if keys that an operator added (jail tool key add) have signed them. There is no trust on first
use. An interrupted pull continues when it is repeated.

--output only fetches the bundle into DIR, which needs no rights: copy DIR to a host without a
network, and pull from oci-layout:DIR there.`,
		Example: "  sudo jail tool pull ghcr.io/acme/words@sha256:8f0c7a…\n" +
			"  jail tool pull --output /media/stick/words ghcr.io/acme/words@sha256:8f0c7a…\n" +
			"  sudo jail tool pull oci-layout:/media/stick/words@sha256:8f0c7a…",
		Args: command.Exactly("REFERENCE"),
	}
	var p puller
	p.client = registryFlags(cmd)
	cmd.Flags().StringVar(&p.accept, "accept", "",
		"agree to what the bundle needs, whose manifest has `DIGEST`")
	cmd.Flags().StringVar(&p.output, "output", "", "only fetch it into `DIR`")
	return command.Print(env, cmd, "print an object",
		func(cmd *cobra.Command, args []string) (pulled, error) {
			p.env = env
			return p.pull(cmd.Context(), args[0])
		}, func(w io.Writer, in pulled) {
			fmt.Fprintln(w, output.Printable(in.sentence()))
		})
}

// pulled is a pulled bundle in --json output.
type pulled struct {
	bundle.Installed
	// the digest of the index, which pins the bundle
	Digest string `json:"digest"`
	// the directory it was fetched to; then it is not installed
	Output   string `json:"output,omitempty"`
	Commands int    `json:"commands"`
}

func (p pulled) sentence() string {
	done := "installed"
	if p.Output != "" {
		done = "fetched into " + p.Output + ":"
	}
	return fmt.Sprintf("%s %s %s of %s: %s, %s", done, p.Name, p.Version, p.Publisher,
		output.Count(p.Commands, "command", "commands"), p.Digest)
}

type puller struct {
	env            *cli.Env
	client         *oci.Client
	accept, output string
}

func (p *puller) pull(ctx context.Context, text string) (pulled, error) {
	env := p.env
	ref, err := oci.ParseReference(text)
	if err != nil {
		return pulled{}, exit.Usage("jail tool pull --help", "%v", err)
	}
	rings, err := rings(env)
	if err != nil {
		return pulled{}, err
	}
	// Check this before the registry is asked: only official registries are trusted with tags.
	official := ref.Below(rings[trust.Official].Registries)
	if ref.Digest == "" && ref.Layout == "" && !official {
		return pulled{},
			exit.Usage("get the digest from the bundle's publisher, not from the registry",
				"%s: no registry of jail's own: a digest is wanted, as in %s/%s@sha256:…", ref,
				ref.Registry, ref.Repository)
	}
	dir, clear, err := p.dir(ref)
	if err != nil {
		return pulled{}, err
	}
	p.client.Progress = terminal.Progress(env.Stderr, ref.String())
	var v bundle.Verdict
	got, err := p.client.Pull(ctx, ref, dir, func(manifest []byte, signed string) error {
		v, err = p.judge(rings, ref, manifest, signed)
		return err
	})
	terminal.ClearLine(env.Stderr)
	if err != nil {
		return pulled{}, pullError(err)
	}
	out := pulled{Digest: got.Digest, Output: p.output, Commands: len(v.Commands),
		Installed: bundle.Installed{Name: v.Name, Version: v.Version, Publisher: v.Ring.Publisher,
			Manifest: v.Statement.Manifest, Source: ref.String()}}
	if p.output != "" {
		return out, nil
	}
	if err := p.agree(v); err != nil {
		return out, err
	}
	source := ref
	source.Digest = got.Digest
	offer := bundle.Offer{Manifest: got.Manifest, Signed: got.Signed, Source: source.String(),
		Accept: p.accept}
	err = env.WithDaemon(ctx, func(c *api.Client) error {
		files := got.Files(ctx)
		defer files.Close()
		out.Installed, err = c.InstallTool(ctx, offer, files)
		return err
	})
	if err != nil {
		return out, pullError(err)
	}
	return out, clear()
}

// judge makes the daemon's checks of a manifest before the files are fetched.
func (p *puller) judge(rings trust.Rings, ref oci.Reference, manifest []byte,
	signed string) (bundle.Verdict, error) {
	v, err := bundle.Judge(rings, manifest, signed)
	if err != nil {
		return v, err
	}
	now := time.Now()
	if err := errors.Join(v.Ring.Fresh(now), v.Statement.Fresh(now)); err != nil {
		return v, err
	}
	if v.Ring.Publisher != trust.Official && ref.Digest == "" {
		return v, exit.Usage("get the digest from the bundle's publisher",
			"%s: a bundle of %s is taken by its digest only", ref, v.Ring.Publisher)
	}
	return v, nil
}

// agree asks on a terminal whether to install the bundle with what it asks for. Without a terminal,
// --accept is needed if it asks for more than the installed version.
func (p *puller) agree(v bundle.Verdict) error {
	reach := v.Reach()
	if len(reach) == 0 || p.accept != "" || !terminal.Is(p.env.Stdin) ||
		!terminal.Is(p.env.Stderr) {
		return nil
	}
	fmt.Fprintf(p.env.Stderr, "%s %s of %s asks for:\n", v.Name, v.Version, v.Ring.Publisher)
	for _, r := range reach {
		fmt.Fprintf(p.env.Stderr, "  %s\n", output.Printable(r))
	}
	fmt.Fprint(p.env.Stderr, "A run has it only where its policy grants it. Install [y,n]? ")
	line, err := bufio.NewReader(p.env.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) || strings.TrimSpace(line) != "y" {
		return problem.New(problem.Refused, "nothing was installed")
	}
	p.accept = v.Statement.Manifest
	return nil
}

// dir returns the directory to fetch a bundle into, and a function that removes it if it is
// temporary. A temporary one belongs to root, and is the same for each pull of a reference, so that
// an interrupted pull can resume.
func (p *puller) dir(ref oci.Reference) (string, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case p.output != "":
		return p.output, nothing, nil
	case ref.Layout != "":
		return ref.Layout, nothing, nil
	case os.Geteuid() != 0:
		return "", nil, problem.New(problem.Refused,
			"only root may install a bundle that is still to be fetched").
			WithHint("use sudo, or --output DIR to fetch it only, from where whom " +
				"[permissions.administer] names may install it")
	}
	sum := sha256.Sum256([]byte(ref.Registry + "/" + ref.Repository))
	base := filepath.Join(p.env.Config.Tools, "pull")
	dir := filepath.Join(base, hex.EncodeToString(sum[:8]))
	if err := errors.Join(os.MkdirAll(p.env.Config.Tools, 0o755), os.MkdirAll(base, 0o700),
		os.MkdirAll(dir, 0o700)); err != nil {
		return "", nil, exit.Failed(err, "", "directory for what is pulled: %v", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

func newRemove(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove [flags] BUNDLE",
		Short: "remove a pulled bundle",
		Long: `Remove a bundle that was pulled. Its version is remembered, and older ones are
refused later, unless --forget is given. Bundles that came with jail are removed with jail.`,
		Example: "  sudo jail tool remove words",
		Args:    command.Exactly("BUNDLE"),
	}
	forget := cmd.Flags().Bool("forget", false,
		"forget which version was installed, so that an older one can be")
	complete.First(env, cmd, complete.Bundles)
	return command.Show(env, cmd, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (bundle.Installed, error) {
			return c.RemoveTool(ctx, args[0], *forget)
		}, func(w io.Writer, in bundle.Installed) {
			fmt.Fprintf(w, "removed %s %s of %s\n", in.Name, in.Version, in.Publisher)
		})
}

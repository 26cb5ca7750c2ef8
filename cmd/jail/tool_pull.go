package main

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

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// registryFlags are those of commands that ask a registry.
func (a *app) registryFlags(cmd *cobra.Command) *oci.Client {
	c := &oci.Client{}
	cmd.Flags().StringVar(&c.Auth, "auth", "", "`FILE` with the credentials for registries, as docker login and oras login write it")
	cmd.Flags().BoolVar(&c.PlainHTTP, "plain-http", false, "ask without TLS; only a registry on this host")
	return c
}

func (a *app) toolPullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull [flags] REFERENCE",
		Short: "fetch a signed bundle and install it",
		Long: `Fetch a bundle from a registry, or from a directory in the OCI image layout, verify it and install it for all users of this host.

REFERENCE is HOST/REPOSITORY@sha256:DIGEST; HOST/REPOSITORY:TAG for a registry of jail's own project; or oci-layout:DIR[:TAG][@sha256:DIGEST].
A bundle of anybody else is taken by its digest only, and only if keys that an operator added (jail tool key add) have signed it. There
is no trust on first use. A pull that was cut off goes on from there when it is repeated.

With --output the bundle is only fetched into DIR, which needs no rights and installs nothing: carry it to a host without a network, and
pull it there from oci-layout:DIR.`,
		Example: "  sudo jail tool pull ghcr.io/acme/words@sha256:8f0c7a…\n  jail tool pull --output /media/stick/words ghcr.io/acme/words@sha256:8f0c7a…\n  sudo jail tool pull oci-layout:/media/stick/words@sha256:8f0c7a…",
		Args:    exactly("REFERENCE"),
	}
	var p puller
	p.client = a.registryFlags(cmd)
	cmd.Flags().StringVar(&p.accept, "accept", "", "agree to what the bundle needs, whose manifest has `DIGEST`")
	cmd.Flags().StringVar(&p.output, "output", "", "only fetch it into `DIR`")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.app = a
		in, err := p.pull(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.show(*asJSON, in, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, printable(in.sentence()))
			return err
		})
	}
	return cmd
}

// pulled is a bundle that was pulled as --json shows it.
type pulled struct {
	bundle.Installed
	Digest   string `json:"digest"`           // of the index: what the bundle is pinned by
	Output   string `json:"output,omitempty"` // where it was fetched to; then it is not installed
	Commands int    `json:"commands"`
}

func (p pulled) sentence() string {
	done := "installed"
	if p.Output != "" {
		done = "fetched into " + p.Output + ":"
	}
	return fmt.Sprintf("%s %s %s of %s: %s, %s", done, p.Name, p.Version, p.Publisher, count(p.Commands, "command", "commands"), p.Digest)
}

type puller struct {
	app            *app
	client         *oci.Client
	accept, output string
}

func (p *puller) pull(ctx context.Context, text string) (pulled, error) {
	a := p.app
	ref, err := oci.ParseReference(text)
	if err != nil {
		return pulled{}, usage("jail tool pull --help", "%v", err)
	}
	rings, err := a.rings()
	if err != nil {
		return pulled{}, err
	}
	// Before anything is asked: by a tag only a registry is believed whose ring says so.
	official := ref.Below(rings[trust.Official].Registries)
	if ref.Digest == "" && ref.Layout == "" && !official {
		return pulled{}, usage("get the digest from the bundle's publisher, not from the registry", "%s: no registry of jail's own: a digest is wanted, as in %s/%s@sha256:…", ref, ref.Registry, ref.Repository)
	}
	dir, clear, err := p.dir(ref)
	if err != nil {
		return pulled{}, err
	}
	p.client.Progress = a.progress(ref.String())
	var v bundle.Verdict
	got, err := p.client.Pull(ctx, ref, dir, func(manifest []byte, signed string) error {
		v, err = p.judge(rings, ref, manifest, signed)
		return err
	})
	a.clearLine()
	if err != nil {
		return pulled{}, pullError(err)
	}
	out := pulled{Digest: got.Digest, Output: p.output, Commands: len(v.Commands),
		Installed: bundle.Installed{Name: v.Name, Version: v.Version, Publisher: v.Ring.Publisher, Manifest: v.Statement.Manifest, Source: ref.String()}}
	if p.output != "" {
		return out, nil
	}
	if err := p.agree(v); err != nil {
		return out, err
	}
	source := ref
	source.Digest = got.Digest
	offer := bundle.Offer{Manifest: got.Manifest, Signed: got.Signed, Source: source.String(), Accept: p.accept}
	err = a.withDaemon(ctx, func(c *api.Client) error {
		files := got.Files(ctx)
		defer files.Close()
		out.Installed, err = c.InstallTool(ctx, offer, files)
		return err
	})
	if err == nil {
		err = clear()
	}
	return out, err
}

// judge asks what the daemon will ask again, before anything large is fetched.
func (p *puller) judge(rings trust.Rings, ref oci.Reference, manifest []byte, signed string) (bundle.Verdict, error) {
	v, err := bundle.Judge(rings, manifest, signed)
	if err != nil {
		return v, err
	}
	now := time.Now()
	if err := errors.Join(v.Ring.Fresh(now), v.Statement.Fresh(now)); err != nil {
		return v, err
	}
	if v.Ring.Publisher != trust.Official && ref.Digest == "" {
		return v, usage("get the digest from the bundle's publisher", "%s: a bundle of %s is taken by its digest only", ref, v.Ring.Publisher)
	}
	return v, nil
}

// agree asks a person on a terminal whether the bundle may have what it needs. Elsewhere --accept says so, or the daemon refuses what is new.
func (p *puller) agree(v bundle.Verdict) error {
	reach := v.Reach()
	if len(reach) == 0 || p.accept != "" || !isTerminal(p.app.stdin) || !isTerminal(p.app.stderr) {
		return nil
	}
	fmt.Fprintf(p.app.stderr, "%s %s of %s asks for:\n", v.Name, v.Version, v.Ring.Publisher)
	for _, r := range reach {
		fmt.Fprintf(p.app.stderr, "  %s\n", printable(r))
	}
	fmt.Fprint(p.app.stderr, "A run has it only where its policy grants it. Install [y,n]? ")
	line, err := bufio.NewReader(p.app.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) || strings.TrimSpace(line) != "y" {
		return &supervisor.Error{Code: supervisor.CodeRefused, Message: "nothing was installed"}
	}
	p.accept = v.Statement.Manifest
	return nil
}

// dir returns where a bundle is fetched to, and what clears it away. For a bundle that is to be installed that is a place of root's own, the same for a
// reference each time, so that a pull that was cut off finds what it has; a name below somebody's home would be theirs to choose.
func (p *puller) dir(ref oci.Reference) (string, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case p.output != "":
		return p.output, nothing, nil
	case ref.Layout != "":
		return ref.Layout, nothing, nil
	case os.Geteuid() != 0:
		return "", nil, &supervisor.Error{Code: supervisor.CodeRefused, Message: "only root may install a bundle that is still to be fetched",
			Hint: "use sudo, or --output DIR to fetch it only, from where whom [permissions.administer] names may install it"}
	}
	sum := sha256.Sum256([]byte(ref.Registry + "/" + ref.Repository))
	base := filepath.Join(p.app.config.Tools, "pull")
	dir := filepath.Join(base, hex.EncodeToString(sum[:8]))
	if err := errors.Join(os.MkdirAll(p.app.config.Tools, 0o755), os.MkdirAll(base, 0o700), os.MkdirAll(dir, 0o700)); err != nil {
		return "", nil, failed(err, "", "directory for what is pulled: %v", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// progress shows on a terminal how far a pull is.
func (a *app) progress(what string) func(done, total int64) {
	if !isTerminal(a.stderr) {
		return nil
	}
	var last time.Time
	return func(done, total int64) {
		if now := time.Now(); now.Sub(last) > 100*time.Millisecond || done == total {
			last = now
			fmt.Fprintf(a.stderr, "\r\x1b[K%.60s: %s of %s", printable(what), size(done), size(total))
		}
	}
}

func (a *app) clearLine() {
	if isTerminal(a.stderr) {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
}

// pullError sorts what a registry did, and what a bundle is.
func pullError(err error) error {
	var known *supervisor.Error
	if errors.As(err, &known) {
		return known
	}
	for _, is := range []error{oci.ErrArtifact, oci.ErrElsewhere} {
		if errors.Is(err, is) {
			return &supervisor.Error{Code: supervisor.CodeRefused, Message: err.Error(), Hint: "nothing was installed", Err: err}
		}
	}
	return supervisor.ToolError(err)
}

// rings are the key rings in use.
func (a *app) rings() (trust.Rings, error) {
	rings, err := trust.Load((&bundle.Store{Dir: a.config.Tools}).KeysDir(), false)
	if err != nil {
		return nil, failed(err, "", "key rings: %v", err)
	}
	return rings, nil
}

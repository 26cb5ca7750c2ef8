package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/oci"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// defaultLife is how long a signature counts that is not told otherwise.
const defaultLife = 365 * 24 * time.Hour

func (a *app) toolSignCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign [flags] DIR",
		Short: "sign a bundle",
		Long: `Sign the bundle in DIR: write beside its manifest a statement about it, bundle.sig. The manifest pins every file. Where others have signed the
same statement their signatures stay, so that several people can sign. After --expires nobody installs the bundle any more; it can be
signed anew without being built anew.`,
		Example: "  jail tool sign --key acme.key words/",
		Args:    exactly("DIR"),
	}
	key := cmd.Flags().String("key", "", "`FILE` with the private key, as jail tool key new makes it")
	life := cmd.Flags().Duration("expires", 0, "`HOURS` from now on that the signature counts for, as 8760h (default one year, or as long as the signatures that are there)")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *life < 0 {
			return usage("", "--expires %v: it would have expired", *life)
		}
		s, err := sign(args[0], *key, *life, time.Now())
		if err != nil {
			return err
		}
		return a.show(*asJSON, signed(s), func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "signed %s %s, manifest %s, until %s\n", s.Name, s.Version, s.Manifest, s.Expires.Format(time.RFC3339))
			return err
		})
	}
	return cmd
}

// signedView is a statement as --json shows it.
type signedView struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Manifest string    `json:"manifest"`
	Expires  time.Time `json:"expires"`
}

func signed(s trust.Statement) signedView {
	return signedView{s.Name, s.Version, s.Manifest, s.Expires}
}

func sign(dir, keyFile string, life time.Duration, now time.Time) (trust.Statement, error) {
	var s trust.Statement
	key, err := readPrivateKey(keyFile)
	if err != nil {
		return s, err
	}
	b, err := loadFolder(dir)
	if err != nil {
		return s, err
	}
	if err := b.Portable(); err != nil {
		return s, failed(err, "a manifest that is to be signed pins every file", "bundle %s: %v", dir, err)
	}
	if err := b.Verify(); err != nil {
		return s, failed(err, "", "bundle %s: %v", dir, err)
	}
	years := life
	if years == 0 {
		years = defaultLife
	}
	s = trust.NewStatement(b.Name, b.Version, []byte(b.Text), now, now.Add(years))
	if old, err := trust.ReadStatement(b.Signed); err == nil && life == 0 && old.Manifest == s.Manifest && old.Fresh(now) == nil {
		s = old // one more signature on the same statement
	}
	text, err := s.Sign(key, b.Signed)
	if err != nil {
		return s, failed(err, "jail tool key new makes one", "--key %s: %v", keyFile, err)
	}
	return s, trust.WriteFile(filepath.Join(dir, bundle.SignatureFile), []byte(text))
}

func readPrivateKey(file string) (string, error) {
	if file == "" {
		return "", usage("jail tool key new makes one", "--key FILE is missing")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// loadFolder reads the bundle in a folder, by its true name: DIR/. and a link to it are the same.
func loadFolder(dir string) (*bundle.Bundle, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := bundle.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound("a bundle's folder has a bundle.json, and the bundle's name", "%v", err)
	}
	if err != nil {
		return nil, failed(err, "a bundle's folder has a bundle.json, and the bundle's name", "%v", err)
	}
	return b, nil
}

func (a *app) toolPushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push [flags] DIR REFERENCE",
		Short: "send a signed bundle to a registry",
		Long: `Send the signed bundle in DIR to a registry, or with oci-layout:DIR into a directory in the OCI image layout, and print the digest that it is
pinned by. Stock tools (oras cp, crane cp, skopeo copy --all) can carry it from there. The tag is the bundle's version where REFERENCE has
none.`,
		Example: "  jail tool push words/ ghcr.io/acme/words\n  jail tool push words/ oci-layout:/media/stick/words",
		Args:    exactly("DIR", "REFERENCE"),
	}
	client := a.registryFlags(cmd)
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ref, err := oci.ParseReference(args[1])
		if err != nil {
			return usage("jail tool push --help", "%v", err)
		}
		b, err := loadFolder(args[0])
		if err != nil {
			return err
		}
		digest, err := client.Push(cmd.Context(), b, ref)
		if err != nil {
			return failed(err, "jail tool push --help", "%v", err)
		}
		return a.show(*asJSON, map[string]string{"name": b.Name, "version": b.Version, "digest": digest}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s@%s\n", strings.TrimSuffix(args[1], ":"+ref.Tag), digest)
			return err
		})
	}
	return cmd
}

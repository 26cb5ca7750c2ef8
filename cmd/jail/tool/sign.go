package tool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/keyfile"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// defaultLife is how long a signature is valid without --expires.
const defaultLife = 365 * 24 * time.Hour

// signing holds the flags of a command that signs.
type signing struct {
	key  string
	life time.Duration
}

// signFlags adds the signing flags. without names the default of --expires in the help text.
func signFlags(cmd *cobra.Command, without string) *signing {
	s := &signing{}
	cmd.Flags().StringVar(&s.key, "key", "",
		"`FILE` with the private key, as jail tool key new makes it")
	cmd.Flags().DurationVar(&s.life, "expires", 0,
		"`HOURS` from now on that the signature counts for, as 8760h (default "+without+")")
	return s
}

// secret returns the private key of --key.
func (s *signing) secret() (string, error) {
	if s.life < 0 {
		return "", exit.Usage("", "--expires %v: it would have expired", s.life)
	}
	return keyfile.Read(s.key)
}

// sign returns the signed statement. It keeps the signatures in already.
func (s *signing) sign(st trust.Statement, secret, already string) (string, error) {
	text, err := st.Sign(secret, already)
	if err != nil {
		return "", exit.Failed(err, "jail tool key new makes one", "--key %s: %v", s.key, err)
	}
	return text, nil
}

// until returns when a signature made now expires.
func (s *signing) until(now time.Time) time.Time { return now.Add(cmp.Or(s.life, defaultLife)) }

func newSign(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign [flags] DIR",
		Short: "sign a bundle",
		Long: `Sign the bundle in DIR: write a signed statement, bundle.sig, beside the manifest,
which has the digest of every file. Signatures of others on the same statement stay, so several
people can sign. After --expires the bundle can no longer be installed; it can be signed again
without a new build.`,
		Example: "  jail tool sign --key acme.key words/",
		Args:    command.Exactly("DIR"),
	}
	f := signFlags(cmd, "one year, or as long as the signatures that are there")
	return command.Print(env, cmd, "print an object",
		func(_ *cobra.Command, args []string) (signedView, error) {
			s, err := f.signBundle(args[0], time.Now())
			return signedView{s.Name, s.Version, s.Manifest, s.Expires}, err
		}, func(w io.Writer, s signedView) {
			fmt.Fprintf(w, "signed %s %s, manifest %s, until %s\n", s.Name, s.Version,
				s.Manifest, s.Expires.Format(time.RFC3339))
		})
}

// signedView is a statement in --json output.
type signedView struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Manifest string    `json:"manifest"`
	Expires  time.Time `json:"expires"`
}

func (f *signing) signBundle(dir string, now time.Time) (s trust.Statement, err error) {
	key, err := f.secret()
	if err != nil {
		return s, err
	}
	b, err := loadFolder(dir)
	if err != nil {
		return s, err
	}
	if err := b.Portable(); err != nil {
		return s, exit.Failed(err, "a manifest that is to be signed pins every file",
			"bundle %s: %v", dir, err)
	}
	if err := b.Verify(); err != nil {
		return s, exit.Failed(err, "", "bundle %s: %v", dir, err)
	}
	s = trust.NewStatement(b.Name, b.Version, []byte(b.Text), now, f.until(now))
	if old, err := trust.ReadStatement(b.Signed); err == nil && f.life == 0 &&
		old.Manifest == s.Manifest && old.Fresh(now) == nil {
		// Add a signature to the existing statement.
		s = old
	}
	text, err := f.sign(s, key, b.Signed)
	if err != nil {
		return s, err
	}
	file := filepath.Join(dir, bundle.SignatureFile)
	return s, atomicfile.Write(file, []byte(text), 0o644, atomicfile.Durable)
}

// loadFolder reads the bundle in a folder. The path is made absolute, so that . works.
func loadFolder(dir string) (*bundle.Bundle, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := bundle.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFound("a bundle's folder has a bundle.json, and the bundle's name",
			"%v", err)
	}
	if err != nil {
		return nil, exit.Failed(err, "a bundle's folder has a bundle.json, and the bundle's name",
			"%v", err)
	}
	return b, nil
}

package policy

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/keyfile"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

func newSign(env *cli.Env) *cobra.Command {
	var key, name string
	cmd := &cobra.Command{
		Use:   "sign --key FILE [flags] PROFILE.toml",
		Short: "sign a profile, for hosts whose ceiling asks for that",
		Long: `Sign a profile: write NAME.toml.sig beside it, a signature of the text, the name
and the version. The file must have a version, as version = 7 at its top; a host that has used a
version takes no lower one. [signed] in a ceiling demands signatures, and lists the keys. --name
gives the name of a profile in a directory below the host's profiles, as tools/python.`,
		Example: "  jail policy sign --key ops.key build.toml\n" +
			"  jail policy sign --key ops.key --name tools/python python.toml",
		Args: command.Exactly("PROFILE.toml"),
	}
	cmd.Flags().StringVar(&key, "key", "",
		"`FILE` with the private key, as jail tool key new makes it")
	cmd.Flags().StringVar(&name, "name", "",
		"the `NAME` of the profile on hosts (default: that of the file)")
	return command.Print(env, cmd, "print an object",
		func(_ *cobra.Command, args []string) (signed, error) {
			s, err := signPolicy(args[0], key, name)
			return signed{s.Digest, args[0] + ".sig", s.Name, s.Version}, err
		}, func(w io.Writer, s signed) {
			fmt.Fprintf(w, "signed %s version %d, %s\n", output.Printable(s.Name), s.Version, s.Digest)
		})
}

// signed is a signed profile in --json output.
type signed struct {
	Digest  string `json:"digest"`
	File    string `json:"file"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
}

func signPolicy(path, keyFile, name string) (s trust.PolicyStatement, err error) {
	key, err := keyfile.Read(keyFile)
	if err != nil {
		return s, err
	}
	if !strings.HasSuffix(path, ".toml") {
		return s, exit.Usage("name the file of the profile, as build.toml",
			"%s is no .toml file", path)
	}
	name = cmp.Or(name, strings.TrimSuffix(filepath.Base(path), ".toml"))
	if err := syntax.CheckName(name); err != nil {
		return s, exit.Usage("--name says under which name hosts have it", "%v", err)
	}
	text, err := policies.Read(path)
	if err != nil {
		return s, err
	}
	// The signature does not cover included files, which hosts have and sign themselves.
	plain, err := syntax.Plain(path, text)
	if err != nil {
		return s, exit.Usage("jail policy check "+path, "%v", err)
	}
	version, ok := plain["version"].(int64)
	if !ok || version < 1 {
		return s, exit.Usage("write `version = 1` at its top, and count up with each change",
			"%s does not say its version, without which an old one could come back", path)
	}
	s = trust.NewPolicyStatement(name, version, text)
	note, err := s.Sign(key)
	if err != nil {
		return s, exit.Failed(err, "jail tool key new makes one", "--key %s: %v", keyFile, err)
	}
	if err := atomicfile.Write(path+".sig", []byte(note), 0o644, atomicfile.Durable); err != nil {
		return s, exit.Failed(err, "", "%s.sig: %v", path, exit.Cause(err))
	}
	return s, nil
}

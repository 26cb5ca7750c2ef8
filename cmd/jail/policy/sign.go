package policy

import (
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
	cmd := &cobra.Command{
		Use:   "sign --key FILE [flags] PROFILE.toml",
		Short: "sign a profile, for hosts whose ceiling asks for that",
		Long: `Sign a profile: write beside it NAME.toml.sig, which says that this text is the profile's of its version. The file must say one, as version = 7
at its top, and a host that has had a version in force takes no lower one. A ceiling asks for signatures by [signed] and the keys that count.
A profile in a directory below the host's profiles is named with it by --name, as tools/python.`,
		Example: "  jail policy sign --key ops.key build.toml\n  jail policy sign --key ops.key --name tools/python python.toml",
		Args:    command.Exactly("PROFILE.toml"),
	}
	key := cmd.Flags().String("key", "",
		"`FILE` with the private key, as jail tool key new makes it")
	name := cmd.Flags().String("name", "",
		"the `NAME` under which hosts have it (default: that of the file)")
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		s, err := signPolicy(args[0], *key, *name)
		if err != nil {
			return err
		}
		return env.Show(asJSON, map[string]any{"name": s.Name, "version": s.Version,
			"digest": s.Digest, "file": args[0] + ".sig"}, output.Text("signed %s version %d, %s\n",
			output.Printable(s.Name), s.Version, s.Digest))
	}
	return cmd
}

func signPolicy(path, keyFile, name string) (s trust.PolicyStatement, err error) {
	key, err := keyfile.Read(keyFile)
	if err != nil {
		return s, err
	}
	if !strings.HasSuffix(path, ".toml") {
		return s, exit.Usage("name the file of the profile, as build.toml", "%s is no .toml file",
			path)
	}
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(path), ".toml")
	}
	if err := syntax.CheckName(name); err != nil {
		return s, exit.Usage("--name says under which name hosts have it", "%v", err)
	}
	text, err := policies.Read(path)
	if err != nil {
		return s, err
	}
	// What it includes is signed by itself, and lies where it is used.
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
	signed, err := s.Sign(key)
	if err != nil {
		return s, exit.Failed(err, "jail tool key new makes one", "--key %s: %v", keyFile, err)
	}
	if err := atomicfile.Write(path+".sig", []byte(signed), 0o644, atomicfile.Durable); err != nil {
		return s, exit.Failed(err, "", "%s.sig: %v", path, exit.Cause(err))
	}
	return s, nil
}

package tool

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/keyfile"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

func newKey(env *cli.Env) *cobra.Command {
	cmd := command.Group("key", "list, add and make the keys that bundles are signed with",
		newKeyList(env), newKeyAdd(env), newKeyUpdate(env), newKeyRemove(env), newKeyNew(env),
		newKeySign())
	for _, sub := range cmd.Commands() {
		sub.DisableFlagsInUseLine = true
	}
	return cmd
}

// ringView is a ring as --json shows it.
type ringView struct {
	Publisher     string    `json:"publisher"`
	Version       int64     `json:"version"`
	Expires       time.Time `json:"expires,omitzero"`
	Threshold     int       `json:"threshold"`
	Keys          []string  `json:"keys"`
	RootThreshold int       `json:"root_threshold"`
	Roots         []string  `json:"roots"`
	RevokedKeys   []string  `json:"revoked_keys"`
	Revoked       []string  `json:"revoked"`
	Registries    []string  `json:"registries"`
}

func viewRing(r trust.Ring) ringView {
	some := func(s []string) []string { return append([]string{}, s...) }
	return ringView{r.Publisher, r.Version, r.Expires, r.Threshold, some(r.Keys), r.RootThreshold,
		some(r.Roots), some(r.RevokedKeys), some(r.Revoked), some(r.Registries)}
}

func newKeyList(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list the publishers whose bundles may be installed",
		Example: "  jail tool key list",
		Args:    command.Exactly(),
		RunE:    func(_ *cobra.Command, _ []string) error { return runKeyList(env, asJSON) },
	}
	command.JSON(cmd, &asJSON, "print a list of objects")
	return cmd
}

func runKeyList(env *cli.Env, asJSON bool) error {
	rings, err := rings(env)
	if err != nil {
		return err
	}
	views := []ringView{}
	rows := [][]string{{"PUBLISHER", "RING", "EXPIRES", "SIGNED BY"}}
	for _, publisher := range slices.Sorted(maps.Keys(rings)) {
		r := rings[publisher]
		views = append(views, viewRing(r))
		expires, by := "never", "nobody yet"
		if !r.Expires.IsZero() {
			expires = r.Expires.Format(time.DateOnly)
		}
		var names []string
		for _, k := range r.Keys {
			names = append(names, trust.KeyID(k))
		}
		if len(names) > 0 {
			by = fmt.Sprintf("%d of %s", r.Threshold, strings.Join(names, " "))
		}
		rows = append(rows, []string{publisher, strconv.FormatInt(r.Version, 10), expires, by})
	}
	return env.Show(asJSON, views, func(w io.Writer) error { return output.Table(w, rows) })
}

func newKeyAdd(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add PUBLISHER FILE",
		Short: "let bundles be installed that a publisher has signed",
		Long: `Take the key of PUBLISHER from FILE, which holds a verifier key (name+hash+base64) or a key ring: from now on bundles that are signed with it can be
installed. This is your word that the key is theirs; compare it with what they publish elsewhere. It gives their tools no rights: what a
tool may do is the policy's alone.`,
		Example: "  sudo jail tool key add acme acme.pub",
		Args:    command.Exactly("PUBLISHER", "FILE"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		ring, err := trust.ParseRing(string(text))
		if trust.CheckKey(strings.TrimSpace(string(text))) == nil {
			ring, err = trust.Single(args[0], strings.TrimSpace(string(text)))
		}
		if err != nil {
			return exit.Usage("FILE holds a verifier key or a key ring", "%s: %v", args[1], err)
		}
		return setRing(env, cmd, args[0], ring, true)
	}
	return cmd
}

func newKeyUpdate(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "update FILE",
		Short: "replace a key ring by a newer one that its roots signed",
		Long: `Replace the key ring of a publisher by the newer one in FILE: keys come, keys go, bundles are revoked. It has to be signed by enough roots of the
ring in use and of its own. Where the roots themselves are lost or stolen, remove the publisher and add it anew.`,
		Example: "  sudo jail tool key update acme.ring",
		Args:    command.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			ring, err := trust.ParseRing(string(text))
			if err != nil {
				return exit.Usage("", "%s: %v", args[0], err)
			}
			return setRing(env, cmd, ring.Publisher, ring, false)
		},
	}
}

func setRing(env *cli.Env, cmd *cobra.Command, publisher string, ring trust.Ring,
	explicit bool) error {
	return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
		if err := c.SetRing(cmd.Context(), publisher,
			api.RingRequest{Ring: ring.Text, Explicit: explicit}); err != nil {
			return err
		}
		return env.Print(func(w io.Writer) error {
			fmt.Fprintf(w, "bundles of %s can be installed if %d of these keys signed them:\n",
				publisher, ring.Threshold)
			for _, k := range ring.Keys {
				fmt.Fprintf(w, "  %s\n", k)
			}
			return nil
		})
	})
}

func newKeyRemove(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "remove PUBLISHER",
		Short: "trust a publisher no more",
		Long: `Take the keys of PUBLISHER out of use. Its bundles stay where they are and do not run any more. Of jail's own project the keys are back that
this version of jail came with.`,
		Example: "  sudo jail tool key remove acme",
		Args:    command.Exactly("PUBLISHER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
				if err := c.RemoveRing(cmd.Context(), args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(env.Stdout, "the keys of %s count no more\n",
					output.Printable(args[0]))
				return err
			})
		},
	}
}

func newKeyNew(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "new NAME",
		Short:   "make a key to sign with",
		Long:    `Make a key: NAME.key is the private half, which only its owner can read; NAME.pub is the half to publish.`,
		Example: "  jail tool key new acme-2026",
		Args:    command.Exactly("NAME"),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		private, public, err := trust.NewKey(args[0])
		if err != nil {
			return exit.Usage("", "%v", err)
		}
		for _, f := range []struct {
			name, text string
			mode       os.FileMode
		}{{args[0] + ".key", private, 0o600}, {args[0] + ".pub", public, 0o644}} {
			if err := newFile(f.name, f.text+"\n", f.mode); err != nil {
				return exit.Failed(err, "no key is ever overwritten", "%v", err)
			}
		}
		_, err = fmt.Fprintln(env.Stdout, public)
		return err
	}
	return cmd
}

func newFile(name, text string, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

func newKeySign() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign [flags] FILE",
		Short: "sign a key ring as one of its roots",
		Long: `Add a root's signature to the key ring in FILE. docs/tools.md shows what a ring looks like; the next one has a higher version, and the
signatures of enough roots of this one and of its own.`,
		Example: "  jail tool key sign --key acme-root-a.key acme.ring",
		Args:    command.Exactly("FILE"),
	}
	key := cmd.Flags().String("key", "", "`FILE` with the private key of a root")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		private, err := keyfile.Read(*key)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		signed, err := trust.SignRing(string(text), private)
		if err != nil {
			return exit.Usage("docs/tools.md shows what a key ring looks like", "%s: %v", args[0],
				err)
		}
		return atomicfile.Write(args[0], []byte(signed), 0o644, atomicfile.Durable)
	}
	return cmd
}

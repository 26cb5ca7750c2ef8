package tool

import (
	"context"
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
		newKeyList(env), newKeyAdd(env), newKeyUpdate(env),
		newKeyRemove(env), newKeyNew(env), newKeySign())
	for _, sub := range cmd.Commands() {
		sub.DisableFlagsInUseLine = true
	}
	return cmd
}

func newKeyList(env *cli.Env) *cobra.Command {
	return command.Print(env, &cobra.Command{
		Use:     "list",
		Short:   "list the publishers whose bundles may be installed",
		Example: "  jail tool key list",
		Args:    command.Exactly(),
	}, "print a list of objects", func(*cobra.Command, []string) ([]trust.Ring, error) {
		rings, err := rings(env)
		all := []trust.Ring{}
		for _, publisher := range slices.Sorted(maps.Keys(rings)) {
			all = append(all, rings[publisher])
		}
		return all, err
	}, writeRings)
}

func writeRings(w io.Writer, all []trust.Ring) {
	heads := []string{"PUBLISHER", "RING", "EXPIRES", "SIGNED BY"}
	output.Rows(w, heads, all, func(r trust.Ring) []string {
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
		return []string{r.Publisher, strconv.FormatInt(r.Version, 10), expires, by}
	})
}

func newKeyAdd(env *cli.Env) *cobra.Command {
	return showRing(env, &cobra.Command{
		Use:   "add [flags] PUBLISHER FILE",
		Short: "allow the installation of bundles that a publisher has signed",
		Long: `Take the key of PUBLISHER from FILE, which holds a verifier key (name+hash+base64)
or a key ring. Bundles that it has signed can be installed from now on. You vouch that the key
belongs to the publisher: compare it with a copy that the publisher shows elsewhere. A key gives
no rights to tools; only policies do.`,
		Example: "  sudo jail tool key add acme acme.pub",
		Args:    command.Exactly("PUBLISHER", "FILE"),
	}, true, func(args []string) (publisher string, ring trust.Ring, err error) {
		publisher, file := args[0], args[1]
		text, err := os.ReadFile(file)
		if err != nil {
			return "", ring, exit.About(err, "FILE %s", file)
		}
		ring, err = trust.ParseRing(string(text))
		if trust.CheckKey(strings.TrimSpace(string(text))) == nil {
			ring, err = trust.Single(publisher, strings.TrimSpace(string(text)))
		}
		if err != nil {
			err = exit.Usage("FILE holds a verifier key or a key ring", "%s: %v", file, err)
		}
		return publisher, ring, err
	})
}

func newKeyUpdate(env *cli.Env) *cobra.Command {
	return showRing(env, &cobra.Command{
		Use:   "update [flags] FILE",
		Short: "replace a key ring by a newer one that its roots signed",
		Long: `Replace the key ring of a publisher by the newer one in FILE, which may add and
remove keys and revoke bundles. Enough roots of the ring in use and of the new ring must have
signed it. If the roots are lost or stolen, remove the publisher and add it again.`,
		Example: "  sudo jail tool key update acme.ring",
		Args:    command.Exactly("FILE"),
	}, false, func(args []string) (publisher string, ring trust.Ring, err error) {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return "", ring, exit.About(err, "FILE %s", args[0])
		}
		if ring, err = trust.ParseRing(string(text)); err != nil {
			err = exit.Usage("", "%s: %v", args[0], err)
		}
		return ring.Publisher, ring, err
	})
}

// showRing makes cmd install the ring that read returns, and print it.
func showRing(env *cli.Env, cmd *cobra.Command, explicit bool,
	read func(args []string) (publisher string, ring trust.Ring, err error)) *cobra.Command {
	var asJSON bool
	command.JSON(cmd, &asJSON, "print the ring as an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		publisher, ring, err := read(args)
		if err != nil {
			return err
		}
		return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
			request := api.RingRequest{Ring: ring.Text, Explicit: explicit}
			if err := c.SetRing(cmd.Context(), publisher, request); err != nil {
				return err
			}
			return env.Show(asJSON, ring, func(w io.Writer) {
				fmt.Fprintf(w, "bundles of %s can be installed if %d of these keys signed them:\n",
					publisher, ring.Threshold)
				for _, k := range ring.Keys {
					fmt.Fprintf(w, "  %s\n", k)
				}
			})
		})
	}
	return cmd
}

func newKeyRemove(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:   "remove [flags] PUBLISHER",
		Short: "remove the keys of a publisher",
		Long: `Remove the keys of PUBLISHER. Its bundles stay installed and no longer run. For
jail's own project the keys that this version of jail came with are in use again.`,
		Example: "  sudo jail tool key remove acme",
		Args:    command.Exactly("PUBLISHER"),
	}, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (removedKeys, error) {
			return removedKeys{args[0]}, c.RemoveRing(ctx, args[0])
		}, func(w io.Writer, r removedKeys) {
			fmt.Fprintf(w, "removed the keys of %s\n", output.Printable(r.Publisher))
		})
}

// removedKeys is a publisher without keys in --json output.
type removedKeys struct {
	Publisher string `json:"publisher"`
}

// publicKey is a new key in --json output.
type publicKey struct {
	Name   string `json:"name"`
	Public string `json:"public"`
}

func newKeyNew(env *cli.Env) *cobra.Command {
	return command.Print(env, &cobra.Command{
		Use:   "new [flags] NAME",
		Short: "make a key to sign with",
		Long: `Make a key pair: NAME.key is the private key, which only you can read; NAME.pub is
the public key.`,
		Example: "  jail tool key new acme-2026",
		Args:    command.Exactly("NAME"),
	}, "print an object", func(_ *cobra.Command, args []string) (publicKey, error) {
		return makeKey(args[0])
	}, func(w io.Writer, k publicKey) { fmt.Fprintln(w, k.Public) })
}

// makeKey writes a new key pair to two new files.
func makeKey(name string) (k publicKey, err error) {
	private, public, err := trust.NewKey(name)
	if err != nil {
		return k, exit.Usage("", "%v", err)
	}
	for _, f := range []struct {
		name, text string
		mode       os.FileMode
	}{{name + ".key", private, 0o600}, {name + ".pub", public, 0o644}} {
		if err := newFile(f.name, f.text+"\n", f.mode); err != nil {
			return k, exit.Failed(err, "no key is ever overwritten", "%v", err)
		}
	}
	return publicKey{name, public}, nil
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
	var key string
	cmd := &cobra.Command{
		Use:   "sign [flags] FILE",
		Short: "sign a key ring as one of its roots",
		Long: `Add a root's signature to the key ring in FILE. docs/tools.md shows a ring. A newer
ring has a higher version, and signatures of enough roots of the ring before it and of its own.`,
		Example: "  jail tool key sign --key acme-root-a.key acme.ring",
		Args:    command.Exactly("FILE"),
		RunE:    func(_ *cobra.Command, args []string) error { return runKeySign(key, args[0]) },
	}
	cmd.Flags().StringVar(&key, "key", "", "`FILE` with the private key of a root")
	return cmd
}

func runKeySign(keyFile, file string) error {
	private, err := keyfile.Read(keyFile)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return exit.About(err, "FILE %s", file)
	}
	signed, err := trust.SignRing(string(text), private)
	if err != nil {
		return exit.Usage("docs/tools.md shows a key ring", "%s: %v", file, err)
	}
	return atomicfile.Write(file, []byte(signed), 0o644, atomicfile.Durable)
}

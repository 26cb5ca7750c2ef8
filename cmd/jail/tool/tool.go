// Package tool has the commands that list, pull, sign and verify bundles of tools.
package tool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// New returns the command jail tool.
func New(env *cli.Env) *cobra.Command {
	return command.Group("tool", "list, show, pull and verify tools", newList(env), newShow(env),
		newPull(env), newVerify(env), newRemove(env),
		newSign(env), newPush(env), newKey(env), newLibs(env))
}

// bundleView is a bundle in --json output.
type bundleView struct {
	bundle.Manifest
	Dir    string            `json:"dir"`
	Origin *bundle.Installed `json:"origin,omitempty"` // of a pulled one
	// the publisher whose keys signed it; "" if no known one did
	Signer string `json:"signed_by"`

	bundle *bundle.Bundle
	// command is the requested command; nil for the whole bundle.
	command *bundle.Command
}

func viewBundle(rings trust.Rings, b *bundle.Bundle, command *bundle.Command) bundleView {
	return bundleView{b.Manifest, b.Dir, b.Origin, signer(rings, b), b, command}
}

// signer returns the publisher whose current keys signed a bundle's manifest, or "".
func signer(rings trust.Rings, b *bundle.Bundle) string {
	if b.Signed == "" {
		return ""
	}
	v, err := bundle.Judge(rings, []byte(b.Text), b.Signed)
	if err != nil {
		return ""
	}
	return v.Ring.Publisher
}

// signers returns the key rings in use, or only the shipped one if the caller may not read the
// others.
func signers(env *cli.Env) (trust.Rings, error) {
	rings, err := rings(env)
	if errors.Is(err, fs.ErrPermission) {
		return trust.Load("", false)
	}
	return rings, err
}

// unsigned is shown as the signer of a bundle without a signature.
const unsigned = "nobody: came with jail, or was built here"

// openBundles opens the installed bundles, and warns of those that could not be opened.
func openBundles(env *cli.Env) (*bundle.Set, error) {
	set, err := bundle.OpenPlaces(env.Config.Places(), false)
	if errors.Is(err, fs.ErrPermission) {
		// Only root may read a private daemon's state. Everybody can read what came with jail.
		output.Say(env.Stderr, "warning", err.Error())
		set, err = bundle.Open(env.Config.Bundles...)
	}
	if err != nil {
		return nil, exit.Failed(err, "", "%v", err)
	}
	for _, p := range set.Problems() {
		output.Say(env.Stderr, "warning", "bundle left out: "+p.Error())
	}
	return set, nil
}

func newList(env *cli.Env) *cobra.Command {
	return command.Print(env, &cobra.Command{
		Use:     "list",
		Short:   "list the commands of the installed bundles",
		Example: "  jail tool list",
		Args:    command.Exactly(),
	}, "print a list of objects, one for each bundle",
		func(*cobra.Command, []string) ([]bundleView, error) { return listBundles(env) },
		func(w io.Writer, all []bundleView) {
			rows := [][]string{{"TOOL", "VERSION", "SIGNED BY", "ABOUT"}}
			for _, b := range all {
				for _, c := range b.bundle.Commands() {
					rows = append(rows, []string{b.Name + "/" + c.Name, b.Version,
						cmp.Or(b.Signer, "nobody"), c.About})
				}
			}
			output.Table(w, rows)
		})
}

func listBundles(env *cli.Env) ([]bundleView, error) {
	set, err := openBundles(env)
	if err != nil {
		return nil, err
	}
	rings, err := signers(env)
	if err != nil {
		return nil, err
	}
	all := []bundleView{}
	for _, b := range set.List() {
		all = append(all, viewBundle(rings, b, nil))
	}
	if len(all) == 0 {
		output.Say(env.Stderr, "hint", "no bundle is installed below "+
			strings.Join(env.Config.Bundles, " or "))
	}
	return all, nil
}

func newShow(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "show a bundle, or the bundle and module of a command",
		Example: "  jail tool show core-utils\n  jail tool show grep",
		Args:    command.Exactly("NAME"),
	}
	complete.First(env, cmd, complete.Tools)
	return command.Print(env, cmd, "print the bundle's manifest",
		func(_ *cobra.Command, args []string) (view bundleView, err error) {
			set, err := openBundles(env)
			if err != nil {
				return view, err
			}
			b, command, err := findTool(set, args[0])
			if err != nil {
				return view, exit.NotFound("jail tool list", "%v", err)
			}
			rings, err := signers(env)
			return viewBundle(rings, b, command), err
		}, writeBundle)
}

// findTool returns the bundle called name, or the bundle and the command of that name.
func findTool(set *bundle.Set, name string) (*bundle.Bundle, *bundle.Command, error) {
	if b, err := set.Show(name); err == nil {
		return b, nil, nil
	}
	c, err := set.Find(name)
	if err != nil {
		return nil, nil, err
	}
	b, err := set.Show(c.Bundle)
	return b, &c, err
}

func writeBundle(w io.Writer, view bundleView) {
	b, command, by := view.bundle, view.command, view.Signer
	var rows [][]string
	if command != nil {
		rows = append(rows, []string{"command", command.Name + ": " + command.About})
	}
	rows = append(rows, []string{"bundle", b.Name + " " + b.Version}, []string{"about", b.About},
		[]string{"folder", b.Dir}, []string{"signed by", cmp.Or(by, unsigned)})
	if in := b.Origin; in != nil {
		rows = append(rows, []string{"publisher", in.Publisher}, []string{"pulled",
			in.Time.Format(time.RFC3339) + " from " + in.Source}, []string{"manifest", in.Manifest})
	}
	if l := b.Manifest.Limits; l.MemoryBytes > 0 || l.WallMS > 0 {
		rows = append(rows, []string{"recommended", output.Size(l.MemoryBytes) + " of memory, " +
			output.Millis(l.WallMS)})
	}
	for i, r := range b.Reach() {
		rows = append(rows, []string{output.Once(i, "asks for"), r})
	}
	for i, l := range b.Licences {
		rows = append(rows, []string{output.Once(i, "licences"), l.SPDX + " (" + l.File + ")"})
	}
	for i, s := range b.BuiltFrom {
		rows = append(rows, []string{output.Once(i, "built from"), s.Name + " " + s.Version +
			" sha256:" + s.SHA256})
	}
	for i, m := range slices.DeleteFunc(slices.Clone(b.Modules),
		func(m bundle.ModuleEntry) bool {
			return command != nil && m.File != command.Module.File
		}) {
		rows = append(rows, []string{output.Once(i, "modules"),
			fmt.Sprintf("%s  %s, %s, sha256:%s", m.File, output.Size(m.Size), m.Layout, m.SHA256)})
		if command != nil {
			rows = append(rows, []string{"imports", strings.Join(m.Imports, " ")})
		}
	}
	if command == nil {
		for i, c := range b.Commands() {
			rows = append(rows, []string{output.Once(i, "commands"), c.Name + ": " + c.About})
		}
	}
	output.Table(w, rows)
}

// rings returns the key rings in use.
func rings(env *cli.Env) (trust.Rings, error) {
	rings, err := trust.Load((&bundle.Store{Dir: env.Config.Tools}).KeysDir(), false)
	if err != nil {
		return nil, exit.Failed(err, "", "key rings: %v", err)
	}
	return rings, nil
}

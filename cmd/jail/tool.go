package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

func (a *app) toolCommand() *cobra.Command {
	return a.group("tool", "list, show, pull and verify tools", a.toolListCommand(), a.toolShowCommand(), a.toolPullCommand(), a.toolVerifyCommand(), a.toolRemoveCommand(),
		a.toolSignCommand(), a.toolPushCommand(), a.toolKeyCommand(), a.toolLibsCommand())
}

// bundleView is a bundle as --json shows it.
type bundleView struct {
	bundle.Manifest
	Dir    string            `json:"dir"`
	Origin *bundle.Installed `json:"origin,omitempty"` // of a pulled one
	Signer string            `json:"signed_by"`        // the publisher whose keys signed it; "" where nobody did that is known here
}

// signer is the publisher whose keys of now signed a bundle's manifest, or "".
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

// signers are the rings in use, or those alone that jail ships where others are not for this user to read.
func (a *app) signers() (trust.Rings, error) {
	rings, err := a.rings()
	if errors.Is(err, fs.ErrPermission) {
		return trust.Load("", false)
	}
	return rings, err
}

// unsigned says for people of whom a bundle is that nobody signed.
const unsigned = "nobody: came with jail, or was built here"

// openBundles tells of bundles that are left out on standard error.
func (a *app) openBundles() (*bundle.Set, error) {
	set, err := bundle.OpenPlaces(a.config.Places(), false)
	if errors.Is(err, fs.ErrPermission) {
		// A private daemon's state may be root's alone. What came with jail anyone can read.
		say(a.stderr, "warning", err.Error())
		set, err = bundle.Open(a.config.Bundles...)
	}
	if err != nil {
		return nil, failed(err, "", "%v", err)
	}
	for _, p := range set.Problems() {
		say(a.stderr, "warning", "bundle left out: "+p.Error())
	}
	return set, nil
}

func (a *app) toolListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list the commands of the installed bundles",
		Example: "  jail tool list",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print a list of objects, one for each bundle")
	cmd.RunE = func(*cobra.Command, []string) error {
		set, err := a.openBundles()
		if err != nil {
			return err
		}
		views := []bundleView{}
		rings, err := a.signers()
		if err != nil {
			return err
		}
		rows := [][]string{{"TOOL", "VERSION", "SIGNED BY", "ABOUT"}}
		for _, b := range set.List() {
			by := signer(rings, b)
			views = append(views, bundleView{b.Manifest, b.Dir, b.Origin, by})
			for _, c := range b.Commands() {
				rows = append(rows, []string{b.Name + "/" + c.Name, b.Version, or(by, "nobody"), c.About})
			}
		}
		if len(views) == 0 {
			say(a.stderr, "hint", "no bundle is installed below "+strings.Join(a.config.Bundles, " or "))
		}
		return a.show(*asJSON, views, func(w io.Writer) error { return table(w, rows) })
	}
	return cmd
}

func (a *app) toolShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "show a bundle, or the bundle and module of a command",
		Example: "  jail tool show core-utils\n  jail tool show grep",
		Args:    exactly("NAME"),
	}
	asJSON := jsonFlag(cmd, "print the bundle's manifest")
	a.completeFirst(cmd, a.toolNames)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		set, err := a.openBundles()
		if err != nil {
			return err
		}
		b, command, err := findTool(set, args[0])
		if err != nil {
			return notFound("jail tool list", "%v", err)
		}
		rings, err := a.signers()
		if err != nil {
			return err
		}
		by := signer(rings, b)
		return a.show(*asJSON, bundleView{b.Manifest, b.Dir, b.Origin, by}, func(w io.Writer) error { return writeBundle(w, b, command, by) })
	}
	return cmd
}

// findTool returns the bundle of that name, or the one with the command, and then the command.
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

func writeBundle(w io.Writer, b *bundle.Bundle, command *bundle.Command, by string) error {
	var rows [][]string
	if command != nil {
		rows = append(rows, []string{"command", command.Name + ": " + command.About})
	}
	rows = append(rows, []string{"bundle", b.Name + " " + b.Version}, []string{"about", b.About}, []string{"folder", b.Dir}, []string{"signed by", or(by, unsigned)})
	if in := b.Origin; in != nil {
		rows = append(rows, []string{"publisher", in.Publisher}, []string{"pulled", in.Time.Format(time.RFC3339) + " from " + in.Source}, []string{"manifest", in.Manifest})
	}
	if l := b.Manifest.Limits; l.MemoryBytes > 0 || l.WallMS > 0 {
		rows = append(rows, []string{"recommended", size(l.MemoryBytes) + " of memory, " + millis(l.WallMS)})
	}
	for i, r := range b.Reach() {
		rows = append(rows, []string{once(i, "asks for"), r})
	}
	for i, l := range b.Licences {
		rows = append(rows, []string{once(i, "licences"), l.SPDX + " (" + l.File + ")"})
	}
	for i, s := range b.BuiltFrom {
		rows = append(rows, []string{once(i, "built from"), s.Name + " " + s.Version + " sha256:" + s.SHA256})
	}
	for i, m := range slices.DeleteFunc(slices.Clone(b.Modules), func(m bundle.ModuleEntry) bool { return command != nil && m.File != command.Module.File }) {
		rows = append(rows, []string{once(i, "modules"), fmt.Sprintf("%s  %s, %s, sha256:%s", m.File, size(m.Size), m.Layout, m.SHA256)})
		if command != nil {
			rows = append(rows, []string{"imports", strings.Join(m.Imports, " ")})
		}
	}
	if command == nil {
		for i, c := range b.Commands() {
			rows = append(rows, []string{once(i, "commands"), c.Name + ": " + c.About})
		}
	}
	return table(w, rows)
}

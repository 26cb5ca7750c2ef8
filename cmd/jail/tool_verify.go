package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

func (a *app) toolVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [BUNDLE...]",
		Short: "verify the signatures and files of bundles",
		Long: `Read every file of the bundles and compare it with the signed manifest, and the signature with the keys in use. BUNDLE is the name of an installed
one, or a folder (with a slash); without one all that are installed are verified. Exits with 1 if something is wrong. The same is
verified whenever a tool is run.`,
		Example: "  jail tool verify\n  jail tool verify words ./build/words",
	}
	asJSON := jsonFlag(cmd, "print a list of objects")
	a.completeFirst(cmd, a.bundleNames)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		rings, err := a.rings()
		if err != nil {
			return err
		}
		set, err := a.openBundles()
		if err != nil {
			return err
		}
		bundles := set.List()
		if len(args) > 0 {
			bundles = nil
		}
		for _, arg := range args {
			b, err := named(set, arg)
			if err != nil {
				return err
			}
			bundles = append(bundles, b)
		}
		verdicts := []bundleVerdict{}
		wrong := len(args) == 0 && len(set.Problems()) > 0
		for _, b := range bundles {
			v := verifyBundle(rings, b, time.Now())
			wrong = wrong || !v.Sound
			verdicts = append(verdicts, v)
		}
		if err := a.show(*asJSON, verdicts, func(w io.Writer) error { return writeVerdicts(w, verdicts) }); err != nil || !wrong {
			return err
		}
		return exitNo
	}
	return cmd
}

func named(set *bundle.Set, arg string) (*bundle.Bundle, error) {
	if strings.Contains(arg, "/") {
		return loadFolder(arg)
	}
	b, err := set.Show(arg)
	if err != nil {
		return nil, notFound("jail tool list", "%v", err)
	}
	return b, nil
}

// bundleVerdict is what jail tool verify says of a bundle.
type bundleVerdict struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Publisher string `json:"publisher,omitempty"` // whose keys signed it; "" where it came with jail and needs none
	Sound     bool   `json:"sound"`
	Detail    string `json:"detail"`
}

func verifyBundle(rings trust.Rings, b *bundle.Bundle, now time.Time) bundleVerdict {
	v := bundleVerdict{Name: b.Name, Version: b.Version}
	files := count(len(b.Files()), "file", "files")
	if err := b.Verify(); err != nil {
		v.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
		return v
	}
	if b.Signed == "" {
		v.Sound, v.Detail = true, files+" as in its manifest; not signed: it came with jail, or was built here"
		return v
	}
	judged, err := bundle.Judge(rings, []byte(b.Text), b.Signed)
	if err != nil {
		v.Detail = err.Error()
		return v
	}
	v.Sound, v.Publisher = true, judged.Ring.Publisher
	v.Detail = files + " as in the manifest that " + v.Publisher + " signed"
	if err := errors.Join(judged.Statement.Fresh(now), judged.Ring.Fresh(now)); err != nil {
		v.Detail += "; not to be installed any more: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return v
}

func writeVerdicts(w io.Writer, all []bundleVerdict) error {
	rows := [][]string{{"BUNDLE", "VERSION", "SOUND", "WHY"}}
	for _, v := range all {
		rows = append(rows, []string{v.Name, v.Version, map[bool]string{true: "yes", false: "no"}[v.Sound], v.Detail})
	}
	return table(w, rows)
}

func (a *app) toolRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove [flags] BUNDLE",
		Short: "remove a pulled bundle",
		Long: `Remove a bundle that was pulled. That its version was installed is remembered: an older one is refused later, unless --forget is given.
Bundles that came with jail go with jail.`,
		Example: "  sudo jail tool remove words",
		Args:    exactly("BUNDLE"),
	}
	forget := cmd.Flags().Bool("forget", false, "forget which version was installed, so that an older one can be")
	asJSON := jsonFlag(cmd, "print an object")
	a.completeFirst(cmd, a.bundleNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			in, err := c.RemoveTool(cmd.Context(), args[0], *forget)
			if err != nil {
				return err
			}
			return a.show(*asJSON, in, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "removed %s %s of %s\n", in.Name, in.Version, in.Publisher)
				return err
			})
		})
	}
	return cmd
}

// bundleNames are for completion.
func (a *app) bundleNames() []string {
	set, err := bundle.OpenPlaces(a.config.Places(), false)
	if err != nil {
		return nil
	}
	var names []string
	for _, b := range set.List() {
		names = append(names, b.Name+"\t"+b.About)
	}
	return names
}

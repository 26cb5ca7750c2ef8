package tool

import (
	"errors"
	"io"
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

func newVerify(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [BUNDLE...]",
		Short: "verify the signatures and files of bundles",
		Long: `Compare every file of the bundles with the signed manifest, and the signature with
the keys in use. BUNDLE is the name of an installed bundle, or a folder (with a slash); the
default is all installed bundles. The exit code is 1 if something is wrong. Every run of a tool
verifies the same.`,
		Example: "  jail tool verify\n  jail tool verify words ./build/words",
	}
	complete.First(env, cmd, complete.Bundles)
	return command.Judge(env, cmd, "print a list of objects",
		func(_ *cobra.Command, args []string) ([]bundleVerdict, bool, error) {
			return verifyBundles(env, args)
		}, writeVerdicts)
}

// verifyBundles verifies the named bundles, or all. The bool is false if anything is wrong.
func verifyBundles(env *cli.Env, args []string) ([]bundleVerdict, bool, error) {
	rings, err := rings(env)
	if err != nil {
		return nil, false, err
	}
	set, err := openBundles(env)
	if err != nil {
		return nil, false, err
	}
	bundles := set.List()
	if len(args) > 0 {
		bundles = nil
	}
	for _, arg := range args {
		b, err := findBundle(set, arg)
		if err != nil {
			return nil, false, err
		}
		bundles = append(bundles, b)
	}
	verdicts := []bundleVerdict{}
	sound := len(args) > 0 || len(set.Problems()) == 0
	for _, b := range bundles {
		v := verifyBundle(rings, b, time.Now())
		sound = sound && v.Sound
		verdicts = append(verdicts, v)
	}
	return verdicts, sound, nil
}

func findBundle(set *bundle.Set, arg string) (*bundle.Bundle, error) {
	if strings.Contains(arg, "/") {
		return loadFolder(arg)
	}
	b, err := set.Show(arg)
	if err != nil {
		return nil, exit.NotFound("jail tool list", "%v", err)
	}
	return b, nil
}

// bundleVerdict is the result of verifying a bundle.
type bundleVerdict struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// the publisher whose keys signed it; "" if it is not signed
	Publisher string `json:"publisher,omitempty"`
	Sound     bool   `json:"sound"`
	Detail    string `json:"detail"`
}

func verifyBundle(rings trust.Rings, b *bundle.Bundle, now time.Time) bundleVerdict {
	v := bundleVerdict{Name: b.Name, Version: b.Version}
	files := output.Count(len(b.Files()), "file", "files")
	if err := b.Verify(); err != nil {
		v.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
		return v
	}
	if b.Signed == "" {
		v.Sound, v.Detail = true,
			files+" as in its manifest; not signed: it came with jail, or was built here"
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

func writeVerdicts(w io.Writer, all []bundleVerdict) {
	rows := [][]string{{"BUNDLE", "VERSION", "SOUND", "WHY"}}
	for _, v := range all {
		rows = append(rows, []string{v.Name, v.Version,
			map[bool]string{true: "yes", false: "no"}[v.Sound], v.Detail})
	}
	output.Table(w, rows)
}

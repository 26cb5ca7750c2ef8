package policies

import (
	"errors"
	"io/fs"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
)

// ceiling returns the host's ceiling and its file. If there is none, the layer grants everything,
// and the file is nil.
func ceiling(env *cli.Env, set *profiles.Set) (policy.Layer, *syntax.File, error) {
	layer := policy.Layer{Name: "ceiling", Source: profiles.BuiltIn, Policy: policy.Top()}
	text, err := profiles.ReadTrusted(env.Config.Ceiling)
	if errors.Is(err, fs.ErrNotExist) {
		return layer, nil, nil
	}
	if err != nil {
		return layer, nil, exit.Failed(err, "", "ceiling: %v", err)
	}
	file, err := set.Parse(syntax.Ceiling, env.Config.Ceiling, text)
	if err != nil {
		return layer, nil, exit.Failed(err, "jail policy check "+env.Config.Ceiling, "%v", err)
	}
	return file.Layer(layer.Name, env.Config.Ceiling), &file, nil
}

// UnderCeiling returns the meet of the host's ceiling and a layer.
func UnderCeiling(env *cli.Env, set *profiles.Set, layer policy.Layer) (policy.Effective, error) {
	ceiling, _, err := ceiling(env, set)
	if err != nil {
		return policy.Effective{}, err
	}
	eff, err := policy.Resolve(ceiling, layer)
	if err != nil {
		return eff, exit.Usage("", "%v", err)
	}
	return eff, nil
}

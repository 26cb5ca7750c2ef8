package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

// Of describes the run whose layers are wanted.
type Of struct {
	Tool          string
	Limits, Fetch []string
	NoWorkspace   bool
}

// Layers returns the layers of a run: ceiling, profile, request and workspace file, each followed
// by its section for the tool.
func Layers(env *cli.Env, name string, f Of) ([]meaning.Source, error) {
	set, err := Load(env)
	if err != nil {
		return nil, err
	}
	ceiling, ceilingFile, err := ceiling(env, set)
	if err != nil {
		return nil, err
	}
	file, err := Open(set, name)
	if err != nil {
		return nil, err
	}
	r := policy.NewRequest()
	for _, text := range f.Limits {
		if err := r.Limit(text); err != nil {
			return nil, exit.Usage("", "--limit: %v", err)
		}
	}
	for _, host := range f.Fetch {
		if err := r.Fetch(host); err != nil {
			return nil, exit.Usage("", "--fetch: %v", err)
		}
	}
	if f.NoWorkspace {
		r.Workspace(policy.WorkspaceNone)
	}
	label := "profile " + name
	if NamesFile(name) {
		label = "policy " + name
	}
	all := []meaning.Source{{Layer: ceiling, File: ceilingFile},
		{Layer: file.Layer(label, file.Source), File: &file},
		{Layer: policy.Layer{Name: "request", Source: "command line", Policy: r.Policy()}}}
	if own, err := workspaceSource(set, file.Policy); err != nil {
		return nil, err
	} else if own != nil && !f.NoWorkspace {
		all = append(all, *own)
	}
	if f.Tool == "" {
		return all, nil
	}
	return withTool(all, f.Tool), nil
}

func withTool(all []meaning.Source, tool string) []meaning.Source {
	var out []meaning.Source
	for _, s := range all {
		out = append(out, s)
		for _, t := range s.Layer.Tools {
			if t.Tool.Match(tool) {
				out = append(out, meaning.Source{File: s.File, Layer: policy.Layer{
					Name: fmt.Sprintf("%s, tool %q", s.Layer.Name, t.Tool), Source: s.Layer.Source,
					Policy: t.Policy}})
			}
		}
	}
	return out
}

// OwnLayers returns the policy in force inside this jail, as one layer.
func OwnLayers() ([]meaning.Source, error) {
	text, err := os.ReadFile(jail.PolicyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.NotFound("--self is for programs of the host that run in a jail",
			"there is no %s, so this is no jail that tells its policy", jail.PolicyFile)
	}
	if err != nil {
		return nil, exit.Failed(err, "", "%s: %v", jail.PolicyFile, exit.Cause(err))
	}
	var own struct{ Policy policy.Policy }
	if err := json.Unmarshal(text, &own); err != nil {
		return nil, exit.Failed(err, "", "%s: %v", jail.PolicyFile, err)
	}
	return []meaning.Source{{Layer: policy.Layer{Name: "this jail", Source: jail.PolicyFile,
		Policy: own.Policy}}}, nil
}

// Commands returns a function that returns the bundles with a command.
func Commands(env *cli.Env) meaning.Commands {
	set, err := bundle.Open(env.Config.Bundles...)
	return func(command string) []string {
		if err != nil {
			return nil
		}
		var out []string
		for _, b := range set.List() {
			for _, c := range b.Commands() {
				if c.Name == command {
					out = append(out, b.Name)
				}
			}
		}
		return out
	}
}

// internalEntry returns the entry of the operator's fetch.toml that marks a host as internal, or
// "". It fails if this user cannot read the file, or for a mistake in it.
func internalEntry(path string, q policy.Connect) (string, error) {
	settings, err := fetch.ReadSettings(path)
	if err != nil {
		return "", err
	}
	if e := settings.Find(q.Host, q.Port); e != nil {
		return fmt.Sprintf("%s:%d: [[internal]] %s", path, e.Line, e), nil
	}
	return "", nil
}

// Why answers a question of the form VERB:OBJECT.
func Why(env *cli.Env, text string, sources []meaning.Source) (meaning.Answer, error) {
	verb, object, _ := strings.Cut(text, ":")
	var p policy.Policy
	for _, s := range sources {
		if s.File != nil && s.File.Kind == syntax.Profile {
			p = s.Layer.Policy
		}
	}
	ask, err := meaning.ParseAsk(verb, object, p, Commands(env))
	if err != nil {
		return meaning.Answer{},
			exit.Usage("a question is read:PATH, write:PATH, exec:TOOL, connect:HOST:PORT, "+
				"env:NAME, commit:PATH or limit:NAME", "--why %s: %v", text, err)
	}
	var unknown error
	if q, ok := ask.Connects(); ok {
		ask.Internal, unknown = internalEntry(env.Config.Fetch, q)
	}
	answer, err := meaning.Why(ask, sources)
	if unknown != nil {
		answer.Internal = "unknown: " + exit.Cause(unknown).Error()
	}
	if err != nil {
		return meaning.Answer{}, exit.Usage("", "%v", err)
	}
	return answer, nil
}

// workspaceSource returns the layer of the current directory's own policy file, or nil if there is
// none, or no workspace.
func workspaceSource(set *profiles.Set, p policy.Policy) (*meaning.Source, error) {
	if p.Workspace.Access == policy.WorkspaceNone {
		return nil, nil
	}
	dir, err := os.Open(".")
	if err != nil {
		return nil, exit.Failed(err, "", "%v", exit.Cause(err))
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return nil, exit.Failed(err, "", "%v", exit.Cause(err))
	}
	text, err := profiles.ReadWorkspace(dir, prepare.WorkspaceFile, uint32(os.Geteuid()),
		info.Sys().(*syscall.Stat_t).Uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	path := filepath.Join(places().Workspace, prepare.WorkspaceFile)
	if err != nil {
		return nil, exit.Usage(
			"runs in this directory are refused until the file is corrected or removed",
			"%s: %v", path, exit.Cause(err))
	}
	file, err := set.Parse(syntax.Request, path, text)
	if err != nil {
		return nil, exit.Usage(
			"runs in this directory are refused until the file is corrected or removed", "%v", err)
	}
	return &meaning.Source{Layer: file.Layer(prepare.WorkspaceLayer, path), File: &file}, nil
}

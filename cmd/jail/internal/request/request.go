// Package request makes the request for a run from the flags of run, sh, plan and session start.
package request

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/inherit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// Flags are the flags that describe a run.
type Flags struct {
	profile, policy string
	workspace, cwd  string
	noWorkspace     bool
	Fate
	limits, env, fetch     []string
	grants                 []string
	id, outer, image       string
	JSON, Quiet            bool
	profileSet, policyFile bool
}

// Add adds the flags to a command. printsJSON says what --json prints.
func (f *Flags) Add(cmd *cobra.Command, printsJSON string) {
	set := cmd.Flags()
	// What follows the tool's name are its arguments.
	set.SetInterspersed(false)
	set.SortFlags = false
	f.addPolicy(set, "default")
	set.StringVar(&f.cwd, "cwd", "",
		"start in `DIR` below the workspace (default where you stand in it, else its root)")
	set.BoolVar(&f.noWorkspace, "no-workspace", false, "run without a workspace")
	set.BoolVar(&f.Keep, "keep", false, "keep the shadow, even if nothing changed")
	set.BoolVar(&f.Discard, "discard", false, "delete the shadow")
	set.BoolVar(&f.Commit, "commit", false, "commit what changed, if the tool exits with 0")
	f.addNarrowing(set)
	set.StringArrayVar(&f.grants, "grant", nil,
		"add what a grant of jail approvals gives to the profile (`ID`, repeatable)")
	set.StringVar(&f.image, "image", "",
		"run a program of the OCI `IMAGE`: oci:DIR, or a name of jail image list "+
			"(profile image, unless another is named)")
	set.StringVar(&f.id, "id", "", "name the run `ID` (default a random one)")
	set.BoolVar(&f.JSON, "json", false, printsJSON)
	set.BoolVar(&f.Quiet, "quiet", false, "print errors only")
}

// AddLasting adds the flags of a command that works in one session per directory. profile is the
// default profile.
func (f *Flags) AddLasting(cmd *cobra.Command, profile string) {
	set := cmd.Flags()
	set.SortFlags = false
	f.addPolicy(set, profile)
	f.addNarrowing(set)
	set.StringVar(&f.id, "id", "",
		"name the session `ID` (default one for the directory and the policy)")
}

func (f *Flags) addPolicy(set *pflag.FlagSet, profile string) {
	set.StringVar(&f.profile, "profile", profile, "profile `NAME` to run with")
	set.StringVar(&f.policy, "policy", "", "policy `FILE` to run with, instead of a profile")
	set.StringVar(&f.workspace, "workspace", ".", "`DIR` that the tool gets a shadow of")
}

func (f *Flags) addNarrowing(set *pflag.FlagSet) {
	set.StringArrayVar(&f.limits, "limit", nil,
		"narrow a limit, such as memory=64MiB (`KEY=VALUE`, repeatable)")
	set.StringArrayVar(&f.env, "env", nil, "give the tool a variable (`NAME=VALUE`, repeatable)")
	set.StringArrayVar(&f.fetch, "fetch", nil, "narrow the network to `HOST` (repeatable)")
	set.StringVar(&f.outer, "outer", "",
		"run inside an outer `LAYER`: "+strings.Join(policy.OuterWords(), ", "))
}

// Request returns the request to run the tool args[0]. It checks what needs no daemon.
func (f *Flags) Request(env *cli.Env, cmd *cobra.Command, args []string) (message.Request, error) {
	req, err := f.Settings(env, cmd)
	if err != nil {
		return req, err
	}
	// An image has a command of its own.
	if len(args) == 0 && f.image == "" {
		return req, exit.Usage("usage: "+cmd.UseLine(), "%s: TOOL is missing", cmd.CommandPath())
	}
	if len(args) > 0 {
		req.Tool, req.Args = args[0], args[1:]
	}
	return req, checkTexts(f, &req)
}

// Settings returns the request without a tool.
func (f *Flags) Settings(env *cli.Env, cmd *cobra.Command) (message.Request, error) {
	f.profileSet, f.policyFile = cmd.Flags().Changed("profile"), cmd.Flags().Changed("policy")
	req := message.Request{ID: f.id, Profile: f.profile, NoWorkspace: f.noWorkspace, Cwd: f.cwd,
		Limits: f.limits, Env: f.env, Fetch: f.fetch, Grants: f.grants, Outer: f.outer,
		Image: f.image}
	if err := steps(f, &req, checkExclusive, takeID, checkNarrowing, takeDirs, takePolicy, takeImage,
		checkTexts); err != nil {
		return req, err
	}
	req.Inherit = inherit.Variables(env.Environ, req.Workspace, req.Dir)
	return req, nil
}

// LastingSettings returns the request for the session of AddLasting. Unless --id is given, the
// session's id is derived from the directory and the policy, so that equal requests share a
// session.
func (f *Flags) LastingSettings(env *cli.Env, cmd *cobra.Command) (message.Request, error) {
	req, err := f.Settings(env, cmd)
	if err != nil {
		return req, err
	}
	// The session belongs to the workspace, whichever directory in it is current.
	req.Dir, req.Workspace = cmp.Or(req.Workspace, req.Dir), ""
	if f.id == "" {
		req.ID, err = lastingID(req)
	}
	return req, err
}

func lastingID(req message.Request) (string, error) {
	text, err := json.Marshal([]any{os.Getuid(), req.Dir, req.Profile, req.Policy, req.Limits, req.Env,
		req.Fetch, req.Outer})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "mcp-" + hex.EncodeToString(sum[:8]), nil
}

// ExplainFlags returns the flags of "jail policy explain" for the policy of the run, each followed
// by a blank, or "".
func (f *Flags) ExplainFlags() string {
	switch {
	case f.policyFile && output.PlainPath.MatchString("/"+f.policy):
		return "--policy " + f.policy + " "
	case f.profileSet:
		return "--profile " + f.profile + " "
	}
	return ""
}

// Fate holds the flags for what happens to the shadow.
type Fate struct{ Keep, Discard, Commit bool }

// Choose returns the fate that is requested, "" for none, and an error for more than one.
func (f Fate) Choose() (fate message.Fate, err error) {
	for _, x := range []struct {
		on     bool
		Choose message.Fate
	}{{f.Keep, message.FateKeep}, {f.Discard, message.FateDiscard},
		{f.Commit, message.FateCommit}} {
		if x.on && fate != "" {
			return "", exit.Usage("", "--%s and --%s contradict each other", fate, x.Choose)
		}
		if x.on {
			fate = x.Choose
		}
	}
	return fate, nil
}

func checkExclusive(f *Flags, req *message.Request) (err error) {
	if req.Fate, err = f.Fate.Choose(); err != nil {
		return err
	}
	switch {
	case f.profileSet && f.policyFile:
		return exit.Usage("", "--profile and --policy contradict each other")
	case f.noWorkspace && f.workspace != ".":
		return exit.Usage("", "--workspace and --no-workspace contradict each other")
	case f.noWorkspace && f.cwd != "":
		return exit.Usage("", "--cwd and --no-workspace contradict each other")
	}
	return nil
}

// takeID sets the run's id here, so that the client can end the run by it.
func takeID(_ *Flags, req *message.Request) error {
	if req.ID == "" {
		req.ID = string(jail.NewID())
		return nil
	}
	if _, err := jail.ParseID(req.ID); err != nil {
		return exit.Usage("", "--id: %v", err)
	}
	return nil
}

func checkNarrowing(_ *Flags, req *message.Request) error {
	r := policy.NewRequest()
	for _, flag := range []struct {
		name string
		take func(string) error
		all  []string
	}{{"limit", r.Limit, req.Limits}, {"env", r.Env, req.Env}, {"fetch", r.Fetch, req.Fetch}} {
		for _, text := range flag.all {
			if err := flag.take(text); err != nil {
				return exit.Usage("", "--%s: %v", flag.name, err)
			}
		}
	}
	return nil
}

func takeDirs(f *Flags, req *message.Request) error {
	dir, err := os.Getwd()
	switch {
	case err == nil:
		req.Dir = dir
	case f.noWorkspace || filepath.IsAbs(f.workspace):
		req.Dir = "/"
	default:
		return exit.NotFound("go to another directory",
			"the current directory: %v", exit.Cause(err))
	}
	switch {
	case f.workspace == ".":
	case filepath.IsAbs(f.workspace):
		req.Workspace = f.workspace
	default:
		req.Workspace = filepath.Join(above(dir, f.workspace), f.workspace)
	}
	return nil
}

// above returns the directory that a relative path starts from. If the path leads upwards, links
// are resolved, since ".." is the kernel's parent directory and not the shell's.
func above(dir, rel string) string {
	if filepath.IsLocal(rel) {
		return dir
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

func takePolicy(f *Flags, req *message.Request) error {
	if !f.policyFile {
		return nil
	}
	text, err := policies.Read(f.policy)
	if err != nil {
		return err
	}
	// The newline makes an empty file a policy that grants nothing, and not a missing one.
	req.Profile, req.Policy, req.PolicyName = "", string(text)+"\n", f.policy
	return nil
}

// imageProfile is the default profile of runs with an image.
const imageProfile = "image"

// takeImage makes the directory of an image absolute, and sets the default profile.
func takeImage(f *Flags, req *message.Request) error {
	dir, isDir := strings.CutPrefix(f.image, policy.ImageDir)
	if f.image == "" {
		return nil
	}
	if !f.profileSet && !f.policyFile {
		req.Profile = imageProfile
	}
	if isDir && dir == "" {
		return exit.Usage("", "--image %s: the directory is missing", f.image)
	}
	if !isDir || filepath.IsAbs(dir) {
		return nil
	}
	// filepath.Join would take a part of a tag or digest for a path.
	here, err := os.Getwd()
	if err != nil {
		return exit.NotFound("go to another directory", "the current directory: %v", exit.Cause(err))
	}
	req.Image = policy.ImageDir + strings.TrimSuffix(above(here, dir), "/") + "/" + dir
	return nil
}

// HasImage reports whether --image is given.
func (f *Flags) HasImage() bool { return f.image != "" }

// Check checks a request that was not made from flags, and sets an ID if it has none.
func Check(req *message.Request) error {
	return steps(nil, req, takeID, checkNarrowing, checkTexts)
}

// Over checks a request and sets its directories. workspace is the value of --workspace.
func Over(workspace string, req *message.Request) error {
	return steps(&Flags{workspace: workspace, noWorkspace: req.NoWorkspace}, req, checkNarrowing,
		takeDirs, checkTexts)
}

func steps(f *Flags, req *message.Request, all ...func(*Flags, *message.Request) error) error {
	for _, step := range all {
		if err := step(f, req); err != nil {
			return err
		}
	}
	return nil
}

// checkTexts refuses texts that are not UTF-8 and would be changed in JSON. Only the tool's
// arguments may be any bytes.
func checkTexts(_ *Flags, req *message.Request) error {
	for what, text := range map[string]string{"tool": req.Tool, "workspace": req.Workspace,
		"--cwd": req.Cwd, "--image": req.Image, "current directory": req.Dir,
		"policy": req.PolicyName, "--env": strings.Join(req.Env, "")} {
		if !utf8.ValidString(text) {
			return exit.Usage("", "%s %q: it is not UTF-8", what, text)
		}
	}
	return nil
}

package prepare

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// An Image is the image that is the root of a job's jail. It is held in use until the job is
// closed.
type Image struct {
	held *images.Held
	// policyName is the name of the image in policies.
	policyName string
}

func (i *Image) close() {
	if i != nil {
		i.held.Close()
	}
}

// image finds the image of a request and unpacks it if needed, after the policy has allowed it. If
// the request names no tool, it takes the image's command. It returns nil if the request has no
// image.
func (s *Preparer) image(ctx context.Context, j *Job) (*Image, error) {
	if j.Req.Image == "" {
		return nil, nil
	}
	ref, err := images.Parse(j.Req.Image)
	if err != nil {
		return nil, err
	}
	name := ref.PolicyName()
	switch {
	case j.In != nil, j.Holds.For > 0:
		return nil, problem.New(problem.Refused, "a session has no image as its root").
			WithHint("jail run --image runs one command in an image")
	case j.Req.Script != nil:
		return nil, problem.New(problem.Usage, "the commands of a script are tools of bundles, and no "+
			"programs of an image").
			WithHint("jail run --image IMAGE -- sh -c SCRIPT runs the image's own shell")
	case j.Req.Agent != nil:
		return nil, problem.New(problem.Refused, "an agent has no image as its root")
	case j.Req.Learn:
		return nil, problem.New(problem.Usage, "nothing is learned of a run with an image: all programs "+
			"of the image may run")
	}
	pol := j.Policy.Policy()
	if !pol.Tools.Images.Match(name) || !pol.Syscalls.Has(policy.GroupNative) {
		return nil, notAllowed("image "+name, j.Policy.Decide(policy.Image{Name: name, Program: "/"})).
			WithHint("--profile image grants every image, where the ceiling does: tools.images")
	}
	signed := s.o.Policies().Rules().SignedImages
	if signed && ref.Name == "" {
		return nil, problem.New(problem.Refused,
			"image %s is not allowed: the ceiling admits signed images only", name).
			WithHint("have it signed and added by a name: jail image sign, jail image add")
	}
	held, err := s.o.Images.Use(ctx, j.Caller.Caller, ref)
	if err != nil {
		return nil, imageProblem(name, err)
	}
	if signed {
		if err := s.checkSigned(held); err != nil {
			held.Close()
			return nil, err
		}
	}
	if j.Req.Tool == "" {
		command := append(append([]string{}, held.Config.Entrypoint...), held.Config.Cmd...)
		if len(command) == 0 {
			held.Close()
			return nil, problem.New(problem.Usage,
				"no program is named, and image %s names none of its own", name)
		}
		j.Req.Tool, j.Req.Args = command[0], append(command[1:len(command):len(command)], j.Req.Args...)
	}
	return &Image{held, name}, nil
}

// checkSigned refuses an image unless a key that is now trusted has signed it.
func (s *Preparer) checkSigned(h *images.Held) error {
	store := bundle.Store{Dir: s.o.Config.Tools}
	rings, err := trust.Load(store.KeysDir(), true)
	if err != nil {
		return problem.New(problem.Failed, "keys of publishers: %w", err)
	}
	if _, _, err := images.Signer(rings, h.Name, h.Digest, h.Signed); err != nil {
		return problem.New(problem.Refused, "%w, and the ceiling admits signed images only", err).
			WithHint("jail tool key list shows whose signatures count")
	}
	return nil
}

// imageProblem returns the error for an image that could not be used.
func imageProblem(name string, err error) error {
	if short := problem.Short(err); short != nil {
		return err
	}
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return known
	}
	return problem.New(problem.Failed, "image %s: %w", name, err)
}

// request returns the image for the plan, or nil for none.
func (i *Image) request() *jail.Image {
	if i == nil {
		return nil
	}
	return &jail.Image{Name: i.policyName, Digest: i.held.Digest, Dir: i.held.Root, Top: i.held.Top}
}

// env returns the variables of the image, as NAME=VALUE.
func (i *Image) env() []string {
	if i == nil {
		return nil
	}
	return i.held.Config.Env
}

// cwd returns the working directory of the image, or / if it has none.
func (i *Image) cwd() string {
	if i == nil || i.held.Config.WorkingDir == "" {
		return "/"
	}
	dir := path.Clean(i.held.Config.WorkingDir)
	root, err := os.OpenRoot(i.held.Root)
	if err != nil {
		return "/"
	}
	defer root.Close()
	if info, err := root.Stat(strings.TrimPrefix(dir, "/")); err != nil || !info.IsDir() {
		return "/"
	}
	return dir
}

// permitsProgram calls permits for a program at a path of the jail: tools.images grants all
// programs in the image, tools.native those in other mounts.
func (f *finder) permitsProgram(v *view, at string) (policy.Decision, bool) {
	if f.image != nil {
		if p, err := v.find(at); err != nil || p.in.image {
			return f.permits(policy.Image{Name: f.image.policyName, Program: path.Clean(at)})
		}
	}
	return f.permits(policy.Native{Path: v.workspace.inPolicy(at)})
}

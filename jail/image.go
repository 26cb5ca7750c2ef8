package jail

import (
	"errors"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// An Image is the root file system of an image, unpacked on the host.
type Image struct {
	// Name is the image as policies name it: the name that it was added by, or oci: and the path
	// of a directory.
	Name string
	// Digest is the digest of the manifest, "sha256:" and hex.
	Digest string
	// Dir is the directory of the host that holds its root file system. Nothing changes it.
	Dir string
	// Top lists the directories and regular files in its root directory.
	Top []string
}

// imageFiles is the number of inodes of the upper layer of an image.
const imageFiles = 1 << 17

// imageMounts returns the root mount of an image, or nothing if i is nil. size is the maximum size
// of its upper layer, in bytes of memory.
func imageMounts(i *Image, size int64) []Mount {
	if i == nil {
		return nil
	}
	return []Mount{{Kind: MountImage, Source: i.Dir, Name: i.Digest, Target: rootDir, Write: true,
		Exec: true, Size: size, Files: imageFiles}}
}

// OfHost reports whether m shows programs or settings of the host. A jail whose root is an image
// takes these from the image.
func OfHost(m policy.Mount) bool {
	return m.Source != "" && (m.Access&policy.Exec != 0 || m.Setting())
}

// imageRules returns the rules for the root of an image: all of it can be read, and written and
// executed below its top entries. The jail's own directories and mount points have other rules.
func imageRules(i *Image, p Plan) []LandlockRule {
	if i == nil {
		return nil
	}
	rules := []LandlockRule{{Path: rootDir}}
	for _, name := range i.Top {
		// A plan is text. Entries whose names it cannot hold can only be read.
		at := path.Join(rootDir, name)
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) ||
			slices.Contains(ownDirs, at) || p.Workspace != nil && p.Workspace.Target == at ||
			slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Target == at }) {
			continue
		}
		rules = append(rules, LandlockRule{Path: at, Write: true, Exec: true, Pipes: true})
	}
	return rules
}

// checkImage returns an error if the policy does not grant the request's image, if its directory is
// not a clean absolute path, or if the run is an agent's or not a native program's.
func checkImage(pol policy.Policy, r Request) error {
	switch {
	case r.Image == nil:
		return nil
	case !pol.Tools.Images.Match(r.Image.Name):
		return errors.New("tools.images does not hold image " + r.Image.Name)
	case r.Agent != nil:
		return errors.New("an agent has no image as its root")
	case r.Command.Runner != RunnerNative:
		return errors.New("only programs run in the root of an image, and no modules")
	case !path.IsAbs(r.Image.Dir) || path.Clean(r.Image.Dir) != r.Image.Dir ||
		paths.Within(r.Image.Dir, rootDir):
		return errors.New("the root of the image is no clean absolute path")
	}
	return nil
}

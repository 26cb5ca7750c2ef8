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
	// Digest is that of its manifest, "sha256:" and hex.
	Digest string
	// Dir is the directory of the host that holds its root file system, and which nothing changes.
	Dir string
	// Top are the names of the directories and regular files in its root.
	Top []string
}

// imageFiles are the inodes of the upper layer of an image.
const imageFiles = 1 << 17

// imageMounts is the root of an image, whose upper layer takes size bytes of memory at most.
func imageMounts(i *Image, size int64) []Mount {
	if i == nil {
		return nil
	}
	return []Mount{{Kind: MountImage, Source: i.Dir, Name: i.Digest, Target: rootDir, Write: true,
		Exec: true, Size: size, Files: imageFiles}}
}

// OfHost reports whether m shows programs or settings of the host. A jail with the root of an image
// has such mounts in the image itself.
func OfHost(m policy.Mount) bool {
	return m.Source != "" && (m.Access&policy.Exec != 0 || m.Setting())
}

// imageRules are what an image grants of its root: to read all of it, and in its directories to
// write and to execute. Directories of the jail's own, and of mounts, have their own rules.
func imageRules(i *Image, p Plan) []LandlockRule {
	if i == nil {
		return nil
	}
	rules := []LandlockRule{{Path: rootDir}}
	for _, name := range i.Top {
		// A plan is text. What it cannot name is only read.
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

// checkImage refuses the root of an image where it would be more than a root: the database of an
// agent, records of files, and modules have jails of their own.
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

package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
)

// Limits on a manifest, far above what real bundles need, so that a hostile one is cheap to refuse.
const (
	maxManifest = 1 << 20 // bytes
	maxValues   = 1 << 17 // JSON values
	maxModule   = 256 << 20
	maxCommands = 1000
	maxModules  = 200
	maxImports  = 500
	maxSources  = 100
	// bytes of one name or sentence
	maxText    = 400
	maxLicence = 1 << 20
	// bytes of all files of a pulled bundle
	maxBundle = 512 << 20
	maxNeeds  = 50
)

// Format is the version of the manifest format that this package reads.
const Format = 1

// ErrManifest is wrapped by every error about a manifest.
var ErrManifest = errors.New("bad manifest")

// A Manifest is the content of bundle.json. What it asks for is only a request: a run gets no more
// than the policy grants.
type Manifest struct {
	Format    int            `json:"format"`
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	About     string         `json:"about"`
	Licences  []Licence      `json:"licences"`
	BuiltFrom []Source       `json:"built_from"`
	Modules   []ModuleEntry  `json:"modules"`
	Commands  []CommandEntry `json:"commands"`
	Limits    Limits         `json:"limits"`
	// nil if missing
	Needs *Needs `json:"needs,omitempty"`
}

// Parse reads a manifest. It refuses unknown and duplicate keys, null, and trailing data, so that
// no other reader can see something else in the same bytes (T-611). Errors wrap ErrManifest.
func Parse(text []byte) (m Manifest, err error) {
	if len(text) > maxManifest {
		return m, fmt.Errorf("%w: larger than %d bytes", ErrManifest, maxManifest)
	}
	if err = jsonbound.Check(text, maxValues); err == nil {
		err = strict.JSON(text, &m)
	}
	if err == nil {
		err = noNull(text)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// noNull refuses a JSON text with a null.
func noNull(text []byte) error {
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		if token == nil {
			return fmt.Errorf("null at byte %d", d.InputOffset())
		}
	}
}

// Needs are what the commands of a bundle use outside of their own directory. A run of a pulled
// bundle gets those that the policy grants, and no other host.
type Needs struct {
	// host names, "*." and a name, or "*"
	Hosts []string `json:"hosts"`
	// absolute paths in the jail
	Mounts []string `json:"mounts"`
}

// A Licence is an SPDX expression and the file of the bundle with its text. A bundle that is
// distributed must pin that file as well.
type Licence struct {
	SPDX   string `json:"spdx"`
	File   string `json:"file"`
	SHA256 string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"` // bytes
}

// A Source is a source that a bundle was built from, pinned by the SHA-256 of its archive.
type Source struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// A Layout is how a module finds the directories that it is given.
type Layout string

const (
	// LayoutRooted is for modules that take one preopened "/" and go to $PWD.
	LayoutRooted Layout = "rooted"
	// layoutPreopens is for modules that know each directory by a preopen of its
	// own, and the working directory as ".".
	layoutPreopens Layout = "preopens"
)

// A ModuleEntry is one WebAssembly file of a bundle.
type ModuleEntry struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // hexadecimal, lower case
	Size   int64  `json:"size"`   // bytes
	Layout Layout `json:"layout"`
	// "module.name" of every function that it imports
	Imports []string `json:"imports"`
}

// A CommandEntry is a name under which a module is run; the module sees it as
// argv[0].
type CommandEntry struct {
	Name   string `json:"name"`
	Module string `json:"module"` // a ModuleEntry's File
	About  string `json:"about"`
}

// Limits are what the bundle's author recommends; 0 means no recommendation.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	WallMS      int64 `json:"wall_ms"`
}

// A File is a file that a manifest names.
type File struct {
	Name string
	// hexadecimal; empty if the manifest does not pin it
	SHA256 string
	Size   int64 // bytes
	Module bool
}

// Files returns all files of the bundle except the manifest and its signature, in the order of
// transfer: modules, then licences.
func (m Manifest) Files() []File {
	var files []File
	for _, mod := range m.Modules {
		files = append(files, File{mod.File, mod.SHA256, mod.Size, true})
	}
	seen := map[string]bool{}
	for _, l := range m.Licences {
		// Two licences may share a text.
		if !seen[l.File] {
			files = append(files, File{l.File, l.SHA256, l.Size, false})
		}
		seen[l.File] = true
	}
	return files
}

// Portable returns an error unless the bundle can be distributed: the manifest must pin each file,
// and the total size must be within maxBundle.
func (m Manifest) Portable() error {
	total, names := int64(0), map[string]bool{ManifestFile: true, SignatureFile: true}
	for _, f := range m.Files() {
		if f.SHA256 == "" {
			return fmt.Errorf("%w: file %s: its sha256 and size are not in it", ErrManifest, f.Name)
		}
		if lower := strings.ToLower(f.Name); names[lower] {
			return fmt.Errorf("%w: file %s: there twice, but for the case of its letters",
				ErrManifest, f.Name)
		} else {
			names[lower] = true
		}
		total += f.Size
	}
	if total > maxBundle {
		return fmt.Errorf("%w: %d bytes in all, where %d are allowed", ErrManifest, total,
			int64(maxBundle))
	}
	return nil
}

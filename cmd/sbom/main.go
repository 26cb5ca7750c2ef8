// Command sbom writes a bill of materials for built programs, in the JSON of CycloneDX 1.5: what the linker put into them, with versions and sums,
// as it stands in the programs themselves. What is not linked is not in it.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/supervisor"
)

const help = `sbom writes what is linked into Go programs, as CycloneDX JSON.

usage: sbom PROGRAM...
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		fmt.Fprint(stderr, help)
		return 2
	}
	b, err := billOf(args)
	if err == nil {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(b)
	}
	if err != nil {
		fmt.Fprintln(stderr, "sbom: error:", err)
		return 1
	}
	return 0
}

// A bill has no time and no serial number: the same programs give the same bytes.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func billOf(programs []string) (bill, error) {
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{component{Type: "application", Ref: "jail", Name: "jail", Version: supervisor.Version}}}
	seen := map[string]bool{}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return b, fmt.Errorf("%s: %w", path, err)
		}
		name := filepath.Base(path)
		b.Components = append(b.Components, component{Type: "application", Ref: name, Name: name, Version: supervisor.Version})
		parts := []component{{Type: "library", Ref: "pkg:golang/std@" + info.GoVersion, Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component{Type: "library", Ref: "pkg:golang/" + m.Path + "@" + m.Version, Name: m.Path, Version: m.Version}
			c.PURL = c.Ref
			sum, err := sumOf(m.Sum)
			if err != nil {
				return b, fmt.Errorf("%s: %s: %w", path, m.Path, err)
			}
			c.Hashes = []hash{{"SHA-256", sum}}
			parts = append(parts, c)
		}
		d := dependency{Ref: name}
		for _, c := range parts {
			d.On = append(d.On, c.Ref)
			if !seen[c.Ref] {
				seen[c.Ref] = true
				b.Components = append(b.Components, c)
			}
		}
		b.Dependencies = append(b.Dependencies, d)
	}
	slices.SortFunc(b.Components, func(x, y component) int { return strings.Compare(x.Ref, y.Ref) })
	return b, nil
}

// sumOf turns a sum of go.sum, of the module's tree, into hexadecimal.
func sumOf(text string) (string, error) {
	encoded, ok := strings.CutPrefix(text, "h1:")
	if !ok {
		return "", errors.New("it has no sum: the module was not verified")
	}
	sum, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(sum), err
}

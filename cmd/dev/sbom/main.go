// Command sbom writes a bill of materials for built programs, in the JSON of CycloneDX 1.5. It
// lists the modules that the linker put into the programs, with versions and sums, as it reads them
// from the programs themselves.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/jail-sandbox/jail/supervisor/config"
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
		err = cdx.NewBOMEncoder(stdout, cdx.BOMFileFormatJSON).SetPretty(true).
			EncodeVersion(b, cdx.SpecVersion1_5)
	}
	if err != nil {
		fmt.Fprintln(stderr, "sbom: error:", err)
		return 1
	}
	return 0
}

// billOf returns the bill of the programs. It has no time and no serial number, so that the same
// programs give the same bytes.
func billOf(programs []string) (*cdx.BOM, error) {
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Component: application("jail")}
	var components []cdx.Component
	var dependencies []cdx.Dependency
	seen := map[string]bool{}
	for _, path := range programs {
		parts, err := linked(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		program := application(filepath.Base(path))
		components = append(components, *program)
		var on []string
		for _, c := range parts {
			on = append(on, c.BOMRef)
			if !seen[c.BOMRef] {
				seen[c.BOMRef] = true
				components = append(components, c)
			}
		}
		dependencies = append(dependencies, cdx.Dependency{Ref: program.BOMRef, Dependencies: &on})
	}
	slices.SortFunc(components, func(x, y cdx.Component) int {
		return strings.Compare(x.BOMRef, y.BOMRef)
	})
	b.Components, b.Dependencies = &components, &dependencies
	return b, nil
}

func application(name string) *cdx.Component {
	return &cdx.Component{Type: cdx.ComponentTypeApplication, BOMRef: name, Name: name,
		Version: config.Version}
}

// linked returns the standard library and the modules that the linker put into a program.
func linked(path string) ([]cdx.Component, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, BOMRef: "pkg:golang/std@" + info.GoVersion,
		Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		sum, err := sumOf(m.Sum)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		url := "pkg:golang/" + m.Path + "@" + m.Version
		all = append(all, cdx.Component{
			Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: m.Path, Version: m.Version,
			PackageURL: url, Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
		})
	}
	return all, nil
}

// sumOf returns a sum of go.sum, which is of the module's tree, in hexadecimal.
func sumOf(text string) (string, error) {
	encoded, ok := strings.CutPrefix(text, "h1:")
	if !ok {
		return "", errors.New("it has no sum: the module was not verified")
	}
	sum, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(sum), err
}

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The bill of this very test: it is a Go program, too.
func TestBill(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, again, errOut bytes.Buffer
	if code := run([]string{exe}, &out, &errOut); code != 0 {
		t.Fatalf("%d: %s", code, errOut.String())
	}
	run([]string{exe}, &again, &errOut)
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("twice is not the same")
	}
	var b cdx.BOM
	if err := cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&b); err != nil {
		t.Fatal(err)
	}
	std := false
	for _, c := range *b.Components {
		std = std || c.Name == "std" && strings.HasPrefix(c.Version, "go1.")
		if c.Type == cdx.ComponentTypeLibrary && c.Name != "std" && (c.Hashes == nil ||
			len(*c.Hashes) != 1 || len((*c.Hashes)[0].Value) != 64) {
			t.Errorf("%s has hashes %v", c.BOMRef, c.Hashes)
		}
	}
	if b.BOMFormat != "CycloneDX" || b.SpecVersion != cdx.SpecVersion1_5 || !std ||
		len(*b.Dependencies) != 1 {
		t.Errorf("%+v", b)
	}
	for _, args := range [][]string{nil, {"-x"}, {"main.go"}} {
		if code := run(args, &out, &errOut); code == 0 {
			t.Errorf("%q: no error", args)
		}
	}
}

package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func (f *fixture) templates() []string {
	f.t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, templatePrefix+"*.img"))
	must(f.t, err)
	return names
}

// TestDamagedTemplate: a template that a power loss damaged stops no run. It is made again.
func TestDamagedTemplate(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	must(t, f.prepare("first").Close())
	all := f.templates()
	if len(all) != 1 {
		t.Fatalf("templates: %q", all)
	}
	whole, err := os.Stat(all[0])
	must(t, err)
	for name, damage := range map[string]func() error{
		"empty": func() error { return os.Truncate(all[0], 0) },
		"zeros": func() error {
			return os.WriteFile(all[0], make([]byte, 1<<20), 0o600)
		},
		"holes": func() error {
			must(t, os.Truncate(all[0], 0))
			return os.Truncate(all[0], whole.Size())
		},
		"descriptors": func() error {
			image, err := os.OpenFile(all[0], os.O_WRONLY, 0)
			must(t, err)
			defer image.Close()
			_, err = image.WriteAt(make([]byte, blockSize), blockSize)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, damage())
			w := f.shadow(name, "echo x >b")
			must(t, w.Freeze())
			sum, _, err := w.Review(t.Context())
			must(t, err)
			if sum.Total() != 1 {
				t.Errorf("changes: %+v", sum)
			}
			must(t, w.Discard())
		})
	}
}

// TestTemplatesAreBounded: runs with limits of their own fill no disk with templates.
func TestTemplatesAreBounded(t *testing.T) {
	f := newFixture(t)
	for i := range maxTemplates {
		must(t, os.WriteFile(filepath.Join(f.dir, fmt.Sprintf("%s1-%d.img", templatePrefix, i)), nil,
			0o600))
	}
	must(t, f.prepare("w").Close())
	if got := len(f.templates()); got != 1 {
		t.Errorf("%d templates", got)
	}
}

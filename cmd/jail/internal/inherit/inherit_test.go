package inherit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestVariables(t *testing.T) {
	for target, want := range map[string]string{
		"/usr/share/zoneinfo/Europe/Berlin":       "TZ=Europe/Berlin",
		"../usr/share/zoneinfo/America/Sao_Paulo": "TZ=America/Sao_Paulo",
		"/usr/share/zoneinfo/Etc/UTC":             "",
		"/usr/share/zoneinfo/UTC":                 "",
		"/usr/share/zoneinfo/\xff":                "",
		"/somewhere/else":                         "",
		"":                                        "",
	} {
		link := filepath.Join(t.TempDir(), "localtime")
		if target != "" {
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
		}
		all := []string{"A=b"}
		if want != "" {
			all = append(all, want)
		}
		if got := variables([]string{"A=b", "B=\xff"}, link); !slices.Equal(got, all) {
			t.Errorf("%q: %q, want %q", target, got, all)
		}
		mine := []string{"TZ=", "A=b"}
		if got := variables(mine, link); !slices.Equal(got, mine) {
			t.Errorf("%q, with a zone: %q", target, got)
		}
	}
}

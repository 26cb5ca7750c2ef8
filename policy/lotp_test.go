package policy_test

import (
	_ "embed"
	"path"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

//go:embed testdata/lotp.txt
var lotp string

// notByName are entries of the maintained list that say nothing by their name, and why.
var notByName = map[string]string{
	"*.awk": "named on a command line", "*.gawk": "named on a command line",
	"*.sed": "named on a command line", "*.filter": "named on a command line",
	"*.tar": "is unpacked, not run", "*.tar.gz": "is unpacked, not run",
	"*.tar.xz": "is unpacked, not run", "*.tar.tz": "is unpacked, not run",
	"*.tar.bz2": "is unpacked, not run", "*.tar.z": "is unpacked, not run",
	"*.zip":              "is unpacked, not run",
	"*_test.py":          "is a test, which runs as every test does",
	"test_*.py":          "is a test, which runs as every test does",
	"*.gemspec*":         "*.gemspec is pointed out",
	".initrc":            "no program reads it",
	"config.yml":         "means something only beside a setting of the environment",
	"manifest.json":      "a name that most programs have for something else",
	"env/*/*.properties": "a name that most programs have for something else",
	"sylelint.config.js": "misspelt in the list", "sylelint.config.cjs": "misspelt in the list",
	"sylelint.config.mjs": "misspelt in the list",
}

// T-340 to T-346: each name that a maintained list has of files by which tools run code is held
// back or pointed out.
func TestLivingOffThePipeline(t *testing.T) {
	names := 0
	for line := range strings.Lines(lotp) {
		tool, files, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		for file := range strings.FieldsSeq(files) {
			names++
			example := strings.ReplaceAll(strings.TrimPrefix(path.Clean(file), "$HOME/"), "*", "x")
			_, held := policy.Protected(example)
			_, flagged := policy.Flagged(example)
			if why := notByName[file]; !held && !flagged && why == "" {
				t.Errorf("%s runs what %s says, which is neither held back nor pointed out", tool,
					file)
			} else if why != "" && (held || flagged) {
				t.Errorf("%s is an exception no more", file)
			}
		}
	}
	if names < 90 {
		t.Errorf("control: %d names", names)
	}
}

// Names that another program runs by itself are held back like hooks, those that the next build
// runs are pointed out.
func TestNamesThatProgramsRun(t *testing.T) {
	for name := range strings.FieldsSeq(`.Rprofile .irbrc .pryrc .iex.exs .ghci .ocamlinit .rspec .latexmkrc .eslintrc.js Directory.Build.props Directory.Build.targets
		bunfig.toml shell.nix default.nix Tiltfile .lefthook.yml opencode.json .Renviron .erlang .pdbrc .octaverc .eslintrc.cjs .lefthook-local.toml latexmkrc`) {
		if r, held := policy.Protected("sub/" + name); !held {
			t.Errorf("%s is not held back", name)
		} else if r.Class == policy.PackageManager {
			t.Errorf("%s is of a class that is only pointed out", name)
		}
	}
	for name := range strings.FieldsSeq(
		`Cargo.toml build.rs x.csproj Package.swift build.sbt mix.exs WORKSPACE SConstruct wscript x.fsproj SConscript build.zig rebar.config eslint.config.mjs`) {
		if r, flagged := policy.Flagged("sub/" + name); !flagged ||
			r.Class != policy.PackageManager {
			t.Errorf("%s is not pointed out: %+v", name, r)
		}
	}
	if r, flagged := policy.Flagged("jail/workspace/a.go"); flagged {
		t.Errorf("what lies in a directory that is called workspace is pointed out: %+v", r)
	}
	for _, name := range []string{"rprofile", "build", "workspace.go", "default.go", "rspec.rb",
		"main.rs", "Cargo.lock", "x.config.js"} {
		if _, held := policy.Protected(name); held {
			t.Errorf("%s is held back", name)
		}
	}
}

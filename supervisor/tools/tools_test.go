package tools

import (
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi/wasitest"
	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// T-614: a module imports what its manifest says, and the engine would take it.
func TestModulesAreWhatTheirManifestSays(t *testing.T) {
	const exit = "wasi_snapshot_preview1.proc_exit"
	module := wasitest.Module{
		Types:   []wasitest.Type{{Params: []byte{wasitest.I32}}, {}},
		Imports: []wasitest.Import{{Module: "wasi_snapshot_preview1", Name: "proc_exit"}},
		Funcs:   []wasitest.Func{{Type: 1}},
		Memory:  []byte{0, 1},
		Exports: []wasitest.Export{{Name: "_start", Index: 1}, {Name: "memory", Kind: 2}},
	}.Encode()
	if err := CheckModule(bundle.ModuleEntry{File: "x.wasm", Imports: []string{exit}},
		module); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := CheckModule(bundle.ModuleEntry{File: "x.wasm", Imports: []string{}},
		module); !errors.Is(err, bundle.ErrAltered) {
		t.Errorf("an import that is not declared: %v", err)
	}
	if err := CheckModule(bundle.ModuleEntry{File: "x.wasm", Imports: []string{exit}},
		module[:len(module)-4]); err == nil {
		t.Error("half a module was taken")
	}
}

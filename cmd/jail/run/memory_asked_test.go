package run_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// TestMemoryAsked: a module that starts with more memory than the limit is refused by it before it
// runs, and one that grows beyond it is told so; the peak is what it had.
func TestMemoryAsked(t *testing.T) {
	h := cmdtest.New(t)
	write := func(name string, pages uint64, code []byte) string {
		m := Command(code)
		m.Memory = Cat([]byte{0}, U(pages))
		path := filepath.Join(h.Work, name)
		if err := os.WriteFile(path, m.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	all := write("all.wasm", 65536, nil)
	const words = `needs 4GiB of memory to start, and limit memory is 256MiB`
	o := h.Jail("run", "--no-workspace", "--", all)
	h.Wants(o, 126, words)
	if cmdtest.Blame.MatchString(o.Err) {
		t.Error(o.Err)
	}
	h.Wants(h.Jail("plan", "--", all), 126, words)
	if o := h.Jail("sh", "-c", "./all.wasm; echo $?"); o.Code != 0 || o.Out != "126\n" {
		t.Errorf("in a script: %+v", o)
	}
	grows := write("grows.wasm", 1, Cat(I32Const(65535), []byte{0x40, 0, 0x1a}))
	o = h.Jail("run", "--json", "--no-workspace", "--", grows)
	var said struct {
		ExitCode int `json:"exit_code"`
		Limit    *struct {
			Name        string
			Limit, Peak int64
		}
		Usage struct {
			MemoryPeak int64 `json:"memory_peak"`
		}
	}
	if err := json.Unmarshal([]byte(o.Out), &said); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	if l := said.Limit; o.Code != 0 || l == nil || l.Name != "memory" || l.Limit != 256<<20 ||
		l.Peak != said.Usage.MemoryPeak {
		t.Errorf("%+v", o)
	}
}

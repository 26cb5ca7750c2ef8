package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// TestTools: the five tools keep their bounds and say so; no path leads out of the workspace.
func TestTools(t *testing.T) {
	w := newWorld(t)
	w.write("sum.sh", "echo $(($1 - $2))\n")
	w.write("test.sh", "exit 1\n")
	w.write("docs/key.pem", "no key\n")
	for _, dir := range []string{"elsewhere", "workspaceX"} {
		at := filepath.Join(filepath.Dir(w.root), dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "root"), []byte("root\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ tool, input, want string }{
		{"read_file", `{"path":"sum.sh"}`, "1|echo $(($1 - $2))\n"},
		{"run_command", `{"command":"seq 1 600 > long"}`, "(the command wrote nothing)"},
		{"read_file", `{"path":"long"}`, "500|500\n[lines 1 to 500 of 600 are shown]\n"},
		{"read_file", `{"path":"ROOT/long","offset":599}`, "599|599\n600|600\n"},
		{"read_file", `{"path":"long","offset":3,"limit":1}`, "3|3\n[lines 3 to 3 of 600 are shown]\n"},
		{"read_file", `{"path":"long","offset":601}`, "error: offset 601: long has 600 lines"},
		{"read_file", `{"path":"nothing"}`, "error: read nothing: no such file"},
		{"read_file", `{"offset":1}`, "error: the input of read_file: "},
		{"read_file", `{"path":"sum.sh","lines":1}`, "error: the input of read_file: "},
		{"read_file", `{"path":"../workspaceX/root"}`,
			"error: path ROOT/../workspaceX/root is not beneath ROOT"},
		{"read_file", `{"path":"ROOTX/root"}`, "error: path ROOTX/root is not beneath ROOT"},
		{"run_command", `{"command":"ln -s ../elsewhere out; ln -s ../elsewhere/root file; ln -s docs in"}`,
			"(the"},
		{"read_file", `{"path":"file"}`, "is not beneath ROOT"},
		{"write_file", `{"path":"out/x","content":""}`, "is not beneath ROOT"},
		{"list_directory", `{"path":"out"}`, "is not beneath ROOT"},
		{"search_files", `{"path":"out","pattern":"root"}`, "is not beneath ROOT"},
		{"run_command", `{"cwd":"out","command":"pwd"}`, "is not beneath ROOT"},
		{"read_file", `{"path":"in/key.pem"}`, "1|no key\n"},
		{"write_file", `{"path":"deep/er/f","content":"x\n"}`, "wrote 2 bytes to deep/er/f"},
		{"run_command", `{"command":"mkdir node_modules dist build .git"}`, "(the"},
		{"list_directory", `{"path":"."}`, "deep/\ndocs/\nfile\nin\nlong\nout\nsum.sh\ntest.sh"},
		{"list_directory", `{"path":"deep","recursive":true}`, "er/\ner/f"},
		{"list_directory", `{"path":".","ignore":["*"]}`, "(empty)"},
		{"list_directory", `{"path":".","ignore":["d*"]}`, ".git/\nbuild/\nfile\nin\nlong\nnode_modules/\n"},
		{"run_command", `{"command":"mkdir many; cd many; seq 1 700 | xargs touch"}`, "(the"},
		{"list_directory", `{"path":"many","recursive":true}`, "[500 of 700 entries are shown]"},
		{"run_command", `{"command":"echo a; echo b >&2"}`, "stdout:\na\nstderr:\nb\n"},
		{"run_command", `{"command":"echo b >&2; exit 3"}`,
			"error: the command ended with exit code 3\nstderr:\nb\n"},
		{"run_command", `{"command":"pwd","cwd":"docs"}`, "stdout:\nROOT/docs\n"},
		{"run_command", `{"command":"exec sleep 60","timeout":1}`,
			"error: the command was ended after 1 seconds"},
		{"run_command", `{"command":"head -c 3000000 /dev/zero | tr '\\0' x"}`, "[there was more]\n"},
		{"run_command", `{"command":"sudo id"}`, `error: the command is refused: it contains "sudo"`},
		{"run_command", `{"command":"a; rm -rf b"}`, `the command is refused: it contains "; rm -rf"`},
		{"run_command", `{"command":"curl x | sh"}`, `the command is refused: it contains "| sh"`},
		{"run_command", "{\"command\":\"echo `id`\"}", "the command is refused: it contains \"`\""},
		{"run_command", `{"command":"echo $(id)"}`, `the command is refused: it contains "$("`},
		{"run_command", `{"command":"echo > /etc/x"}`, `the command is refused: it contains "> /etc"`},
		{"run_command", `{"command":"rm -rf /tmp"}`, `the command is refused: it contains "rm -rf /"`},
		{"run_command", `{"command":"chmod 777 ."}`, `the command is refused: it contains "chmod 777"`},
		{"run_command", `{"command":"mkfs x"}`, `the command is refused: it contains "mkfs"`},
		{"run_command", `{"command":":(){ :|:& };:"}`, `the command is refused: it contains ":(){"`},
		{"search_files", `{"pattern":"ECHO ."}`, "sum.sh:1:echo $(($1 - $2))\n"},
		{"search_files", `{"pattern":"ECHO .","case_sensitive":true}`, "no matches"},
		{"search_files", `{"pattern":"echo","file_pattern":"*.md"}`, "no matches"},
		{"search_files", `{"pattern":"^[0-9]+$","path":"long"}`,
			"long:100:100\n[100 matches are shown, and there are more]\n"},
		{"search_files", `{"pattern":"("}`, "error: search: "},
		{"frobnicate", `{"a":1}`, `error: there is no tool "frobnicate"`},
	} {
		place := strings.NewReplacer("ROOT", w.root)
		worker := newWorker(Options{Task: w.task}, w)
		worker.jail, worker.opened, worker.root = w, w.id, w.root
		text, failed := worker.toolbox().Run(context.Background(), transcript.Call{Name: c.tool,
			Input: []byte(place.Replace(c.input))})
		if failed {
			text = "error: " + text
		}
		if want := place.Replace(c.want); !strings.Contains(text, want) || len(text) > 1<<20+1000 {
			t.Errorf("%s %s: %.300q, want %q", c.tool, c.input, text, want)
		}
	}
}

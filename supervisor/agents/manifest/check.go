package manifest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// check checks the files that the manifest names.
func (a *Agent) check(root *os.Root, text []byte) error {
	has := func(name string) bool { return slices.Contains(a.Files, path.Clean(name)) }
	switch {
	case isModule(a.Module) && !has(a.Module):
		return reportAt(a.Manifest, text, "module", "build it, or write its name as it is",
			"module: there is no file %q in %s", a.Module, a.Dir)
	case a.Policy != "" && !has(a.Policy):
		return reportAt(a.Manifest, text, "policy", "write the name of a file that is there",
			"policy: there is no file %q in %s", a.Policy, a.Dir)
	case isModule(a.Module):
		return a.checkModule(root, text)
	}
	words, key := a.Args, "args"
	if len(a.Native) > 0 {
		words, key = a.Native[1:], "native"
	}
	for _, word := range words {
		// A word with the ending of a script must be a file of the directory.
		if slices.Contains([]string{".py", ".js", ".mjs"}, path.Ext(word)) &&
			filepath.IsLocal(word) && !has(word) {
			return reportAt(a.Manifest, text, key, "write the name of a file that is there",
				"%s: there is no file %q in %s", key, word, a.Dir)
		}
	}
	return a.checkScripts(root)
}

// importModule returns the module name of a binding's host functions; see docs/agent-abi.md.
func importModule(binding string) string { return "jail_agent_" + strings.ToLower(binding) + "_v1" }

// checkModule returns an error for a module that jail cannot run, or that imports a binding that
// the manifest does not ask for.
func (a *Agent) checkModule(root *os.Root, text []byte) error {
	refuse := func(hint, format string, args ...any) error {
		return reportAt(a.Manifest, text, "module", hint, "module %s: %s", a.Module,
			fmt.Sprintf(format, args...))
	}
	module, err := readFile(root, a.Module, wasi.MaxModuleBytes+1)
	if err != nil {
		return refuse("", "%v", err)
	}
	info, err := wasi.Check(module, wasi.Limits{})
	var granted []wasi.Import
	for _, im := range info.Imports {
		for _, binding := range agent.Bindings {
			if im.Module != importModule(binding) {
				continue
			}
			if !slices.Contains(a.Bindings(), binding) {
				key := "capabilities." + strings.ToLower(binding)
				return refuse("write "+key+" = true, or use a library that does not import it",
					"it imports %s, and %s is false", im, key)
			}
			granted = append(granted, im)
		}
		if im.Module == wasi.Fetch {
			if !a.Capabilities.Network {
				return refuse("write capabilities.network = true",
					"it imports %s, and capabilities.network is false", im)
			}
			granted = append(granted, im)
		}
	}
	if err != nil {
		_, err = wasi.Check(module, wasi.Limits{}, granted...)
	}
	if err != nil {
		return refuse("", "%v", err)
	}
	return nil
}

// refusedImports are the modules of Node.js that an agent may not use, with what to use in place of
// them.
var refusedImports = map[string]string{
	"child_process":  "an agent starts no processes: ask a member of the channel by PUBSUB callMethod",
	"cluster":        "an agent is one process; several agents share a channel by PUBSUB",
	"dgram":          "an agent has no sockets: send messages by PUBSUB",
	"fs":             "an agent has no files: use STORAGE",
	"fs/promises":    "an agent has no files: use STORAGE",
	"http":           "an agent has no sockets: use fetch, with capabilities.network = true",
	"https":          "an agent has no sockets: use fetch, with capabilities.network = true",
	"http2":          "an agent has no sockets: use fetch, with capabilities.network = true",
	"net":            "an agent has no sockets: send messages by PUBSUB",
	"os":             "an agent sees nothing of its host: AGENT_ID, CHANNEL, HANDLE and CONFIG are what it gets",
	"process":        "an agent sees nothing of its host: AGENT_ID, CHANNEL, HANDLE and CONFIG are what it gets",
	"tls":            "an agent has no sockets: use fetch, with capabilities.network = true",
	"worker_threads": "an agent is one thread; several agents share a channel by PUBSUB",
}

// checkScripts returns an error if a script in JavaScript imports a module of refusedImports.
func (a *Agent) checkScripts(root *os.Root) error {
	for _, name := range a.Files {
		if !slices.Contains([]string{".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"},
			path.Ext(name)) {
			continue
		}
		source := filepath.Join(a.Dir, name)
		text, err := readFile(root, name, MaxBytes)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		var found []syntax.Error
		for _, im := range scriptImports(text) {
			instead, refused := refusedImports[strings.TrimPrefix(im.name, "node:")]
			if !refused {
				continue
			}
			before := string(text[:im.offset])
			found = append(found, syntax.Error{Hint: instead, Position: syntax.Position{File: source,
				Line:   strings.Count(before, "\n") + 1,
				Column: len(before) - strings.LastIndexByte(before, '\n')},
				Message: fmt.Sprintf("an agent may not import %q", im.name)})
		}
		if err := syntax.Report(source, text, found); err != nil {
			return err
		}
	}
	return nil
}

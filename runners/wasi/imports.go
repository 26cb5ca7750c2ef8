package wasi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
)

// Preview1 is the module name of the interface that every WASI tool is granted.
const Preview1 = "wasi_snapshot_preview1"

// Functions lists preview 1, sorted by name. The letters are those of Import. The four of sockets
// are there because every C library and Go import them; calling one is refused and recorded.
var Functions = [...]Import{
	{Preview1, "args_get", "ii", "i"},
	{Preview1, "args_sizes_get", "ii", "i"},
	{Preview1, "clock_res_get", "ii", "i"},
	{Preview1, "clock_time_get", "iIi", "i"},
	{Preview1, "environ_get", "ii", "i"},
	{Preview1, "environ_sizes_get", "ii", "i"},
	{Preview1, "fd_advise", "iIIi", "i"},
	{Preview1, "fd_allocate", "iII", "i"},
	{Preview1, "fd_close", "i", "i"},
	{Preview1, "fd_datasync", "i", "i"},
	{Preview1, "fd_fdstat_get", "ii", "i"},
	{Preview1, "fd_fdstat_set_flags", "ii", "i"},
	{Preview1, "fd_fdstat_set_rights", "iII", "i"},
	{Preview1, "fd_filestat_get", "ii", "i"},
	{Preview1, "fd_filestat_set_size", "iI", "i"},
	{Preview1, "fd_filestat_set_times", "iIIi", "i"},
	{Preview1, "fd_pread", "iiiIi", "i"},
	{Preview1, "fd_prestat_dir_name", "iii", "i"},
	{Preview1, "fd_prestat_get", "ii", "i"},
	{Preview1, "fd_pwrite", "iiiIi", "i"},
	{Preview1, "fd_read", "iiii", "i"},
	{Preview1, "fd_readdir", "iiiIi", "i"},
	{Preview1, "fd_renumber", "ii", "i"},
	{Preview1, "fd_seek", "iIii", "i"},
	{Preview1, "fd_sync", "i", "i"},
	{Preview1, "fd_tell", "ii", "i"},
	{Preview1, "fd_write", "iiii", "i"},
	{Preview1, "path_create_directory", "iii", "i"},
	{Preview1, "path_filestat_get", "iiiii", "i"},
	{Preview1, "path_filestat_set_times", "iiiiIIi", "i"},
	{Preview1, "path_link", "iiiiiii", "i"},
	{Preview1, "path_open", "iiiiiIIii", "i"},
	{Preview1, "path_readlink", "iiiiii", "i"},
	{Preview1, "path_remove_directory", "iii", "i"},
	{Preview1, "path_rename", "iiiiii", "i"},
	{Preview1, "path_symlink", "iiiii", "i"},
	{Preview1, "path_unlink_file", "iii", "i"},
	{Preview1, "poll_oneoff", "iiii", "i"},
	{Preview1, "proc_exit", "i", ""},
	{Preview1, "proc_raise", "i", "i"},
	{Preview1, "random_get", "ii", "i"},
	{Preview1, "sched_yield", "", "i"},
	{Preview1, "sock_accept", "iii", "i"},
	{Preview1, "sock_recv", "iiiiii", "i"},
	{Preview1, "sock_send", "iiiii", "i"},
	{Preview1, "sock_shutdown", "ii", "i"},
}

// Fetch is the module name of the host functions by which a tool without sockets fetches; see
// docs/fetch-abi.md. Their meaning never changes: another meaning gets another name.
const Fetch = "jail_fetch_v1"

// FetchFunctions lists them, sorted by name. They are granted where the policy grants any fetch.
var FetchFunctions = [...]Import{
	{Fetch, "close", "i", "i"},
	{Fetch, "error", "iii", "i"},
	{Fetch, "head", "iiii", "i"},
	{Fetch, "open", "iiiiiiIii", "i"},
	{Fetch, "read", "iiii", "i"},
	{Fetch, "status", "ii", "i"},
	{Fetch, "write", "iii", "i"},
}

// agentModules are the module names of the host functions of agents, one for each binding, by the
// binding's name; see docs/agent-abi.md. Their meaning never changes: another meaning gets another
// name.
var agentModules = map[string]string{
	agent.PubSub:  "jail_agent_pubsub_v1",
	agent.Storage: "jail_agent_storage_v1",
	agent.AI:      "jail_agent_ai_v1",
	agent.Host:    "jail_agent_host_v1",
}

// AgentFunctions returns the host functions of these bindings, sorted by name for each.
func AgentFunctions(bindings ...string) (all []Import) {
	for _, b := range bindings {
		m := agentModules[b]
		all = append(all, Import{m, "call", "iiiii", "i"}, Import{m, "close", "i", "i"},
			Import{m, "error", "iii", "i"}, Import{m, "read", "iiii", "i"})
		if b == agent.Host {
			all = append(all, Import{m, "wait", "ii", "i"})
		}
	}
	return all
}

// BindingOf returns the binding that the name of an imported module stands for, or "".
func BindingOf(module string) string {
	for b, m := range agentModules {
		if m == module {
			return b
		}
	}
	return ""
}

// EveryFunction returns all host functions besides preview 1 that a run can be granted.
func EveryFunction() []Import {
	return append(AgentFunctions(agent.Bindings...), FetchFunctions[:]...)
}

// noBinding is the reason of the refusal of a module that imports a binding.
const noBinding = "which is the binding %s: it is there only for an agent whose manifest asks for " +
	"that capability, under a policy whose [agent] bindings grant it"

// noFetch says why a module that imports fetches is refused, and what to do.
const noFetch = "which is there only where the policy grants a fetch: run with --profile fetch " +
	"--fetch HOST, or with a policy that has [[fetch.allow]]"

// Fetches reports whether the module imports host functions for fetches.
func (i Info) Fetches() bool {
	return slices.ContainsFunc(i.Imports, func(im Import) bool { return im.Module == Fetch })
}

// Granted returns an error if the module imports a function that is neither of preview 1 nor in
// granted.
func (i Info) Granted(granted ...Import) error { return checkImports(i.Imports, granted) }

// checkImports returns an error for the first import that is not granted.
func checkImports(imports, granted []Import) error {
	for _, im := range imports {
		g, ok := find(im, granted)
		_, fetch := find(im, FetchFunctions[:])
		binding, name := BindingOf(im.Module), runners.Printable(im.String(), 120)
		var sentence string
		switch {
		case !ok && fetch:
			sentence = fmt.Sprintf("the module imports %s, %s", im, noFetch)
		case !ok && binding != "":
			sentence = fmt.Sprintf("the module imports %s, "+noBinding, name, binding)
		case !ok:
			sentence = fmt.Sprintf("the module imports %s, which is not granted", name)
		case g.Params != im.Params || g.Results != im.Results:
			sentence = fmt.Sprintf("the module imports %s as (%s)->(%s), but it is (%s)->(%s)",
				name, im.Params, im.Results, g.Params, g.Results)
		default:
			continue
		}
		return notGranted(im, sentence)
	}
	return nil
}

func find(im Import, granted []Import) (Import, bool) {
	if im.Module == Preview1 {
		i, ok := slices.BinarySearchFunc(Functions[:], im.Name, func(f Import, name string) int {
			return strings.Compare(f.Name, name)
		})
		if ok {
			return Functions[i], true
		}
	}
	for _, g := range granted {
		if g.Module == im.Module && g.Name == im.Name {
			return g, true
		}
	}
	return Import{}, false
}

func notGranted(im Import, sentence string) error {
	return &ModuleError{Kind: ErrImport, Sentence: sentence,
		Import: runners.Printable(im.String(), 120)}
}

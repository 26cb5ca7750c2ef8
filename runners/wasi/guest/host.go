package guest

import (
	"context"
	"fmt"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostagent"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostfetch"
	"github.com/jail-sandbox/jail/runners/wasi/guest/preview1"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// host provides the functions that guests import: preview 1, fetches and the bindings of agents.
// They are bound once for a loaded module; the context of a call identifies the process.
type host struct {
	// The module has a linear memory. The engine hands out a nil pointer in a non-nil interface for
	// the memory of a module without one.
	memory bool
}

// caller is the state of the process that makes a call: its descriptors, open fetches and open
// answers of bindings. It is in the context of the call, under callerKey.
type caller struct {
	process  *preview1.Process
	requests *hostfetch.Requests
	answers  *hostagent.Answers
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// bind provides the imported functions to the engine. They must have been checked before. Functions
// that the module does not import are left out, since the engine compiles code for each.
func (h host) bind(ctx context.Context, r wazero.Runtime, imports []wasi.Import) error {
	imported := map[wasi.Import]bool{}
	for _, i := range imports {
		imported[i] = true
	}
	err := export(ctx, r, wasi.Functions[:], imported, func(f wasi.Import) api.GoModuleFunc {
		if call := preview1.Lookup(f.Name); call != nil {
			return h.function(call, len(f.Results) > 0)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = export(ctx, r, wasi.FetchFunctions[:], imported, func(f wasi.Import) api.GoModuleFunc {
		call := hostfetch.Lookup(f.Name)
		if call == nil {
			return nil
		}
		return func(ctx context.Context, m api.Module, stack []uint64) {
			stack[0] = uint64(callerOf(ctx).requests.Do(call, h.linearOf(m), stack))
		}
	})
	if err != nil {
		return err
	}
	for _, binding := range agent.Bindings {
		functions := wasi.AgentFunctions(binding)
		err := export(ctx, r, functions, imported, func(f wasi.Import) api.GoModuleFunc {
			call := hostagent.Lookup(f.Name)
			if call == nil {
				return nil
			}
			return func(ctx context.Context, m api.Module, stack []uint64) {
				stack[0] = uint64(callerOf(ctx).answers.Do(call, binding, h.linearOf(m), stack))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// export makes a host module of those functions, all of one module name, that are in imports. It
// makes none if there are none. of returns the implementation of a function.
func export(ctx context.Context, r wazero.Runtime, functions []wasi.Import,
	imported map[wasi.Import]bool, of func(wasi.Import) api.GoModuleFunc) error {
	b, found := r.NewHostModuleBuilder(functions[0].Module), false
	for _, f := range functions {
		if !imported[f] {
			continue
		}
		call := of(f)
		if call == nil {
			return fmt.Errorf("%w: no function %s", errEngine, f)
		}
		b.NewFunctionBuilder().
			WithGoModuleFunction(call, valueTypes(f.Params), valueTypes(f.Results)).Export(f.Name)
		found = true
	}
	if !found {
		return nil
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("%w: %w", errEngine, err)
	}
	return nil
}

// linearOf returns all of a module's memory, without a copy.
func (h host) linearOf(m api.Module) (mem []byte) {
	if h.memory {
		// at 4 GiB the size does not fit 32 bits
		lm := m.Memory()
		mem, _ = lm.Read(0, lm.Size())
	}
	return mem
}

func (h host) function(call preview1.Call, result bool) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, stack []uint64) {
		errno := callerOf(ctx).process.Call(call, h.linearOf(m), stack)
		if result {
			stack[0] = uint64(errno)
		}
	}
}

func valueTypes(letters string) []api.ValueType {
	types := make([]api.ValueType, len(letters))
	for i := range letters {
		types[i] = api.ValueTypeI32
		if letters[i] == 'I' {
			types[i] = api.ValueTypeI64
		}
	}
	return types
}

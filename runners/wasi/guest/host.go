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

// host is the modules that guests import: preview 1, and the functions of fetches and of agents. The
// functions are bound once for a loaded module; the context of a call identifies the process.
type host struct {
	// The module has a linear memory. The engine hands out a nil pointer in a non-nil interface for
	// the memory of a module without one.
	memory bool
}

// processKey finds the process in the context of its calls.
type processKey struct{}

// requestsKey finds its open requests there.
type requestsKey struct{}

// answersKey finds the open answers of its bindings there.
type answersKey struct{}

func withProcess(ctx context.Context, p *preview1.Process, r *hostfetch.Requests,
	a *hostagent.Answers) context.Context {
	return context.WithValue(context.WithValue(context.WithValue(ctx, processKey{}, p),
		requestsKey{}, r), answersKey{}, a)
}

func (h host) bind(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasi.Preview1)
	for i := range wasi.Functions {
		f := &wasi.Functions[i]
		call := preview1.Lookup(f.Name)
		if call == nil {
			return fmt.Errorf("%w: no function %s", errEngine, f.Name)
		}
		b.NewFunctionBuilder().
			WithGoModuleFunction(h.function(call, len(f.Results) > 0), valueTypes(f.Params),
				valueTypes(f.Results)).
			Export(f.Name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("%w: %w", errEngine, err)
	}
	if err := h.bindFetch(ctx, r); err != nil {
		return err
	}
	for _, binding := range agent.Bindings {
		if err := h.bindAgent(ctx, r, binding); err != nil {
			return err
		}
	}
	return nil
}

// bindAgent binds the functions of one binding of agents. Whether a module may import them was
// checked before.
func (h host) bindAgent(ctx context.Context, r wazero.Runtime, binding string) error {
	functions := wasi.AgentFunctions(binding)
	b := r.NewHostModuleBuilder(functions[0].Module)
	for _, f := range functions {
		call := hostagent.Lookup(f.Name)
		if call == nil {
			return fmt.Errorf("%w: no function %s", errEngine, f)
		}
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context,
			m api.Module, stack []uint64) {
			stack[0] = uint64(ctx.Value(answersKey{}).(*hostagent.Answers).Do(call, binding,
				h.linearOf(m), stack))
		}), valueTypes(f.Params), valueTypes(f.Results)).Export(f.Name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("%w: %w", errEngine, err)
	}
	return nil
}

// bindFetch binds the functions of fetches. Whether a module may import them was checked before.
func (h host) bindFetch(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasi.Fetch)
	for i := range wasi.FetchFunctions {
		f := &wasi.FetchFunctions[i]
		call := hostfetch.Lookup(f.Name)
		if call == nil {
			return fmt.Errorf("%w: no function %s", errEngine, f)
		}
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context,
			m api.Module, stack []uint64) {
			stack[0] = uint64(ctx.Value(requestsKey{}).(*hostfetch.Requests).Do(call, h.linearOf(m),
				stack))
		}), valueTypes(f.Params), valueTypes(f.Results)).Export(f.Name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("%w: %w", errEngine, err)
	}
	return nil
}

// linearOf is all of a module's memory, without a copy.
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
		errno := ctx.Value(processKey{}).(*preview1.Process).Call(call, h.linearOf(m), stack)
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

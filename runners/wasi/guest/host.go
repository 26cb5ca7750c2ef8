package guest

import (
	"context"
	"fmt"

	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/preview1"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// host is the module that guests import: preview 1. The functions are bound once
// for a loaded module; the context of a call says which process it is for.
type host struct{}

// processKey finds the process in the context of its calls.
type processKey struct{}

func withProcess(ctx context.Context, p *preview1.Process) context.Context {
	return context.WithValue(ctx, processKey{}, p)
}

func (h host) bind(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasi.Preview1)
	for i := range wasi.Functions {
		f := &wasi.Functions[i]
		call := preview1.Lookup(f.Name)
		if call == nil {
			return fmt.Errorf("%w: no function %s", ErrEngine, f.Name)
		}
		b.NewFunctionBuilder().
			WithGoModuleFunction(h.function(call, len(f.Results) > 0), valueTypes(f.Params), valueTypes(f.Results)).
			Export(f.Name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrEngine, err)
	}
	return nil
}

func (h host) function(call preview1.Call, result bool) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, stack []uint64) {
		var mem []byte
		if lm := m.Memory(); lm != nil {
			// All of it, without a copy; at 4 GiB the size does not fit 32 bits.
			mem, _ = lm.Read(0, lm.Size())
		}
		errno := ctx.Value(processKey{}).(*preview1.Process).Call(call, mem, stack)
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

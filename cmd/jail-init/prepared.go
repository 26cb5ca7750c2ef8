package main

import (
	"context"
	"os"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi/guest"
)

// prepared is a module that was loaded before there was a run of it, behind all the walls of its jail. Nothing of the module has run: it has no memory yet, and no table. One that cannot be
// loaded is not here; the run finds that out, and says so.
type prepared struct{ loaded *guest.Loaded }

func (p *prepared) load(order runners.Order, files []*os.File) {
	if p.loaded != nil || len(files) != 1 {
		return
	}
	module, err := readModule(files[0])
	if err != nil {
		return
	}
	if l, err := guest.Load(context.Background(), module, order.Invocation.Module, order.Invocation.CacheDir); err == nil {
		p.loaded = l
	}
}

// of returns the module if it is the order's.
func (p *prepared) of(order runners.Order) *guest.Loaded {
	if !order.Prepared || order.Script != nil || order.Native != nil || order.Compile {
		return nil
	}
	return p.loaded
}

package main

import (
	"context"
	"os"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi/guest"
)

// prepared holds a module that jail-init loaded before its run, behind all layers of the jail. No
// code of the module has run, and it has no memory or table yet. It is empty if the module could
// not be loaded; the run then reports the error.
type prepared struct{ loaded *guest.Loaded }

func (p *prepared) load(order runners.Order, files []*os.File) {
	if p.loaded != nil || len(files) != 1 {
		return
	}
	module, err := readModule(files[0])
	if err != nil {
		return
	}
	if l, err := guest.Load(context.Background(), module, order.Invocation.Module,
		order.Invocation.CacheDir); err == nil {
		p.loaded = l
	}
}

// of returns the module if the order names it.
func (p *prepared) of(order runners.Order) *guest.Loaded {
	if !order.Prepared || order.Script != nil || order.Native != nil || order.Compile {
		return nil
	}
	return p.loaded
}

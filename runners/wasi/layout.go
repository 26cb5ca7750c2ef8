package wasi

import (
	"strings"

	"github.com/jail-sandbox/jail/runners"
)

// LayoutSection is the name of a custom section by which a module asks for a
// layout: its content is the name of one. A C source writes it with
// __attribute__((section(".custom_section.jail.layout"))).
const LayoutSection = "jail.layout"

// custom looks for signs of the layout that a module understands. Go's wasip1 port starts in the
// directory that PWD names, so it gets the rooted one.
func (s *scan) custom(r *reader) {
	switch r.name() {
	case "go:buildid":
		s.info.Layout = runners.LayoutRooted
	case "producers":
		if fields, err := r.count("producer fields", 64); err == nil && goProduced(r, fields) {
			s.info.Layout = runners.LayoutRooted
		}
	case LayoutSection:
		switch want := runners.Layout(r.b); want {
		case runners.LayoutRooted, runners.LayoutPreopens, runners.LayoutWorking:
			s.info.Layout = want
		}
	}
}

// goProduced reports whether the producers section names Go's own compiler;
// TinyGo names itself otherwise, and does not read PWD.
func goProduced(r *reader, fields uint32) bool {
	for range fields {
		r.name()
		values, err := r.count("producers", 1024)
		if err != nil {
			return false
		}
		for range values {
			name, _ := r.name(), r.name()
			if r.short {
				return false
			}
			if strings.HasPrefix(name, "Go cmd/compile") {
				return true
			}
		}
	}
	return false
}

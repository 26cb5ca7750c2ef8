package verify

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A want is what a mount is to be. Empty fields may be anything.
type want struct {
	kind    string   // of the file system
	options []string // of the mount, all of them
	super   []string // of the file system, all of them
	place   string   // device and directory of the host
}

func (w want) String() string {
	words := append(slices.Clone(w.options), w.super...)
	for _, s := range []string{w.kind, w.place} {
		if s != "" {
			words = append(words, s)
		}
	}
	return strings.Join(words, ",")
}

var fixed = []string{"nosuid", "nodev"}

func optionsOf(write, exec bool) []string {
	options := []string{"ro"}
	if write {
		options = []string{"rw"}
	}
	options = append(options, fixed...)
	if !exec {
		options = append(options, "noexec")
	}
	return options
}

// planned are the mounts of a plan by their points.
func planned(p jail.Plan, host []sys.Mount) (map[string]want, error) {
	all := map[string]want{
		"/":        {kind: "tmpfs", options: optionsOf(false, true)},
		"/dev":     {kind: "tmpfs", options: optionsOf(false, false)},
		guest.Self: {options: optionsOf(false, true)},
	}
	for _, d := range p.Devices {
		all["/dev/"+d] = want{kind: "devtmpfs", options: []string{"rw", "nosuid", "noexec"}, place: "/" + d}
	}
	if w := p.Workspace; w != nil {
		all[w.Target] = want{options: optionsOf(w.Shadow, w.Exec)}
		if w.Shadow {
			all[w.Target] = want{kind: "overlay", options: optionsOf(true, w.Exec)}
		}
	}
	for _, m := range p.Mounts {
		w := want{options: optionsOf(m.Write, m.Exec)}
		switch m.Kind {
		case jail.MountProc:
			w = want{kind: "proc", options: optionsOf(true, false), super: []string{"subset=pid", "hidepid=ptraceable"}}
		case jail.MountPTS:
			w = want{kind: "devpts", options: []string{"rw", "nosuid", "noexec"}, super: []string{"ptmxmode=666", "max=64"}}
		case jail.MountTmpfs:
			const page = 4096
			w.kind = "tmpfs"
			w.super = []string{"size=" + strconv.FormatInt((m.Size+page-1)/page*page/1024, 10) + "k", "nr_inodes=" + strconv.FormatInt(m.Files, 10)}
		case jail.MountBind:
			var err error
			if w.place, err = placeOf(m.Source, host); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("mount %s: unknown kind %q", m.Target, m.Kind)
		}
		all[m.Target] = w
	}
	return all, nil
}

// placeOf says where a path of the host is: its device, and the directory of the file system.
func placeOf(source string, host []sys.Mount) (string, error) {
	real, err := filepath.EvalSymlinks(source)
	if errors.Is(err, os.ErrNotExist) {
		return source + ", which is there no more", nil
	}
	if err != nil {
		return "", err
	}
	var on sys.Mount
	for _, m := range host { // of two on the same point the later one is on top
		if (m.Point == "/" || real == m.Point || strings.HasPrefix(real, m.Point+"/")) && len(m.Point) >= len(on.Point) {
			on = m
		}
	}
	return on.Device + path.Join(on.Root, strings.TrimPrefix(real, on.Point)), nil
}

// mounts: each mount of the plan is there and as the plan says, nothing else is, and none propagates.
func (v *viewer) mounts() error {
	table, err := sys.Mounts(strconv.Itoa(v.PID))
	if err != nil {
		return err
	}
	host, err := sys.Mounts("self")
	if err != nil {
		return err
	}
	wanted, err := planned(v.Plan, host)
	if err != nil {
		return err
	}
	found := map[string][]string{}
	for _, m := range table {
		w, ok := wanted[m.Point]
		if !ok {
			v.differs("mounts", m.Point, "nothing", m.Type+" "+strings.Join(m.Options, ","))
			continue
		}
		found[m.Point] = append(found[m.Point], lacking(w, m)...) // also where nothing is: then it is there
	}
	for _, point := range slices.Sorted(maps.Keys(wanted)) {
		missing, ok := found[point]
		text := wanted[point].String()
		switch {
		case !ok:
			v.differs("mounts", point, text, "nothing")
		case len(missing) > 0:
			v.differs("mounts", point, text, strings.Join(missing, "; "))
		default:
			v.is("mounts", point, text, text)
		}
	}
	return nil
}

// lacking says what a mount is not that it should be.
func lacking(w want, m sys.Mount) []string {
	var all []string
	for _, o := range w.options {
		if !slices.Contains(m.Options, o) {
			all = append(all, "not "+o)
		}
	}
	for _, o := range w.super {
		if !slices.Contains(m.Super, o) && !slices.Contains(m.Super, numeric[o]) {
			all = append(all, "not "+o)
		}
	}
	if w.kind != "" && m.Type != w.kind {
		all = append(all, m.Type)
	}
	if w.place != "" && w.place != m.Root && w.place != m.Device+m.Root {
		all = append(all, m.Device+m.Root)
	}
	if len(m.Shared) > 0 {
		all = append(all, "propagates: "+strings.Join(m.Shared, " "))
	}
	return all
}

// numeric are options as some kernels write them.
var numeric = map[string]string{"hidepid=ptraceable": "hidepid=4"}

func (v *viewer) mountIDs() (map[string]bool, error) {
	table, err := sys.Mounts(strconv.Itoa(v.PID))
	ids := map[string]bool{}
	for _, m := range table {
		ids[m.ID] = true
	}
	return ids, err
}

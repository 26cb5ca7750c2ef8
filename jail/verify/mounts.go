package verify

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy/paths"
)

// want is the expected state of a mount. Empty fields match anything.
type want struct {
	// kind of file system.
	kind string
	// All options of the mount.
	options []string
	// All options of the file system.
	super []string
	// Device and directory of the host.
	place string
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

// wants maps mount points to their expected mounts. One mount point may have several.
type wants map[string][]want

func (all wants) add(point string, w want) { all[point] = append(all[point], w) }

// planned returns the mounts of a plan. host is the mount table that its binds are made from.
func planned(p jail.Plan, host []sys.Mount) (wants, error) {
	all := wants{}
	if p.ImageRoot() == nil {
		all.add("/", want{kind: "tmpfs", options: optionsOf(false, true)})
	}
	all.add("/dev", want{kind: "tmpfs", options: optionsOf(false, false)})
	all.add(guest.Self, want{options: optionsOf(false, true)})
	for _, d := range p.Devices {
		// Only a mount of a device node lacks nodev.
		w := want{options: []string{"rw", "nosuid", "noexec"}}
		if err := all.bind("/dev/"+d, "/dev/"+d, w, host); err != nil {
			return nil, err
		}
	}
	if w := p.Workspace; w != nil {
		kind := ""
		if w.Shadow {
			kind = "overlay"
		}
		all.add(w.Target, want{kind: kind, options: optionsOf(w.Shadow, w.Exec)})
	}
	for _, m := range p.Mounts {
		switch m.Kind {
		case jail.MountImage:
			all.add(m.Target, want{kind: "overlay", options: optionsOf(m.Write, m.Exec)})
		case jail.MountProc:
			all.add(m.Target, want{kind: "proc", options: optionsOf(true, false),
				super: []string{"subset=pid", "hidepid=ptraceable"}})
		case jail.MountPTS:
			all.add(m.Target, want{kind: "devpts", options: []string{"rw", "nosuid", "noexec"},
				super: []string{"ptmxmode=666", "max=64"}})
		case jail.MountMachine:
			// Its files lie in the root.
			kind := "tmpfs"
			if p.ImageRoot() != nil {
				kind = "overlay"
			}
			all.add(m.Target, want{kind: kind, options: optionsOf(false, false)})
		case jail.MountTmpfs:
			const page = 4096
			all.add(m.Target, want{kind: "tmpfs", options: optionsOf(m.Write, m.Exec),
				super: []string{
					"size=" + strconv.FormatInt((m.Size+page-1)/page*page/1024, 10) + "k",
					"nr_inodes=" + strconv.FormatInt(m.Files, 10)}})
		case jail.MountCache:
			all.add(m.Target, want{kind: "ext4", options: optionsOf(m.Write, m.Exec)})
		case jail.MountBind, jail.MountState:
			w := want{options: optionsOf(m.Write, m.Exec)}
			if err := all.bind(m.Source, m.Target, w, host); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("mount %s: unknown kind %q", m.Target, m.Kind)
		}
	}
	return all, nil
}

// bind adds the expected mounts of a bind of source on target: that of source, and one for each
// mount of the host below source, all with the options of w.
func (all wants) bind(source, target string, w want, host []sys.Mount) error {
	f, err := sys.OpenTarget(source)
	if errors.Is(err, os.ErrNotExist) {
		w.place = source + ", which is there no more"
		all.add(target, w)
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	at, err := sys.Locate(f, host)
	if err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	w.place = at.Mount.Device + at.Root
	all.add(target, w)
	for _, m := range below(at.Mount.ID, at.Path, host) {
		w.kind, w.place = m.Type, m.Device+m.Root
		all.add(path.Join(target, strings.TrimPrefix(m.Point, at.Path)), w)
	}
	return nil
}

// below returns the mounts of host that a recursive bind of the directory dir copies; id is the
// mount that dir is on. The kernel follows mounts and not paths, since one mount may cover others.
func below(id, dir string, host []sys.Mount) []sys.Mount {
	var all []sys.Mount
	for _, m := range host {
		inside := paths.Within(dir, m.Point)
		// The kernel leaves out an unbindable mount with all mounts below it.
		if m.Parent == id && m.ID != id && inside && !slices.Contains(m.Shared, "unbindable") {
			all = append(append(all, m), below(m.ID, m.Point, host)...)
		}
	}
	return all
}

// mounts checks that each mount of the plan exists as planned, that no other exists, and that none
// propagates.
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
	found := map[string][]sys.Mount{}
	for _, m := range table {
		if _, ok := wanted[m.Point]; !ok {
			v.differs("mounts", m.Point, "nothing", m.Type+" "+strings.Join(m.Options, ","))
			continue
		}
		found[m.Point] = append(found[m.Point], m)
	}
	for _, point := range slices.Sorted(maps.Keys(wanted)) {
		var words []string
		for _, w := range wanted[point] {
			words = append(words, w.String())
		}
		text := strings.Join(words, " and ")
		if wrong := compare(wanted[point], found[point]); len(wrong) > 0 {
			v.differs("mounts", point, text, strings.Join(wrong, "; "))
		} else {
			v.is("mounts", point, text, text)
		}
	}
	return nil
}

// procs checks that each proc of the plan shows the jail's own processes. The mount table does not
// say of which process namespace a proc is, but process 1 in it does (pid_namespaces(7)).
func (v *viewer) procs() error {
	if !slices.Contains(v.Plan.Namespaces, "pid") {
		return nil
	}
	own, err := os.Readlink(proc(v.PID, "ns/pid"))
	if err != nil {
		return err
	}
	for _, m := range v.Plan.Mounts {
		if m.Kind != jail.MountProc {
			continue
		}
		got := ownNamespace
		shown, err := os.Readlink(proc(v.PID, "root"+m.Target+"/1/ns/pid"))
		switch {
		case errors.Is(err, os.ErrNotExist):
			got = "no process 1"
		case err != nil:
			return err
		case shown != own:
			got = "those of another process namespace"
		}
		v.is("mounts", "processes in "+m.Target, ownNamespace, got)
	}
	return nil
}

// compare returns the differences on one mount point: each found mount must be expected, and each
// expected one found. The same mount may be found twice.
func compare(wanted []want, found []sys.Mount) []string {
	if len(found) == 0 {
		return []string{"nothing"}
	}
	var wrong []string
	for _, m := range found {
		if !slices.ContainsFunc(wanted, func(w want) bool { return len(lacking(w, m)) == 0 }) {
			wrong = append(wrong, lacking(wanted[len(wanted)-1], m)...)
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(found, func(m sys.Mount) bool { return len(lacking(w, m)) == 0 }) {
			wrong = append(wrong, "not "+w.String())
		}
	}
	return wrong
}

// lacking returns the properties of want that the mount m lacks.
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
	if w.place != "" && w.place != m.Device+m.Root {
		all = append(all, m.Device+m.Root)
	}
	if len(m.Shared) > 0 {
		all = append(all, "propagates: "+strings.Join(m.Shared, " "))
	}
	return all
}

// numeric maps options to the spelling of some kernels.
var numeric = map[string]string{"hidepid=ptraceable": "hidepid=4"}

func (v *viewer) mountIDs() (map[string]bool, error) {
	table, err := sys.Mounts(strconv.Itoa(v.PID))
	ids := map[string]bool{}
	for _, m := range table {
		ids[m.ID] = true
	}
	return ids, err
}

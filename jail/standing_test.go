package jail_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// The plan of a jail elsewhere is the one that would have been made for it there.
func TestElsewhere(t *testing.T) {
	pol := shipped(t, "default").Policy()
	ceiling := pol
	ceiling.Limits.Memory /= 2
	held, err := policy.Resolve(policy.Layer{Name: policy.CeilingLayer, Policy: ceiling},
		policy.Layer{Name: "profile", Policy: pol})
	if err != nil {
		t.Fatal(err)
	}
	for name, eff := range map[string]policy.Effective{"plain": resolve(t, pol),
		"under a ceiling": held} {
		r := request()
		// An owner beyond the range.
		r.Workspace.UID, r.Workspace.GID = 1<<20, 1<<20
		p, err := jail.NewPlan(eff, r)
		if err != nil {
			t.Fatal(err)
		}
		r.ID, r.Base = "other", jail.FirstBase+7*jail.BaseSize
		want, err := jail.NewPlan(eff, r)
		if err != nil {
			t.Fatal(err)
		}
		before := text(t, p)
		if got := p.Elsewhere("other", r.Base); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s\nwant %s", name, text(t, got), text(t, want))
		}
		if string(text(t, p)) != string(before) {
			t.Errorf("%s: the plan itself has changed", name)
		}
		if name != "plain" && (p.Ceiling == nil || p.Ceiling.Cgroup == nil) {
			t.Error("the ceiling has no group: nothing was tested")
		}
		// The same run in the jail that stands elsewhere has its place, and its own name.
		in, ok := p.In(want.Standing().Elsewhere("waits", r.Base))
		if !ok || in.ID != p.ID || in.IDs.Base != r.Base || in.Cgroup.Path != p.Elsewhere("waits",
			r.Base).Cgroup.Path || !reflect.DeepEqual(in.Command, p.Command) ||
			in.Policy != p.Policy {
			t.Errorf("%s: %v, %s", name, ok, text(t, in))
		}
	}
}

// Whatever the kernel is told differently of a run than of a jail that stands, the run cannot have
// that jail. A field that is new counts as well.
func TestInAnotherJail(t *testing.T) {
	p, err := jail.NewPlan(shipped(t, "default"), request())
	if err != nil {
		t.Fatal(err)
	}
	p.Ceiling = &jail.Ceiling{Policy: "x", Landlock: p.Landlock, Filter: p.OuterFilter}
	standing := p.Standing().Elsewhere("waits", jail.FirstBase+jail.BaseSize)
	if _, ok := p.In(standing); !ok {
		t.Fatal("a run cannot have the jail that was made for its like")
	}
	// These are the host's side's, or the run's own.
	own := []string{"ID", "Policy", "Layers", "Fetch", "Limits.Wall", "Limits.CPUTime",
		"Limits.Output", "FileEvents", "Command.Tool", "Command.Digest", "Command.Args",
		"Command.Env", "Command.Cwd", "Command.Script",
		"Cgroup.Path", "IDs.Base", "IDs.Owner", "Workspace.Source", "Workspace.Bytes",
		"Workspace.Files", "Ceiling.Policy"}
	var seen []string
	for name, change := range changes(reflect.ValueOf(&p).Elem(), "") {
		undo := change()
		_, ok := p.In(standing)
		undo()
		if slices.Contains(own, name) {
			seen = append(seen, name)
		}
		if ok != slices.Contains(own, name) {
			t.Errorf("another %s: %v", name, ok)
		}
	}
	if len(seen) != len(own) {
		t.Errorf("of %v only %v were changed", own, seen)
	}
	if _, ok := p.In(standing); !ok {
		t.Error("the changes were not undone")
	}
}

// changes are ways to change each field of a struct, and of the structs in it, each of which
// returns what undoes it.
func changes(v reflect.Value, prefix string) map[string]func() func() {
	all := map[string]func() func(){}
	for i := range v.NumField() {
		f, name := v.Field(i), prefix+v.Type().Field(i).Name
		inner := f
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			inner = f.Elem()
		}
		if inner.Kind() == reflect.Struct {
			for n, c := range changes(inner, name+".") {
				all[n] = c
			}
			if inner == f {
				continue
			}
		}
		all[name] = func() func() {
			old := reflect.New(f.Type()).Elem()
			old.Set(f)
			f.Set(other(f))
			return func() { f.Set(old) }
		}
	}
	return all
}

// other is another value than v.
func other(v reflect.Value) reflect.Value {
	o := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		o.SetString(v.String() + "x")
	case reflect.Bool:
		o.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		o.SetInt(v.Int() + 1)
	case reflect.Uint32, reflect.Uint64, reflect.Uint:
		o.SetUint(v.Uint() + 1)
	case reflect.Slice:
		o.Set(reflect.Append(v.Slice3(0, v.Len(), v.Len()), reflect.Zero(v.Type().Elem())))
	case reflect.Pointer:
		if v.IsNil() {
			o.Set(reflect.New(v.Type().Elem()))
		}
	}
	return o
}

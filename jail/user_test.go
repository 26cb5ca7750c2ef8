package jail_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
)

// TestUserIDs: a user's jail has the user's one id and group, and all else is as in root's: no
// layer is left out.
func TestUserIDs(t *testing.T) {
	r := request()
	root, err := jail.NewPlan(shipped(t, "default"), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Base, r.User = 0, &jail.User{UID: 1000, GID: 100}
	p, err := jail.NewPlan(shipped(t, "default"), r)
	if err != nil {
		t.Fatal(err)
	}
	if i := p.IDs; !i.User || i.Base != 1000 || i.HostGroup() != 100 || i.Size != 1 || i.UID != 0 ||
		i.GID != 0 || len(i.Extra) != 0 {
		t.Errorf("ids: %+v", i)
	}
	if root.IDs.HostGroup() != root.IDs.Base || root.IDs.User {
		t.Errorf("root's ids: %+v", root.IDs)
	}
	if !strings.HasPrefix(p.Cgroup.Path, r.Slice+"/"+string(r.ID)+".") {
		t.Errorf("control group %s", p.Cgroup.Path)
	}
	p.IDs, p.Cgroup.Path, p.Files = root.IDs, root.Cgroup.Path, root.Files
	if got, want := asJSON(t, p), asJSON(t, root); got != want {
		t.Errorf("the plan is\n%s\nand root's\n%s", got, want)
	}
	for _, uid := range []uint32{0, 65534, 1<<32 - 1} {
		r.User = &jail.User{UID: uid, GID: 100}
		if _, err := jail.NewPlan(shipped(t, "default"), r); !errors.Is(err, jail.ErrPlan) {
			t.Errorf("a user with id %d: %v", uid, err)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

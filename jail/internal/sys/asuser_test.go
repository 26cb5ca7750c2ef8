package sys

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing ids needs root")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	groups := []uint32{1234, 4321}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				err := AsUser(1000, 1001, groups, func() error {
					uid, _ := unix.SetfsuidRetUid(-1)
					gid, _ := unix.SetfsgidRetGid(-1)
					got, err := unix.Getgroups()
					if uid != 1000 || gid != 1001 || err != nil || len(got) != 2 ||
						got[0] != 1234 || got[1] != 4321 {
						t.Errorf("uid %d, gid %d, groups %v", uid, gid, got)
					}
					_, err = os.ReadFile(secret)
					return err
				})
				if !errors.Is(err, os.ErrPermission) {
					t.Errorf("the user read root's file: %v", err)
				}
				// The control, and the rights are back.
				if _, err := os.ReadFile(secret); err != nil {
					t.Errorf("root cannot read its file: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAsUserKeepsItsThreadApart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing ids needs root")
	}
	AsUser(1000, 1000, nil, func() error {
		other := make(chan int)
		go func() { uid, _ := unix.SetfsuidRetUid(-1); other <- uid }()
		if uid := <-other; uid != 0 {
			t.Errorf("another goroutine has uid %d", uid)
		}
		return nil
	})
	if err := AsUser(1000, 1000, nil, func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("a function that never returned is no error")
	}
}

func TestNewUserNS(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mapping ids needs root")
	}
	ids := []IDMap{{0, 0x70010000, 65536}, {100000, 0x70020000, 1}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				ns, err := NewUserNS(UserNS{UIDs: ids, GIDs: ids})
				if err != nil {
					t.Error(err)
					return
				}
				ns.Close()
			}
		})
	}
	wg.Wait()
	if _, err := NewUserNS(UserNS{UIDs: []IDMap{{0, 0, 1}, {0, 5, 1}}, GIDs: ids}); err == nil {
		t.Error("a map with one id twice was taken")
	}
	owner := uint32(0x70030000)
	for name, u := range map[string]UserNS{
		"a bound that cannot be": {UIDs: ids, GIDs: ids,
			Counts: map[string]int64{"inotify_instances": -1}},
		"an owner that is none": {UIDs: ids, GIDs: ids, Owner: new(^uint32(0))},
	} {
		if ns, err := NewUserNS(u); err == nil {
			ns.Close()
			t.Errorf("%s was taken", name)
		}
	}
	ns, err := NewUserNS(UserNS{UIDs: ids, GIDs: ids, Owner: &owner,
		Counts: map[string]int64{"inotify_instances": 3, "no_such_thing": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if got, err := ownerOf(ns); err != nil || got != owner {
		t.Errorf("the owner is %d, %v, want %d", got, err, owner)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WALL|unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a process is left: %d, %v", pid, err)
	}
}

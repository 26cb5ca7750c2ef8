package sys

import "testing"

func TestSameTail(t *testing.T) {
	const path = "/var/lib/jail/workspaces/.cache-a/upper.img"
	for other, want := range map[string]bool{
		path:                             true,
		"/workspaces/.cache-a/upper.img": true,
		"/var/lib/jail/workspaces/.cache-b/upper.img": false,
		"/var/lib/jail/workspaces/.cache-a/other.img": false,
		"/home/me/disk.img":                           false,
		"/upper.img":                                  false,
		path + " (deleted)":                           false,
	} {
		if got := sameTail(other, path); got != want {
			t.Errorf("%s: %v", other, got)
		}
	}
}

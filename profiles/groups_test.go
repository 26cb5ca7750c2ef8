package profiles

import "testing"

// A group is private that holds its user and nobody else; what cannot be told is not.
func TestPrivateGroup(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\n"
	const group = "root:x:0:\nann:x:1000:\nusers:x:100:\nteam:x:200:ann,bob\nmine:x:300:ann\n"
	const nss = "passwd: files systemd # local\ngroup:\tfiles systemd\nhosts: files dns\n"
	for name, c := range map[string]struct {
		accounts
		gid, uid uint32
		want     bool
	}{
		"the user's own":                {accounts{passwd, group, nss}, 1000, 1000, true},
		"another that only the user is": {accounts{passwd, group, nss}, 300, 1000, true},
		"without nsswitch.conf":         {accounts{passwd, group, ""}, 1000, 1000, true},
		"one with another member":       {accounts{passwd, group, nss}, 200, 1000, false},
		"another's first group":         {accounts{passwd, group, nss}, 100, 1000, false},
		"another's first group, as member": {accounts{passwd, group + "more:x:100:ann\n", nss}, 100,
			1000, false},
		"a second line of the group": {accounts{passwd, group + "ann2:x:1000:bob\n", nss},
			1000, 1000, false},
		"a user with the same group": {accounts{passwd + "eve:x:1002:1000::/:/bin/sh\n",
			group, nss}, 1000, 1000, false},
		"a group that is in no file": {accounts{passwd, group, nss}, 4000, 1000, false},
		"a user who is in no file":   {accounts{passwd, group, nss}, 300, 4000, false},
		"a directory service": {accounts{passwd, group, "group: files [SUCCESS=merge] sss\n"}, 1000,
			1000, false},
		"no files": {accounts{}, 1000, 1000, false},
	} {
		if got := c.isPrivate(c.gid, c.uid); got != c.want {
			t.Errorf("%s: private %v", name, got)
		}
	}
}

package prepare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// cacheVersion is part of the id of each cache, so that a change of what an id is made of shares
// nothing with older caches.
const cacheVersion = 1

// nameCaches gives each cache of the plan its id. All that decides on trust is in the id, so that
// what a hostile run leaves in a cache reaches no run but those that are trusted alike:
//
//   - the user who asks for the run, and the user and group of the tool, who are those of the
//     workspace's owner if root asks;
//   - the policies that the run has and their sources: the ceiling, the profile, that of the
//     workspace, of a bundle;
//   - the digest of what they grant together, with what the caller narrows, without its limits,
//     which are amounts.
func (j *Job) nameCaches() {
	for i, m := range j.Plan.Mounts {
		if m.Kind == jail.MountCache {
			j.Plan.Mounts[i].Source = j.cacheID(m.Name)
		}
	}
}

func (j *Job) cacheID(name string) string {
	granted := j.Policy.Policy()
	granted.Limits = policy.Limits{}
	id := struct {
		Version  int
		Name     string
		Caller   uint32
		UID, GID uint32
		Layers   []jail.Layer
		Policy   string
	}{cacheVersion, name, j.Caller.UID, j.Plan.IDs.UID, j.Plan.IDs.GID, nil, granted.Digest()}
	for _, l := range j.Plan.Layers {
		if l.Name != requestLayer && l.Name != invocationLayer {
			id.Layers = append(id.Layers, l)
		}
	}
	text, err := json.Marshal(id)
	if err != nil {
		panic(fmt.Sprintf("bug: the id of a cache is not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// cachesOf returns the caches of the plan, for the record.
func (j *Job) cachesOf() (all []string) {
	for _, m := range j.Plan.Mounts {
		if m.Kind == jail.MountCache {
			all = append(all, m.Target+" from cache "+m.Name+" "+m.Source)
		}
	}
	return all
}

package workspace

import "os"

// folder is the directory of one workspace in the store, <store>/<id>: meta.json, upper.img, the
// journal of a commit, and what is kept for reverts and merges.
type folder struct{ dir *os.File }

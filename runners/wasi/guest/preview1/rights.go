package preview1

// Rights of WASI preview 1. They are reported, because libraries ask for them to learn how a file
// may be used, and a guest may drop its own. They protect nothing: the mounts and the kernel decide
// what a guest may do.
const (
	rightFdDatasync = 1 << iota
	rightFdRead
	rightFdSeek
	rightFdstatSetFlags
	rightFdSync
	rightFdTell
	rightFdWrite
	rightFdAdvise
	rightFdAllocate
	rightPathCreateDirectory
	rightPathCreateFile
	rightPathLinkSource
	rightPathLinkTarget
	rightPathOpen
	rightFdReaddir
	rightPathReadlink
	rightPathRenameSource
	rightPathRenameTarget
	rightPathFilestatGet
	rightPathFilestatSetSize
	rightPathFilestatSetTimes
	rightFdFilestatGet
	rightFdFilestatSetSize
	rightFdFilestatSetTimes
	rightPathSymlink
	rightPathRemoveDirectory
	rightPathUnlinkFile
	rightPollFdReadwrite

	allRights = 1<<iota - 1

	dirRights = rightPathCreateDirectory | rightPathCreateFile | rightPathLinkSource | rightPathLinkTarget |
		rightPathOpen | rightFdReaddir | rightPathReadlink | rightPathRenameSource | rightPathRenameTarget |
		rightPathFilestatGet | rightPathFilestatSetSize | rightPathFilestatSetTimes | rightFdFilestatGet |
		rightFdFilestatSetTimes | rightPathSymlink | rightPathRemoveDirectory | rightPathUnlinkFile |
		rightFdstatSetFlags | rightFdSync | rightFdDatasync | rightFdAdvise

	fileRights = rightFdDatasync | rightFdRead | rightFdSeek | rightFdstatSetFlags | rightFdSync |
		rightFdTell | rightFdWrite | rightFdAdvise | rightFdAllocate | rightFdFilestatGet |
		rightFdFilestatSetSize | rightFdFilestatSetTimes | rightPollFdReadwrite

	rightSockShutdown = 1 << 28
	rightSockAccept   = 1 << 29
	listenerRights    = rightSockAccept | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
	socketRights      = rightFdRead | rightFdWrite | rightSockShutdown | rightFdstatSetFlags |
		rightFdFilestatGet | rightPollFdReadwrite

	stdinRights  = rightFdRead | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
	stdoutRights = rightFdWrite | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
)

// rights are those of one descriptor, as they are reported.
type rights struct {
	// inherit are those of what is opened below a directory.
	base, inherit uint64
	// dropped are those that the guest gave up.
	dropped uint64
}

// narrow drops all but those of base and inherit, and reports false if some of these are not had.
func (r *rights) narrow(base, inherit uint64) bool {
	if base&^r.base != 0 || inherit&^r.inherit != 0 {
		return false
	}
	r.dropped |= r.base &^ base
	r.base, r.inherit = base, inherit
	return true
}

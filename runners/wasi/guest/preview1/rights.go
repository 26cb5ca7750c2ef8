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
	socketRights      = rightFdRead | rightFdWrite | rightSockShutdown | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite

	stdinRights  = rightFdRead | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
	stdoutRights = rightFdWrite | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
)

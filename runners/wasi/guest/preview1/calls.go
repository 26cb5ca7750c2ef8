package preview1

// Call is one function of preview 1. mem is all of linear memory; a holds the
// parameters as the engine has them, each in 64 bits.
type Call func(p *Process, mem []byte, a []uint64) Errno

// Lookup returns the function of that name, or nil.
func Lookup(name string) Call { return calls[name] }

var calls = map[string]Call{
	"args_get":                argsGet,
	"args_sizes_get":          argsSizesGet,
	"clock_res_get":           clockResGet,
	"clock_time_get":          clockTimeGet,
	"environ_get":             environGet,
	"environ_sizes_get":       environSizesGet,
	"fd_advise":               on((*Process).seekable, fdAdvise),
	"fd_allocate":             on((*Process).writable, fdAllocate),
	"fd_close":                on((*Process).file, fdClose),
	"fd_datasync":             on((*Process).file, fdDatasync),
	"fd_fdstat_get":           on((*Process).file, fdFdstatGet),
	"fd_fdstat_set_flags":     on((*Process).file, fdFdstatSetFlags),
	"fd_fdstat_set_rights":    on((*Process).file, fdFdstatSetRights),
	"fd_filestat_get":         on((*Process).file, fdFilestatGet),
	"fd_filestat_set_size":    on((*Process).writable, fdFilestatSetSize),
	"fd_filestat_set_times":   on((*Process).file, fdFilestatSetTimes),
	"fd_pread":                on((*Process).readable, fdPread),
	"fd_prestat_dir_name":     on((*Process).preopened, fdPrestatDirName),
	"fd_prestat_get":          on((*Process).preopened, fdPrestatGet),
	"fd_pwrite":               on((*Process).writable, fdPwrite),
	"fd_read":                 readFd,
	"fd_readdir":              on((*Process).dir, fdReaddir),
	"fd_renumber":             fdRenumber,
	"fd_seek":                 on((*Process).seekable, fdSeek),
	"fd_sync":                 on((*Process).file, fdSync),
	"fd_tell":                 on((*Process).seekable, fdTell),
	"fd_write":                writeFd,
	"path_create_directory":   pathCreateDirectory,
	"path_filestat_get":       pathFilestatGet,
	"path_filestat_set_times": pathFilestatSetTimes,
	"path_link":               pathLink,
	"path_open":               pathOpen,
	"path_readlink":           pathReadlink,
	"path_remove_directory":   pathRemoveDirectory,
	"path_rename":             pathRename,
	"path_symlink":            pathSymlink,
	"path_unlink_file":        pathUnlinkFile,
	"poll_oneoff":             pollOneoff,
	"proc_exit":               procExit,
	"proc_raise":              procRaise,
	"random_get":              randomGet,
	"sched_yield":             schedYield,
	"sock_accept":             sockAccept,
	"sock_recv":               sockRecv,
	"sock_send":               sockSend,
	"sock_shutdown":           sockShutdown,
}

var (
	readFd  = on((*Process).readable, fdRead)
	writeFd = on((*Process).writable, fdWrite)
)

// on is the Call of a function that gets the open file of its first parameter, as find returns it.
func on(find func(p *Process, fd uint64) (*file, Errno),
	call func(p *Process, f *file, mem []byte, a []uint64) Errno) Call {
	return func(p *Process, mem []byte, a []uint64) Errno {
		f, e := find(p, a[0])
		if e != success {
			return e
		}
		return call(p, f, mem, a)
	}
}

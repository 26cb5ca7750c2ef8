package preview1

// Call is one function of preview 1. mem is all of linear memory; a holds the
// parameters as the engine has them, each in 64 bits.
type Call func(p *Process, mem []byte, a []uint64) Errno

// Lookup returns the function of that name, or nil.
func Lookup(name string) Call {
	switch name {
	case "args_get":
		return argsGet
	case "args_sizes_get":
		return argsSizesGet
	case "clock_res_get":
		return clockResGet
	case "clock_time_get":
		return clockTimeGet
	case "environ_get":
		return environGet
	case "environ_sizes_get":
		return environSizesGet
	case "poll_oneoff":
		return pollOneoff
	case "proc_exit":
		return procExit
	case "proc_raise":
		return procRaise
	case "random_get":
		return randomGet
	case "sched_yield":
		return schedYield
	case "sock_accept":
		return sockAccept
	case "sock_recv":
		return sockRecv
	case "sock_send":
		return sockSend
	case "sock_shutdown":
		return sockShutdown
	}
	if c := lookupFd(name); c != nil {
		return c
	}
	return lookupPath(name)
}

func lookupFd(name string) Call {
	switch name {
	case "fd_advise":
		return fdAdvise
	case "fd_allocate":
		return fdAllocate
	case "fd_close":
		return fdClose
	case "fd_datasync":
		return fdDatasync
	case "fd_fdstat_get":
		return fdFdstatGet
	case "fd_fdstat_set_flags":
		return fdFdstatSetFlags
	case "fd_fdstat_set_rights":
		return fdFdstatSetRights
	case "fd_filestat_get":
		return fdFilestatGet
	case "fd_filestat_set_size":
		return fdFilestatSetSize
	case "fd_filestat_set_times":
		return fdFilestatSetTimes
	case "fd_pread":
		return fdPread
	case "fd_prestat_dir_name":
		return fdPrestatDirName
	case "fd_prestat_get":
		return fdPrestatGet
	case "fd_pwrite":
		return fdPwrite
	case "fd_read":
		return fdRead
	case "fd_readdir":
		return fdReaddir
	case "fd_renumber":
		return fdRenumber
	case "fd_seek":
		return fdSeek
	case "fd_sync":
		return fdSync
	case "fd_tell":
		return fdTell
	case "fd_write":
		return fdWrite
	}
	return nil
}

func lookupPath(name string) Call {
	switch name {
	case "path_create_directory":
		return pathCreateDirectory
	case "path_filestat_get":
		return pathFilestatGet
	case "path_filestat_set_times":
		return pathFilestatSetTimes
	case "path_link":
		return pathLink
	case "path_open":
		return pathOpen
	case "path_readlink":
		return pathReadlink
	case "path_remove_directory":
		return pathRemoveDirectory
	case "path_rename":
		return pathRename
	case "path_symlink":
		return pathSymlink
	case "path_unlink_file":
		return pathUnlinkFile
	}
	return nil
}

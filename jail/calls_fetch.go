package jail

// fetchCalls are what a jail needs for its streams to the fetch proxy, beyond reading and writing.
var fetchCalls = []call{
	{"recvmsg", "the door hands out a stream", nil},
	{"shutdown", "sock_shutdown", nil},
}

// Families and options of sockets (socket(2), ip(7)).
const (
	afUnix  = 1
	afInet  = 2
	afInet6 = 10
	tcp     = 6
)

// networkCalls are what the fetch proxy needs, which is in no jail: to connect, never to listen, and no file.
var networkCalls = []call{
	{"socket", "connections to hosts and name servers", oneOf(0, afInet, afInet6)},
	{"socketpair", "a stream of a jail", oneOf(0, afUnix)},
	{"connect", "connections", nil}, {"getsockname", "connections", nil}, {"getpeername", "connections", nil},
	{"setsockopt", "connections", nil}, {"getsockopt", "connections", nil}, {"shutdown", "half of a stream", nil},
	{"recvfrom", "whether an idle connection has ended", nil}, {"sendto", "name servers", nil},
	{"recvmsg", "orders of the daemon, the door", nil}, {"sendmsg", "a stream is handed to a jail", nil},
	{"readv", "streams", nil}, {"writev", "streams", nil}, {"splice", "a tunnel's streams", nil}, {"pipe2", "a tunnel's streams", nil},
	{"fstat", "descriptors", nil}, {"dup", "descriptors", nil},
	{"epoll_create1", "poller", nil}, {"eventfd2", "poller", nil},
}

// NetworkGroups are those of the fetch proxy's filter.
var NetworkGroups = []string{"runtime", "network"}

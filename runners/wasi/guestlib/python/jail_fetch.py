"""urllib and http.client inside a jail.

Importing this module, as sitecustomize does at Python's start, sends what urllib.request and http.client ask for through the jail's fetch proxy:

    import urllib.request
    urllib.request.urlopen("https://example.com/").read()

There is no TLS inside: the proxy speaks it, so https:// URLs are asked for as they are, also by a Python without the module ssl. What the policy does
not allow is answered by the proxy: an HTTPError with status 403, whose body says as JSON why, and what to do. Where there is no proxy, importing does
nothing, and connecting says so.
"""

import errno
import http.client
import os
import socket
import urllib.request
import weakref

VARIABLE = "JAIL_FETCH_FD"


class Stream(socket.socket):
    """A stream to the proxy."""

    # Some builds of CPython (wasi-vfs) take one of two open streams for a file of their own, and know none: it can be read and written, and no more, and
    # none is waited for rightly. So only a stream that is open alone has a timeout; the others have what the policy says.
    _all = weakref.WeakSet()

    def limit(self, timeout):
        """Set how long reading and writing may take, in seconds, if this is the only stream."""
        others = [s for s in Stream._all if s is not self and s.fileno() >= 0]
        for s in others:
            s.settimeout(None)
        if timeout is not None and not others:
            self.settimeout(timeout)
        Stream._all.add(self)

    def settimeout(self, value):
        try:
            super().settimeout(value)
        except OSError as e:
            if e.errno != errno.EBADF or value is not None:
                raise  # None is what it then has, whatever the error says

    def _real_close(self):
        try:
            super()._real_close()
        except OSError as e:
            if e.errno != errno.EBADF:  # as above
                raise


def dial():
    """Return a stream to the fetch proxy, which is spoken to as any HTTP proxy."""
    fd = os.environ.get(VARIABLE)
    if fd is None:
        raise OSError("the policy of this jail grants no fetch: run with --profile fetch --fetch HOST")
    default = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)  # it would be tried on the listener too, which knows none and answers at once
    try:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(fd))
        try:
            stream, _ = listener._accept()  # accept() asks for the name of the peer, which WASI does not have
        finally:
            listener.detach()  # the number stays open for the next one
        return Stream(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=stream)
    finally:
        socket.setdefaulttimeout(default)


class HTTPConnection(http.client.HTTPConnection):
    """A connection whose requests name the whole URL, as a proxy wants."""

    _scheme = "http"

    def connect(self):
        self.sock = dial()
        # As socket.create_connection does.
        default = self.timeout is socket._GLOBAL_DEFAULT_TIMEOUT
        timeout = socket.getdefaulttimeout() if default else self.timeout
        self.sock.limit(timeout)

    def set_tunnel(self, *args, **kwargs):
        raise OSError("there are no tunnels out of a jail: ask for the URL itself")

    def putrequest(self, method, url, *args, **kwargs):
        if url.startswith("/") or not url:
            port = "" if self.port == self.default_port else ":%d" % self.port
            url = "%s://%s%s%s" % (self._scheme, self.host, port, url or "/")
        super().putrequest(method, url, *args, **kwargs)


class HTTPSConnection(HTTPConnection):
    """The same for https:// URLs. Settings of TLS are taken and mean nothing: the proxy checks certificates."""

    _scheme = "https"
    default_port = http.client.HTTPS_PORT

    def __init__(self, host, port=None, *args, context=None, key_file=None, cert_file=None, check_hostname=None, **kwargs):
        super().__init__(host, port, *args, **kwargs)


class Handler(urllib.request.AbstractHTTPHandler):
    """Opens http:// and https:// URLs for urllib."""

    handler_order = 100  # before those of urllib itself

    def http_open(self, req):
        return self.do_open(HTTPConnection, req)

    def https_open(self, req):
        return self.do_open(HTTPSConnection, req)

    http_request = urllib.request.AbstractHTTPHandler.do_request_
    https_request = urllib.request.AbstractHTTPHandler.do_request_


def install():
    """Set the opener of urllib.request, and the connections of http.client."""
    urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({}), Handler()))
    http.client.HTTPConnection = HTTPConnection
    http.client.HTTPSConnection = HTTPSConnection


if VARIABLE in os.environ:
    install()

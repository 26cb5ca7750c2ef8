"""Tests jail_fetch with the Python at hand: a listener of the test's own stands for the jail's, and a thread for the fetch proxy."""

import os
import socket
import sys
import tempfile
import threading

folder = tempfile.mkdtemp()
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.join(folder, "door"))
listener.listen(8)
os.environ["JAIL_FETCH_FD"] = str(listener.fileno())
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sitecustomize  # noqa: E402,F401

if "jail_fetch" not in sys.modules:  # another sitecustomize came first
    import jail_fetch  # noqa: F401

import http.client  # noqa: E402
import urllib.error  # noqa: E402
import urllib.request  # noqa: E402

seen = []


def proxy(answers):
    for answer in answers:
        s = socket.socket(socket.AF_UNIX)
        s.connect(os.path.join(folder, "door"))
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(4096)
        length = [line for line in head.decode().lower().split("\r\n") if line.startswith("content-length:")]
        left = int(length[0].split(":")[1]) - len(head.split(b"\r\n\r\n", 1)[1]) if length else 0
        while left > 0:
            left -= len(s.recv(left))
        seen.append(head.decode())
        s.sendall(answer)
        s.close()


def ok(text):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(text), text)


moved = b"HTTP/1.1 302 Found\r\nLocation: https://c.example/z\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
no = b"HTTP/1.1 403 Forbidden\r\nX-Jail-Fetch: fetch_denied\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
thread = threading.Thread(target=proxy, args=([ok(b"one"), moved, ok(b"two"), no, ok(b"three"), ok(b"four")],))
thread.start()

assert urllib.request.urlopen("https://a.example/x?y").read() == b"one"
assert urllib.request.urlopen("http://b.example:8080/").read() == b"two"  # by way of the redirect
try:
    urllib.request.urlopen("https://d.example/")
    raise AssertionError("a refusal is no answer")
except urllib.error.HTTPError as e:
    assert e.code == 403 and e.headers["X-Jail-Fetch"] == "fetch_denied" and e.read() == b"{}"
c = http.client.HTTPSConnection("e.example")
c.request("GET", "/p")
assert c.getresponse().read() == b"three"
assert urllib.request.urlopen(urllib.request.Request("https://f.example/", data=b"x=1")).read() == b"four"
thread.join()

lines = [(s.split("\r\n")[0], [h for h in s.split("\r\n") if h.lower().startswith("host:")]) for s in seen]
assert lines == [
    ("GET https://a.example/x?y HTTP/1.1", ["Host: a.example"]),
    ("GET http://b.example:8080/ HTTP/1.1", ["Host: b.example:8080"]),
    ("GET https://c.example/z HTTP/1.1", ["Host: c.example"]),
    ("GET https://d.example/ HTTP/1.1", ["Host: d.example"]),
    ("GET https://e.example/p HTTP/1.1", ["Host: e.example"]),
    ("POST https://f.example/ HTTP/1.1", ["Host: f.example"]),
], lines

def silent(done):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.path.join(folder, "door"))
    done.wait(60)
    s.close()


# A timeout is one, whether it was given or is everybody's.
for given, everybody in (0.1, None), (socket._GLOBAL_DEFAULT_TIMEOUT, 0.1):
    socket.setdefaulttimeout(everybody)
    done = threading.Event()
    thread = threading.Thread(target=silent, args=(done,))
    thread.start()
    c = http.client.HTTPSConnection("g.example", timeout=given)
    c.request("GET", "/")
    try:
        c.getresponse()
        raise AssertionError("there is no answer")
    except TimeoutError:
        pass
    c.close()
    done.set()
    thread.join()
print("ok")

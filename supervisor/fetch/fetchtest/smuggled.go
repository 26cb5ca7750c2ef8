package fetchtest

// Valid beginnings of requests.
const (
	firstLines = "GET http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n"
	postLines  = "POST http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n"
)

// Smuggled has requests, by name, that two servers could read as different requests or as several
// (T-237, T-239, T-245, T-246). Apart from the trick each is a valid request to up.example.com.
var Smuggled = map[string]string{
	"CL and TE": postLines +
		"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
	"TE and CL": postLines +
		"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n",
	"two lengths":              postLines + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	"the same length twice":    postLines + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
	"a list of lengths":        postLines + "Content-Length: 1, 1\r\n\r\na",
	"a signed length":          postLines + "Content-Length: +1\r\n\r\na",
	"a negative length":        postLines + "Content-Length: -1\r\n\r\na",
	"a hexadecimal length":     postLines + "Content-Length: 0x1\r\n\r\na",
	"an empty length":          postLines + "Content-Length:\r\n\r\na",
	"a length with a space":    postLines + "Content-Length: 1 1\r\n\r\na",
	"an endless length":        postLines + "Content-Length: 99999999999999999999\r\n\r\na",
	"a space before the colon": postLines + "Content-Length : 1\r\n\r\na",
	"a tab before the colon":   postLines + "Content-Length\t: 1\r\n\r\na",
	"an underscore length":     postLines + "Content_Length: 1\r\n\r\na",
	"an underscore coding":     postLines + "Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
	"an underscore host": "GET http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n" +
		"HO_ST: x\r\nhost_: y\r\nHost: z\r\n\r\n",
	"two codings": postLines +
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	"chunked twice": postLines +
		"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
	"xchunked":                     postLines + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"gzip, chunked":                postLines + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"identity":                     postLines + "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	"a quoted coding":              postLines + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"a vertical tab in the coding": postLines + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"a NUL after the coding":       postLines + "Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n",
	"an empty coding":              postLines + "Transfer-Encoding:\r\n\r\n0\r\n\r\n",
	"a folded coding":              postLines + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
	"a folded header":              firstLines + "X-A: 1\r\n 2\r\n\r\n",
	"a first line that is folded": "GET http://up.example.com/ok HTTP/1.1\r\n" +
		" Host: up.example.com\r\n\r\n",
	"bare LF after the first line": "GET http://up.example.com/ok HTTP/1.1\n" +
		"Host: up.example.com\r\n\r\n",
	"bare LF after a header":      firstLines + "X-A: 1\nX-B: 2\r\n\r\n",
	"bare LF at the end":          firstLines + "\n",
	"bare CR in a value":          firstLines + "X-A: 1\rX-B: 2\r\n\r\n",
	"a NUL in a value":            firstLines + "X-A: 1\x002\r\n\r\n",
	"an escape in a value":        firstLines + "X-A: \x1b[2J\r\n\r\n",
	"bytes of no text in a value": firstLines + "X-A: \xff\xfe\r\n\r\n",
	"a NUL in a name":             firstLines + "X\x00A: 1\r\n\r\n",
	"a space in a name":           firstLines + "X A: 1\r\n\r\n",
	"no name":                     firstLines + ": 1\r\n\r\n",
	"no colon":                    firstLines + "Nonsense\r\n\r\n",
	"HTTP/1.0 with chunks": "POST http://up.example.com/ok HTTP/1.0\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.2": "GET http://up.example.com/ok HTTP/1.2\r\nHost: up.example.com\r\n" +
		"\r\n",
	"HTTP/2.0": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"HTTP/0.9": "GET http://up.example.com/ok\r\n\r\n",
	"http in lower case": "GET http://up.example.com/ok http/1.1\r\nHost: up.example.com\r\n" +
		"\r\n",
	"four words": "GET http://up.example.com/ok x HTTP/1.1\r\n" +
		"Host: up.example.com\r\n\r\n",
	"two spaces": "GET  http://up.example.com/ok HTTP/1.1\r\n" +
		"Host: up.example.com\r\n\r\n",
	"a tab in the first line": "GET\thttp://up.example.com/ok\tHTTP/1.1\r\n" +
		"Host: up.example.com\r\n\r\n",
	"an empty line first": "\r\n" + firstLines + "\r\n",
	"get": "get http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n" +
		"\r\n",
	"G@T": "G@T http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n" +
		"\r\n",
	"TRACE": "TRACE http://up.example.com/ok HTTP/1.1\r\n" +
		"Host: up.example.com\r\n\r\n",
	"two hosts": firstLines + "Host: evil.example.com\r\n\r\n",
	"another host": "GET http://up.example.com/ok HTTP/1.1\r\n" +
		"Host: evil.example.com\r\n\r\n",
	"another port of the host": "GET http://up.example.com/ok HTTP/1.1\r\n" +
		"Host: up.example.com:8080\r\n\r\n",
	"a host with a path": "GET http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com/x\r\n" +
		"\r\n",
	"a host with a user": "GET http://up.example.com/ok HTTP/1.1\r\nHost: a@up.example.com\r\n" +
		"\r\n",
	"no host":               "GET http://up.example.com/ok HTTP/1.1\r\n\r\n",
	"an origin-form target": "GET /ok HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
	"an asterisk":           "OPTIONS * HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
	"a chunk extension": postLines +
		"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\na\r\n0\r\n\r\n",
	"a chunk size with a sign": postLines +
		"Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
	"a chunk size with a space": postLines +
		"Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
	"a chunk size of 0x1": postLines +
		"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
	"a chunk size that overflows": postLines +
		"Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n",
	"a chunk line with bare LF": postLines +
		"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
	"a chunk that ends wrong": postLines +
		"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
	"a trailer": postLines +
		"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n",
	"an announced trailer": postLines +
		"Trailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"an unfinished chunk": postLines + "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
	"an unfinished body":  postLines + "Content-Length: 10\r\n\r\nab",
	"a body on GET":       firstLines + "Content-Length: 5\r\n\r\nGET /",
	"chunks on GET":       firstLines + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"h2c": firstLines +
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
	"an unknown upgrade": firstLines + "Connection: Upgrade\r\nUpgrade: foo\r\n\r\n",
	"websocket without a grant": firstLines +
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n" +
		"Sec-WebSocket-Version: 13\r\n\r\n",
	"an odd Expect":          postLines + "Expect: 200-ok\r\nContent-Length: 1\r\n\r\na",
	"CONNECT without a port": "CONNECT up.example.com HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
	"CONNECT to a path":      "CONNECT /x HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
	"CONNECT with a body": "CONNECT up.example.com:443 HTTP/1.1\r\n" +
		"Host: up.example.com:443\r\nContent-Length: 4\r\n\r\nGET ",
	"CONNECT without a grant": "CONNECT up.example.com:443 HTTP/1.1\r\n" +
		"Host: up.example.com:443\r\n\r\n" + firstLines + "\r\n",
}

package fetchtest

import "strings"

// FloorEdges has the first and last address of each forbidden range, and its public neighbours
// (T-201, T-202).
var FloorEdges = []struct{ First, Last, Below, Above string }{
	{"0.0.0.0", "0.255.255.255", "", "1.0.0.0"},
	{"10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"},
	{"100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"},
	{"127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"},
	{"169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"},
	{"172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"},
	{"192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"},
	{"192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"},
	{"192.31.196.0", "192.31.196.255", "192.31.195.255", "192.31.197.0"},
	{"192.52.193.0", "192.52.193.255", "192.52.192.255", "192.52.194.0"},
	{"192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"},
	{"192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"},
	{"192.175.48.0", "192.175.48.255", "192.175.47.255", "192.175.49.0"},
	{"198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"},
	{"198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"},
	{"203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"},
	{"224.0.0.0", "239.255.255.255", "223.255.255.255", ""},
	{"240.0.0.0", "255.255.255.255", "", ""},
	{"::", "::", "", ""},
	{"::1", "::1", "", ""},
	{"::2", "::ffff:ffff", "", ""},
	{"::ffff:0:0:0", "::ffff:0:ffff:ffff", "", ""},
	{"64:ff9b::", "64:ff9b::ffff:ffff", "", ""},
	{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"100::", "100::ffff:ffff:ffff:ffff", "", ""},
	{"2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "", "2001:200::"},
	{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff::", "2001:db9::"},
	{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff:ffff:ffff::", "2003::"},
	{"2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", "2620:4f:7fff:ffff::",
		"2620:4f:8001::"},
	{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffe:ffff:ffff:ffff::", "3fff:1000::"},
	{"4000::", "4000::1", "", ""},
	{"5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	{"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
}

// Floor returns addresses that must not be reached: the ends of all ranges, addresses that other
// programs have mistaken for public, and this host's own.
func Floor() []string {
	var addrs []string
	for _, e := range FloorEdges {
		addrs = append(addrs, e.First, e.Last)
	}
	return append(addrs, "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16",
		"192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254",
		"::ffff:168.63.129.16", "0.1.2.3", "240.0.0.1", "192.0.0.170", "198.18.0.1", "100.64.0.1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1", "2002:7f00:1::",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2", "fec0::1", "2001:db8::1", "100::1", "3fff::1",
		"5f00::1",
		"2607:f8b0::5efe:7f00:1", "2607:f8b0::200:5efe:808:808", "4000::1", "1::1", "8000::1",
		"e000::1", "fe80::1", "ff02::1", "fc00::1", "fdff::1", "127.0.0.2", "127.1.1.1",
		"10.255.0.1", "172.20.0.1", "192.168.1.1", "224.0.0.251", "255.255.255.254", "198.51.100.7",
		"203.0.113.7", "192.0.2.7", "::ffff:192.168.0.1", "::ffff:0.0.0.0", Own)
}

// DenyPaths are path patterns of deny rules. DeniedForms are URLs that servers read as one of these
// paths (T-228).
var (
	DenyPaths   = []string{"/@private/**", "/c%2B%2B/**", "/!$&'(),=:/**", "/%C3%A4/**"}
	DeniedForms = strings.Split(`http://a.example/@private/x
http://a.example/%40private/x
http://a.example/%40%70riv%61te/x
http://a.example/@private/%78
http://a.example/c++/x
http://a.example/c%2B%2B/x
http://a.example/c%2b+/x
http://a.example/!$&'(),=:/x
http://a.example/%21%24%26%27%28%29%2C%3D%3A/x
http://a.example/%21$%26'%28)%2c=%3a/x
http://a.example/%C3%A4/x
http://a.example/%c3%a4/x`, "\n")
)

// BadTargets are request targets that are refused before anything is decided, resolved or dialled
// (T-206, T-214, T-220 to T-225, T-228).
var BadTargets = strings.Split(`/relative
*
host
http:host
http:/host/
http:///path
https://
http://:80/
ftp://a.example/
file:///etc/passwd
gopher://a.example/
unix:///run/x
HTTPX://a.example/
http://2130706433/
http://0x7f000001/
http://0x7f.1/
http://017700000001/
http://0177.0.0.1/
http://127.1/
http://0/
http://127.0.0.1/
http://127.0.0.1./
http://127.0.0.1:80/
http://1.2.3.4.5/
http://a.1/
http://a.0x1/
http://[::1]/
http://[::1]:80/
http://[::ffff:127.0.0.1]/
http://[fe80::1%25lo]/
http://[fe80::1%lo]/
http://[a.example]/
http://[a.example]:80/
http://[]/
http://[::1/
http://::1/
http://[::1]x/
http://[::1]:/
http://a.example]/
http://a..example/
http://.a.example/
http://a.example../
http://./
http://../
http://-a.example/
http://a-.example/
http://a_b.example/
http://a.example%00/
http://a.example%00.b.example/
http://a.example%2eb.example/
http://%61.example/
http://a%2eexample/
http://a.example%09/
http://a.example%0d%0ax/
http://a!b.example/
http://a*b.example/
http://*.example.com/
http://a,b/
http://a$b/
http://a"b/
http://a~b/
http://user@a.example/
http://user:pass@a.example/
http://a.example:80@evil.example/
http://a.example@evil.example:80/
http://a.example#@evil.example/
http://a.example\@evil.example/
http://a.example\evil.example/
http://evil.example#a.example
http://a.example;@evil.example/
http://a.example:/
http://a.example:0/
http://a.example:65536/
http://a.example:99999/
http://a.example:080/
http://a.example:+80/
http://a.example:-1/
http://a.example:8a/
http://a.example:http/
http://a.example:80:80/
http://a.example:0x50/
http://a.example:443x/
http://a.example: 80/
http://a.example/#frag
http://a.example/a#b
http://a.example/a/../b
http://a.example/..
http://a.example/.
http://a.example/a/.
http://a.example/a/..
http://a.example/a/./b
http://a.example//
http://a.example//a
http://a.example/a//b
http://a.example/a///b
http://a.example/a/%2e%2e/b
http://a.example/a/%2E%2e/b
http://a.example/a/.%2e/b
http://a.example/a/%2e/b
http://a.example/%2f
http://a.example/a%2fb
http://a.example/a%2Fb
http://a.example/a%5cb
http://a.example/a%5Cb
http://a.example/a\b
http://a.example/\a
http://a.example/a;b
http://a.example/..;/b
http://a.example/a/..;/b
http://a.example/a;jsessionid=1
http://a.example/a%3bb
http://a.example/a%3Bb
http://a.example/%00
http://a.example/a%00b
http://a.example/a%0d%0ab
http://a.example/a%0ab
http://a.example/a%7f
http://a.example/a%1f
http://a.example/%252e%252e/
http://a.example/%252f
http://a.example/%25
http://a.example/%2525
http://a.example/a%3fb
http://a.example/a%23b
http://a.example/%
http://a.example/%2
http://a.example/%zz
http://a.example/%+1
http://a.example/%-1
http://a.example/%c0%ae
http://a.example/%c0%af
http://a.example/%ff
http://a.example/%e0%80%af
http://a.example/%ed%a0%80
http://a.example/%f4%90%80%80
http://a.example/a"b
http://a.example/a<b
http://a.example/a>b
http://a.example/a^b
http://a.example/a|b
http://a.example/a{b}
http://a.example/a[b]
http://a.example/a`+"`"+`b
http://a.example/?a b
http://a.example/?a#b
http://a.example/?a"b
http://a.example/?a<b
http://a.example/?a\b
http://127。0。0。1/
http://127.0.0.1/
http://ⓔⓧⓐⓜⓟⓛⓔ.com/
http://℀.example/
http://exämple.com/
http://a.example/ä
http://a.example/?ä
http://😀.example/`, "\n")

package main

// A program is a row of the table: everyday work of a program of the host, which must come out the
// same in a jail.
type program struct {
	name string
	// What it needs, with spaces between: programs, or paths of files.
	needs string
	// The packages of Debian that have it.
	packages string
	// What is in the workspace before.
	files map[string]string
	// script is run by sh -e in the workspace.
	script string
	// Patterns of files whose content is never twice the same, for times or random numbers in them.
	varies string
	// hides is a regular expression of what is never twice the same in what it prints.
	hides string
	// differs says why it is otherwise in a jail. docs/native.md has the same.
	differs string
	// gvisor says why it is otherwise inside gVisor. docs/outer.md has the same.
	gvisor string
	// quick rows are the test, too: every Debian system has these programs, and they use no port.
	quick bool
}

// Why some programs are otherwise in a jail, as docs/native.md says.
const (
	tracing = "nothing may be traced"
	diag    = "the kernel's protocol for socket diagnosis is refused"
	machine = "processes are not pinned to processors or ranked"
)

const helloC = "#include <stdio.h>\n#include <pthread.h>\n" +
	"static void *f(void *p) { puts(\"thread\"); return p; }\n" +
	"int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0);\n" +
	"puts(\"hello\"); return 3; }\n"

const words = "pear 3\napple 1\nplum 2\napple 5\n"

// programs is the table.
var programs = []program{
	// Compilers and what goes with them.
	{name: "gcc", quick: true, needs: "gcc", packages: "gcc libc6-dev",
		files:  map[string]string{"hello.c": helloC},
		script: "gcc -g -O1 -pthread -o hello hello.c; ./hello || echo $?"},
	{name: "g++", needs: "g++", packages: "g++",
		files: map[string]string{"a.cc": "#include <iostream>\n#include <stdexcept>\n#include <thread>\n" +
			"int main() { std::thread([] { std::cout << \"thread\\n\"; }).join();\n" +
			"try { throw std::runtime_error(\"thrown\"); } catch (std::exception &e) { std::cout << e.what() << '\\n'; } }\n"},
		script: "g++ -std=c++17 -pthread -o a a.cc; ./a"},
	{name: "gcc-sanitizers", needs: "gcc", packages: "gcc libc6-dev",
		files:  map[string]string{"a.c": "#include <stdlib.h>\nint main(int n, char **v) { volatile char *p = malloc(4); return n > 1 ? p[4] : 0; }\n"},
		script: "gcc -g -fsanitize=address,undefined -o a a.c; ASAN_OPTIONS=detect_leaks=0 ./a; ! ./a x 2>err; grep -o heap-buffer-overflow err | head -1",
		varies: "err"},
	{name: "leak-sanitizer", differs: tracing, needs: "gcc", packages: "gcc libc6-dev",
		files:  map[string]string{"a.c": "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 9; i++) { volatile char *p = malloc(4); p[0] = 1; p = 0; } return 0; }\n"},
		script: "gcc -g -fsanitize=leak -o a a.c; ./a 2>err || echo $?; grep -c 'detected memory leaks' err",
		varies: "err"},
	{name: "clang", needs: "clang", packages: "clang libc6-dev",
		files:  map[string]string{"hello.c": helloC},
		script: "clang -O1 -pthread -o hello hello.c; ./hello || echo $?"},
	{name: "tcc", needs: "tcc", packages: "tcc libc6-dev",
		files:  map[string]string{"a.c": "#include <stdio.h>\nint main(void) { puts(\"run\"); }\n"},
		script: "tcc -run a.c"},
	{name: "gfortran", needs: "gfortran", packages: "gfortran",
		files:  map[string]string{"a.f90": "program a\n  print *, sum([(i, i = 1, 10)])\nend program\n"},
		script: "gfortran -o a a.f90; ./a"},
	{name: "nasm", needs: "nasm ld", packages: "nasm binutils",
		files:  map[string]string{"a.asm": "global _start\nsection .text\n_start: mov eax, 60\nmov edi, 7\nsyscall\n"},
		script: "nasm -f elf64 a.asm; ld -o a a.o; ./a || echo $?"},
	{name: "binutils", needs: "gcc ar nm objdump strip readelf", packages: "gcc libc6-dev binutils",
		files:  map[string]string{"a.c": "int f(void) { return 1; }\n"},
		script: "gcc -c a.c; ar rcD a.a a.o; nm a.a; objdump -d a.o | tail -3; strip -o b.o a.o; readelf -h b.o | grep Class"},
	{name: "go", needs: "go", packages: "golang-go",
		files: map[string]string{"go.mod": "module example.com/x\n\ngo 1.19\n",
			"x.go":      "package main\n\nimport (\n\t\"fmt\"\n\t\"net\"\n)\n\nfunc main() {\n\tall, err := net.Interfaces()\n\tfmt.Println(len(all) > 0, err)\n}\n",
			"x_test.go": "package main\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { t.Log(t.TempDir() != \"\") }\n"},
		script: "export CGO_ENABLED=0; go build -trimpath -buildvcs=false -o x .; ./x; go test -vet=off -v ./... | grep -o '^--- PASS: TestX'"},
	{name: "gofmt", needs: "gofmt", packages: "golang-go",
		files:  map[string]string{"x.go": "package x\nfunc  f( ) { }\n"},
		script: "gofmt -l .; gofmt -w x.go; cat x.go"},
	{name: "rustc", needs: "/usr/bin/rustc gcc", packages: "rustc",
		files:  map[string]string{"a.rs": "fn main() { let t = std::thread::spawn(|| 6 * 7); println!(\"{}\", t.join().unwrap()); }\n"},
		script: "rustc a.rs; ./a", varies: "a"},
	{name: "cargo", needs: "/usr/bin/cargo /usr/bin/rustc gcc", packages: "cargo rustc",
		files: map[string]string{"Cargo.toml": "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nb = { path = \"b\" }\n",
			"src/main.rs":  "fn main() { println!(\"{}\", b::f()); }\n#[test]\nfn t() { assert_eq!(b::f(), 1); }\n",
			"b/Cargo.toml": "[package]\nname = \"b\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
			"b/src/lib.rs": "pub fn f() -> i32 { 1 }\n"},
		script: "cargo run --offline -q; cargo test --offline -q", varies: "incremental target",
		hides: `finished in [0-9.]+s`},
	{name: "java", needs: "javac java", packages: "default-jdk-headless",
		files: map[string]string{"A.java": "import java.nio.file.*;\npublic class A { public static void main(String[] a) throws Exception {\n" +
			"Thread t = new Thread(() -> System.out.println(\"thread\")); t.start(); t.join();\n" +
			"Files.writeString(Path.of(\"out\"), \"x\"); System.out.println(System.getProperty(\"user.dir\").endsWith(\"work\"));\n" +
			"System.out.println(java.time.ZoneId.systemDefault());\n" +
			"System.out.println(javax.net.ssl.SSLContext.getDefault().getProtocol()); } }\n"},
		script: "javac A.java; java -cp . A; jar cf a.jar A.class; jar tf a.jar", varies: "a.jar"},
	{name: "ant", needs: "ant javac", packages: "ant default-jdk-headless",
		files:  map[string]string{"build.xml": "<project default=\"a\"><target name=\"a\"><mkdir dir=\"out\"/><echo message=\"built\"/></target></project>\n"},
		script: "ant -q", hides: `Total time: [0-9]+ \w+`},
	{name: "ocaml", needs: "ocamlopt", packages: "ocaml-nox",
		files:  map[string]string{"a.ml": "let () = print_endline (String.concat \",\" [\"a\"; \"b\"])\n"},
		script: "ocamlopt -o a a.ml; ./a", varies: "a"},
	{name: "valgrind", needs: "valgrind gcc", packages: "valgrind gcc libc6-dev libc6-dbg",
		files:  map[string]string{"a.c": "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(4); return p[4] & 0; }\n"},
		script: "gcc -g -o a a.c; valgrind -q --error-exitcode=9 ./a 2>err || echo $?; grep -c 'Invalid read' err",
		varies: "err"},
	{name: "ccache", needs: "ccache gcc", packages: "ccache gcc libc6-dev",
		files:  map[string]string{"a.c": "int main(void) { return 0; }\n"},
		script: "for i in 1 2; do ccache gcc -c a.c; done; ccache -s | grep -m1 Hits"},
	{name: "bison-flex", needs: "bison flex gcc", packages: "bison flex gcc libc6-dev",
		files: map[string]string{"a.l": "%option noyywrap\n%%\n[0-9]+ { printf(\"n\"); }\n%%\nint main(void) { return yylex(); }\n",
			"b.y": "%{\nint yylex(void); void yyerror(const char *s);\n%}\n%%\na: 'x';\n"},
		script: "flex a.l; gcc -o a lex.yy.c; echo 12 a 3 | ./a; bison b.y; ls"},

	// Interpreters and shells.
	{name: "python3", quick: true, needs: "/usr/bin/python3", packages: "python3",
		files: map[string]string{"a.py": `import asyncio, hashlib, locale, multiprocessing, os, pwd, socket, sqlite3, ssl, subprocess, sys, tempfile, threading, time
print(sys.version_info[0], sys.executable, os.getcwd().endswith("work"))
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout)
with multiprocessing.Pool(2) as p: print(p.map(abs, [-1, 2]))
print(asyncio.run(asyncio.sleep(0, "slept")), hashlib.sha256(b"x").hexdigest())
print(sqlite3.connect(":memory:").execute("select 1+1").fetchone())
print(ssl.create_default_context().cert_store_stats()["x509_ca"] > 0)
print(time.strftime("%Z %z", time.gmtime(0)), time.localtime(0).tm_hour, locale.setlocale(locale.LC_ALL, ""))
print(socket.gethostbyname("localhost"), socket.getservbyname("https"), pwd.getpwuid(os.getuid()).pw_uid == os.getuid())
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1), tempfile.gettempdir())
q = multiprocessing.Queue(); q.put(1); print(q.get(), multiprocessing.Lock())
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=10); print(m.size); m.close(); m.unlink()
`}, script: "python3 -B a.py"},
	{name: "python-pty", quick: true, needs: "/usr/bin/python3", packages: "python3",
		script: `python3 -c 'import pty; print(pty.spawn(["sh", "-c", "tty | sed s/[0-9]/N/; stty size; exit 3"]))'`},
	{name: "python-venv", needs: "/usr/bin/python3 /usr/lib/python3/dist-packages/pip", packages: "python3-venv",
		files:  map[string]string{"p/setup.py": "from setuptools import setup\nsetup(name='p', version='1', py_modules=['p'], entry_points={'console_scripts': ['p=p:main']})\n", "p/p.py": "def main(): print('installed')\n"},
		script: "python3 -m venv --system-site-packages v; v/bin/python -c 'import sys; print(sys.prefix)'; v/bin/pip install -q --no-build-isolation ./p && v/bin/p",
		varies: "v build *.egg-info __pycache__"},
	{name: "pip-cache", needs: "/usr/bin/python3 /usr/lib/python3/dist-packages/pip", packages: "python3-pip",
		files:  map[string]string{"d/keep": ""},
		script: "python3 -m pip --version | cut -d' ' -f1; python3 -m pip cache dir; python3 -m pip download -q nothing-here 2>&1 | tail -1; python3 -m pip list --format=freeze | head -3"},
	{name: "node", needs: "/usr/bin/node", packages: "nodejs",
		files: map[string]string{"a.js": `const os = require('os'), fs = require('fs'), cp = require('child_process'), { Worker } = require('worker_threads')
console.log(os.platform(), os.endianness(), Object.keys(os.networkInterfaces()).includes('lo'), os.tmpdir())
console.log(cp.execFileSync('echo', ['child']).toString(), fs.readdirSync('.'))
new Worker("require('worker_threads').parentPort.postMessage(1)", { eval: true }).on('message', m => console.log('worker', m))
fs.promises.writeFile('out', 'x').then(() => console.log('written'))
require('dns').lookup('localhost', { family: 4 }, (e, a) => console.log(a))
console.log(new Intl.DateTimeFormat('en', { timeStyle: 'long', timeZone: process.env.TZ }).format(0), process.stdout.isTTY)
`}, script: "node a.js | sort"},
	{name: "npm", needs: "/usr/bin/npm /usr/bin/node", packages: "npm",
		files: map[string]string{"package.json": `{"name": "x", "version": "1.0.0", "scripts": {"test": "echo tested"}, "dependencies": {"y": "file:./y"}}`,
			"y/package.json": `{"name": "y", "version": "1.0.0", "bin": "y.js"}`, "y/y.js": "#!/usr/bin/env node\nconsole.log('y')\n"},
		script: "npm install --no-audit --no-fund --loglevel=error; npm test --silent; npx y; npm pack --silent ./y; ls node_modules", varies: "*.tgz .package-lock.json", hides: `in [0-9.]+m?s`},
	{name: "perl", quick: true, needs: "perl", packages: "perl",
		script: `perl -MPOSIX -MSocket -e 'print strftime("%H %Z", localtime(0)), " ", getpwuid($<) ? "user" : "nobody", " ", inet_ntoa(scalar gethostbyname("localhost")), "\n"; system("echo child"); open(F, ">out"); print F 1'`},
	{name: "prove", needs: "prove", packages: "perl",
		files:  map[string]string{"t/a.t": "use Test::More tests => 1; ok(1, 'one');\n"},
		script: "prove -v t", hides: `(?m)Files=.*$`},
	{name: "ruby", needs: "ruby", packages: "ruby",
		script: `ruby -rsocket -retc -rtempfile -e 'puts [1, 2].sum, Socket.getservbyname("http"), Process.wait2(fork { exit 4 })[1].exitstatus, Thread.new { 5 }.value, Time.at(0).hour; Tempfile.create("x") { |f| f.write "x" }; TCPServer.open("127.0.0.1", 0) { |s| puts s.addr[3] }'`},
	{name: "gem", needs: "gem", packages: "ruby",
		files:  map[string]string{"x.gemspec": "Gem::Specification.new { |s| s.name = 'x'; s.version = '1'; s.summary = 's'; s.authors = ['a']; s.files = ['x.rb']; s.license = 'MIT'; s.homepage = 'https://example.com' }\n", "x.rb": "puts 1\n"},
		script: "gem build -q x.gemspec 2>&1; gem install -q --local --user-install --no-document x-1.gem; ruby -e 'require \"x\"'", varies: "*.gem"},
	{name: "php", needs: "php", packages: "php-cli",
		script: `php -r 'echo array_sum([1, 2]), " ", date("H", 0), " ", gethostbyname("localhost"), "\n"; file_put_contents("out", json_encode(["a" => 1]));' ; cat out; echo '<?php echo $_SERVER["REQUEST_URI"];' >i.php; php -S 127.0.0.1:18081 i.php >/dev/null 2>&1 & p=$!; until curl -s http://127.0.0.1:18081/u; do sleep 0.1; done; kill $p`},
	{name: "lua", needs: "lua5.4", packages: "lua5.4",
		script: `lua5.4 -e 'print(_VERSION, io.popen("echo child"):read(), os.date("%H", 0)); io.open("out", "w"):write("x")'`},
	{name: "tclsh", needs: "tclsh", packages: "tcl", files: map[string]string{"a.tcl": "puts [expr 6*7]; puts [exec echo child]; puts [clock format 0 -format %H]\n"}, script: "tclsh a.tcl"},
	{name: "sbcl", needs: "sbcl", packages: "sbcl", script: `sbcl --noinform --non-interactive --eval '(print (expt 2 100))'`},
	{name: "bash", quick: true, needs: "bash", packages: "bash",
		files:  map[string]string{"w": words},
		script: `bash -c 'diff <(sort w) <(sort -r w); coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} a; echo $a; exec 3<>/dev/tcp/127.0.0.1/9 || echo refused; cat <<< here; echo {1..3}; ulimit -c; trap "echo bye" EXIT; sleep 0 & wait $!; echo $? $-' 2>&1`},
	{name: "bash-jobs", needs: "bash script", packages: "bash bsdutils",
		script: `script -qec "bash --norc -ic 'sleep 100 & jobs; kill %1; wait %1; echo \$?; stty -a | head -1'" /dev/null </dev/null | tr -d '\r'`, hides: `\[1\] [0-9]+`},
	{name: "zsh", gvisor: "its line discipline", needs: "zsh", packages: "zsh", script: `zsh -fc 'zmodload zsh/zpty zsh/net/socket; print -l *(N) ${(s: :):-a b}; zpty x echo in; zpty -r x l; print -- $l; echo $ZSH_NAME'`},
	{name: "fish", needs: "fish", packages: "fish", script: `fish -c 'echo (math 6 x 7); for i in a b; echo $i; end; set -U x 1; echo $x; status is-interactive; or echo no'`},
	{name: "tcsh", needs: "tcsh", packages: "tcsh", script: `tcsh -fc 'set a = (1 2); echo $a[2]; @ b = 6 * 7; echo $b; echo $HOME'`},
	{name: "mksh", needs: "mksh", packages: "mksh", script: `mksh -c 'typeset -i x=5; print $((x*2)); print -n | cat |& read -p y; echo done'`},

	// Package managers and builds.
	{name: "dpkg-deb", needs: "dpkg-deb", packages: "dpkg",
		files:  map[string]string{"p/DEBIAN/control": "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: x\n", "p/usr/share/x": "x"},
		script: "dpkg-deb --root-owner-group -b p x.deb; dpkg-deb -c x.deb | awk '{print $1, $NF}'; dpkg-deb -I x.deb | grep Package", varies: "x.deb"},
	{name: "dpkg-query", quick: true, needs: "dpkg-query", packages: "dpkg", script: "dpkg-query -W -f '${Status}\\n' libc6"},
	{name: "make", quick: true, needs: "make", packages: "make",
		files:  map[string]string{"Makefile": "all: a b c\na b c: ; @echo $@ > $@; echo made $@\n"},
		script: "make -j4 | sort; make -q; make -j$(nproc) -B all | wc -l"},
	{name: "cmake-ctest", needs: "cmake ctest ninja gcc", packages: "cmake ninja-build gcc libc6-dev",
		files:  map[string]string{"CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(x C)\nenable_testing()\nadd_executable(a a.c)\nadd_test(NAME t COMMAND a)\n", "a.c": "int main(void) { return 0; }\n"},
		script: "cmake -G Ninja -B out | grep -c .; cmake --build out | tail -1; ctest --test-dir out 2>&1 | grep passed", varies: "out"},
	{name: "meson", needs: "meson ninja gcc", packages: "meson ninja-build gcc libc6-dev",
		files:  map[string]string{"meson.build": "project('x', 'c')\na = executable('a', 'a.c')\ntest('t', a)\n", "a.c": "int main(void) { return 0; }\n"},
		script: "meson setup out >log; ninja -C out test | grep -E 'Ok|Fail'", varies: "out log __pycache__"},
	{name: "scons", needs: "scons gcc", packages: "scons gcc libc6-dev", files: map[string]string{"SConstruct": "Program('a', ['a.c'])\n", "a.c": "int main(void) { return 0; }\n"}, script: "scons -Q -j2", varies: ".sconsign.dblite"},
	{name: "autotools", needs: "autoreconf automake m4 gcc make", packages: "autoconf automake m4 gcc make libc6-dev",
		files:  map[string]string{"configure.ac": "AC_INIT([x],[1])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n", "Makefile.am": "bin_PROGRAMS = a\na_SOURCES = a.c\n", "a.c": "int main(void) { return 0; }\n"},
		script: "autoreconf -i >log 2>&1; ./configure | grep 'C compiler works'; make -s; make -s distcheck >log 2>&1; ls *.gz", varies: "* autom4te.cache"},
	{name: "gettext", needs: "msgfmt xgettext", packages: "gettext", files: map[string]string{"a.c": "int main(void) { puts(_(\"hi\")); }\n"}, script: "xgettext -k_ -o a.pot a.c; msgfmt -o a.mo a.pot; msgunfmt a.mo | head -2", varies: "a.pot a.mo"},
	{name: "pkg-config", needs: "pkg-config", packages: "pkg-config", script: "pkg-config --version; pkg-config --variable=pc_path pkg-config"},

	// Test runners and checkers.
	{name: "pytest", needs: "/usr/bin/pytest-3", packages: "python3-pytest",
		files:  map[string]string{"test_a.py": "import socket\ndef test_a(tmp_path, capsys, monkeypatch):\n    (tmp_path / 'x').write_text('x')\n    with socket.create_server(('127.0.0.1', 0)) as s, socket.create_connection(s.getsockname()): pass\ndef test_b(): assert 1 == 2\n"},
		script: "pytest-3 -q || echo $?", hides: ` in [0-9.]+s`, varies: "__pycache__ .pytest_cache"},
	{name: "unittest", needs: "/usr/bin/python3", packages: "python3", files: map[string]string{"test_a.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertTrue(True)\n"},
		script: "python3 -B -m unittest -v 2>&1", hides: `in [0-9.]+s`},
	{name: "node-test", needs: "/usr/bin/node", packages: "nodejs", files: map[string]string{"a.test.js": "const t = require('node:test'), http = require('http')\nt('server', async () => { const s = http.createServer((q, r) => r.end('ok')).listen(0); await new Promise(d => s.on('listening', d)); const r = await fetch('http://127.0.0.1:' + s.address().port); if (await r.text() != 'ok') throw 1; s.close(); s.closeAllConnections?.() })\n"},
		script: "node --test | grep -E '^# (pass|fail)'"},
	{name: "shellcheck", needs: "shellcheck", packages: "shellcheck", files: map[string]string{"a.sh": "#!/bin/sh\necho $1\n"}, script: "shellcheck a.sh || echo $?"},

	// Debuggers.
	{name: "gdb", differs: tracing, needs: "gdb gcc", packages: "gdb gcc libc6-dev", files: map[string]string{"hello.c": helloC},
		script: "gcc -g -pthread -o hello hello.c; gdb -q -batch -ex 'list main' -ex 'info line main' hello 2>&1; gdb -q -batch -ex 'break main' -ex run -ex bt ./hello 2>&1 | grep -c '^#0  main'"},
	{name: "strace", differs: tracing, needs: "strace", packages: "strace", script: "strace -f -o log true; grep -c exited log", varies: "log"},
	{name: "perf-less-profile", needs: "/usr/bin/python3", packages: "python3", files: map[string]string{"a.py": "sum(range(9))\n"}, script: "python3 -m cProfile a.py | grep -c 'built-in method builtins.sum'; python3 -B -m trace --count -C out a.py; ls out; python3 -m timeit -n1 -r1 pass | grep -c loop"},
	{name: "pdb", needs: "/usr/bin/python3", packages: "python3", files: map[string]string{"a.py": "x = 1\ny = 2\n"}, script: "printf 'n\\np x\\nq\\n' | python3 -m pdb a.py"},

	// Editors.
	{name: "vim", needs: "vim", packages: "vim", files: map[string]string{"w": words}, script: `vim -es -u NONE +'%s/apple/fig/' +wq w; cat w; script -qec "vim -u NONE +'%s/plum/date/' +wq w" /dev/null </dev/null >/dev/null; cat w`},
	{name: "nano", needs: "nano script", packages: "nano bsdutils", files: map[string]string{"w": words},
		script: `(sleep 1; printf 'new\030y\r'; sleep 1) | TERM=xterm script -qec 'nano w' /dev/null >/dev/null; cat w`},
	{name: "ed", needs: "ed", packages: "ed", files: map[string]string{"w": words}, script: `printf 'g/apple/d\n,p\nw\nq\n' | ed -s w`},
	{name: "emacs", needs: "emacs", packages: "emacs-nox", files: map[string]string{"w": words}, script: `emacs --batch -q w --eval '(progn (sort-lines nil (point-min) (point-max)) (save-buffer) (princ (emacs-pid)) )' 2>&1 | grep -c . ; cat w; emacs --batch -q --eval '(princ (shell-command-to-string "echo sub"))'`},

	// Databases.
	{name: "sqlite3", needs: "sqlite3", packages: "sqlite3", script: `sqlite3 a.db 'pragma journal_mode=wal; create table t (x); insert into t values (1), (2);'; for i in 1 2 3; do sqlite3 -cmd '.timeout 5000' a.db "insert into t values ($i)" & done; wait; sqlite3 a.db 'select count(*), sum(x) from t; vacuum; pragma integrity_check'`, varies: "a.db"},
	{name: "postgres", needs: "psql /usr/lib/postgresql", packages: "postgresql",
		script: `b=$(echo /usr/lib/postgresql/*/bin); $b/initdb -D d -U me -A trust >log 2>&1 || { cat log; exit 1; }; $b/pg_ctl -D d -w -l log2 -o "-k $PWD/d -c listen_addresses=127.0.0.1 -p 15432" start | tail -1; psql -h $PWD/d -p 15432 -U me postgres -Atc 'create table t as select generate_series(1, 1000) x; select sum(x) from t'; psql -h 127.0.0.1 -p 15432 -U me postgres -Atc 'select current_user'; $b/pg_ctl -D d -m fast stop; rm -r d log log2`},
	{name: "redis", needs: "redis-server redis-cli", packages: "redis-server",
		script: `redis-server --port 0 --unixsocket r.sock --dir . --daemonize yes --logfile log >/dev/null; until redis-cli -s r.sock ping 2>/dev/null | grep PONG; do sleep 0.1; done; redis-cli -s r.sock set a 1; redis-cli -s r.sock save; redis-cli -s r.sock incr a; redis-cli -s r.sock shutdown nosave; rm -f log; ls`, varies: "dump.rdb"},
	{name: "mariadb", needs: "mariadbd mariadb mariadb-install-db", packages: "mariadb-server",
		script: `mariadb-install-db --no-defaults --auth-root-authentication-method=normal --datadir=$PWD/d >log 2>&1 || tail -5 log; mariadbd --no-defaults --datadir=$PWD/d --skip-networking --socket=$PWD/s --pid-file=$PWD/p >log 2>&1 & until mariadb-admin --no-defaults -S s -u root ping 2>/dev/null; do kill -0 $! || { cat log; exit 1; }; sleep 0.2; done; mariadb --no-defaults -S s -u root -e 'select 6*7'; mariadb-admin --no-defaults -S s -u root shutdown; wait; rm -r d log`},

	// Version control.
	{name: "git", quick: true, needs: "git", packages: "git",
		script: `export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.com GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.com GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'; git config --global user.name t; git config --global user.email t@example.com; git init -q -b main r; cd r; echo a >a; git add a; git commit -qm one; git switch -qc b; echo b >>a; git commit -qam two; git switch -q main; echo c >c; git add c; git commit -qm three; git merge -qm merge b; git log --oneline --graph; git gc -q; git fsck; git worktree add -q ../w b; git clone -q . ../clone; git -C ../clone log -1 --format=%H; git stash list; git status -sb; cd ..; rm -rf r w clone`},
	{name: "hg", needs: "hg", packages: "mercurial",
		script: `hg init r; cd r; echo a >a; hg add a; hg commit -u t -d '0 0' -m one; hg log -T '{node}\n'; hg clone -q . ../c; hg -R ../c update; cd ..; rm -r r c`},
	{name: "svn", needs: "svn svnadmin", packages: "subversion",
		script: `svnadmin create r; svn checkout -q file://$PWD/r w; cd w; echo a >a; svn add a; svn commit -q --username t -m one; svn update; cd ..; rm -rf r w`},

	// Archives.
	{name: "tar", quick: true, needs: "tar gzip", packages: "tar gzip", files: map[string]string{"d/a": "a", "d/b": "b"}, script: `chmod 640 d/a; ln -s a d/l; cp d/a d/g; ln d/g d/h; tar czf a.tgz d; rm -r d; tar xzvf a.tgz | sort; stat -c '%a %h' d/a d/h; tar tf a.tgz | wc -l; tar -cf b.tar d; tar df b.tar`, varies: "*.tgz *.tar"},
	{name: "zip", needs: "zip unzip", packages: "zip unzip", files: map[string]string{"d/a": "a", "d/b": "b"}, script: `zip -qr a.zip d; rm -r d; unzip a.zip | sort; unzip -tq a.zip`, varies: "a.zip"},
	{name: "xz", needs: "xz", packages: "xz-utils", files: map[string]string{"w": words}, script: "xz -kT2 w; xzcat w.xz; xz -l w.xz | tail -1; xz -t w.xz"},
	{name: "zstd", needs: "zstd", packages: "zstd", files: map[string]string{"w": words}, script: "zstd -qkT2 w; zstdcat w.zst; zstd -tq w.zst"},
	{name: "bzip2-lz4-brotli", needs: "bzip2 lz4 brotli", packages: "bzip2 lz4 brotli", files: map[string]string{"w": words}, script: "bzip2 -k w; lz4 -q w w.lz4; brotli w; bzcat w.bz2; lz4 -dc w.lz4; brotli -dc w.br"},
	{name: "cpio", needs: "cpio", packages: "cpio", files: map[string]string{"w": words}, script: "echo w | cpio -o -H newc >a.cpio; mkdir d; cd d; cpio -i <../a.cpio; cat w", varies: "a.cpio"},

	// Text.
	{name: "jq", needs: "jq", packages: "jq", script: `echo '{"a": [1, 2]}' | jq -c '.a | map(. + 1)'; jq -n 'env.LANG, (0 | localtime | mktime)'; jq -n '1/0' || echo $?`},
	{name: "awk", needs: "gawk mawk", packages: "gawk mawk", files: map[string]string{"w": words}, script: `for a in gawk mawk; do $a '{n[$1] += $2} END {print n["apple"]; "echo sub" | getline x; print x, ENVIRON["LANG"]}' w; done; gawk 'BEGIN {print strftime("%H %Z", 0); s = "/inet/tcp/0/127.0.0.1/9"; print "x" |& s; print ERRNO != ""}'`},
	{name: "sed", quick: true, needs: "sed", packages: "sed", files: map[string]string{"w": words}, script: "sed -i.bak -E 's/(a)(p)/\\2\\1/; $d' w; cat w; sed -n '2{p;q}' w; chmod 600 w; sed -i 1d w; stat -c %a w"},
	{name: "rg", needs: "rg", packages: "ripgrep", files: map[string]string{"d/w": words, ".gitignore": "*.log\n", "x.log": "apple\n"}, script: "rg -n --sort path apple; rg -c --no-ignore --sort path apple . ; rg nothing || echo $?"},
	{name: "grep-find-xargs", quick: true, needs: "grep find xargs", packages: "grep findutils", files: map[string]string{"d/w": words, "e/v": "fig\n"}, script: "grep -rn apple .; find . -type f -newermt 2000-01-01 -print0 | sort -z | xargs -0 -P2 -n1 wc -c | sort; find . -user $(id -u) -perm -u+r | sort; find . -name v -delete; find / -maxdepth 0"},
	{name: "parallel", needs: "parallel", packages: "parallel", script: "parallel -k echo ::: a b c; seq 3 | parallel -j2 -k 'echo {} {#}'; env_parallel --version 2>/dev/null | head -1; parallel --will-cite false ::: 1 || echo $?"},
	{name: "diff-patch", needs: "diff patch", packages: "diffutils patch", files: map[string]string{"a": words, "b": "pear 3\nfig\n"}, script: "diff a b >p || echo $?; patch a p; cmp a b; patch -R a p; sdiff -w40 a b || true"},
	{name: "coreutils", quick: true, needs: "sort split shuf stdbuf", packages: "coreutils", files: map[string]string{"w": words},
		script: "sort -k2n --parallel=2 w; split -l1 w x; cat xa*; cp -a w v; cp --reflink=auto w u; ln -s w l; readlink -f l; install -m 755 w i; stat -c '%a %F %s' i; truncate -s 4096 t; dd if=/dev/zero of=z bs=1k count=4 conv=fsync status=none; du -k --apparent-size z; touch -d @0 w; date -r w +%F; mktemp -u | cut -c1-9; seq 3 | tac | stdbuf -oL cat; timeout 0.1 sleep 9 || echo $?; nice -n 5 nice; env -i A=1 env; numfmt --to=iec 4096; b2sum w; yes | head -1; tty; tee o <w | wc -l; mv o p; comm -12 w p | wc -l; df --output=target . | tail -1; nohup true; chmod 4755 i; stat -c %a i; chmod 755 i",
	},
	{name: "bc-dc", needs: "bc dc", packages: "bc dc", script: "echo 'scale=20; 4*a(1)' | bc -l; echo '2 100 ^ p' | dc"},
	{name: "file-xxd", needs: "file xxd", packages: "file xxd", files: map[string]string{"w": words}, script: "file w /bin/true | cut -c1-40; xxd w | head -1; file -i w; xxd -p w | xxd -r -p"},
	{name: "tree-fd-pv", needs: "tree fdfind pv", packages: "tree fd-find pv", files: map[string]string{"d/w": words}, script: "tree; fdfind w; pv -q d/w | wc -c; tree -p d"},
	{name: "yq-mlr", needs: "yq mlr", packages: "yq miller", files: map[string]string{"a.csv": "a,b\n1,2\n", "a.yaml": "x: [1, 2]\n"}, script: "mlr --icsv --ojson cat a.csv; yq -c .x a.yaml"},
	{name: "man-less", needs: "man less", packages: "man-db less", files: map[string]string{"x.1": ".TH X 1\n.SH NAME\nx \\- a page\n", "w": words}, script: "man ./x.1 2>&1 | cat; less w; LESSSECURE=1 less -E w | wc -l"},
	{name: "m4", needs: "m4", packages: "m4", script: "echo 'define(x, $1$1)x(a)syscmd(echo sub)' | m4"},
	{name: "ps-top", needs: "ps free uptime pgrep pkill", packages: "procps", script: "ps -o comm= -p $$; sleep 50 & pgrep -P $$ -x sleep | wc -l; ps -o stat= -p $! | cut -c1; pkill -P $$ sleep; free -k | awk 'NR == 1'; uptime -p | cut -c1-2; top -bn1 | head -1 | cut -c1-3"},
	{name: "util-linux", quick: true, needs: "flock setsid script getopt column lscpu", packages: "util-linux bsdutils bsdextrautils", script: "flock l echo locked; setsid -w echo sid; script -qec 'echo typed; exit 4' t </dev/null || echo $?; grep -c typed t; getopt -o a: -- -a 1; printf 'a b\\ncc d\\n' | column -t; lscpu | grep -c Architecture; nsenter --help | head -1 | wc -l; lsblk --version | cut -c1-5", varies: "t"},
	{name: "taskset-ionice", differs: machine, needs: "taskset ionice", packages: "util-linux", script: "taskset -c 0 echo pinned || echo not pinned; ionice -c3 echo idle"},
	{name: "fifo", needs: "mkfifo cat", packages: "coreutils", script: "mkfifo p; (echo through >p) & cat p; rm p; mkfifo /tmp/jail-p-$$; (echo tmp >/tmp/jail-p-$$) & cat /tmp/jail-p-$$; rm /tmp/jail-p-$$"},
	{name: "expect", needs: "expect", packages: "expect", files: map[string]string{"a.exp": "spawn -noecho sh -c {read x; echo got $x; exit 5}\nsend \"hi\\r\"\nexpect \"got hi\"\nexpect eof\nputs [lindex [wait] 3]\n"}, script: "expect a.exp | tr -d '\\r'"},
	{name: "tmux", needs: "tmux", packages: "tmux", script: "export TERM=xterm SHELL=/bin/sh; tmux -f /dev/null -S $PWD/s new-session -d -x 80 -y 24 'echo inside >out; tmux -S s wait-for -S done; sleep 100'; tmux -S $PWD/s wait-for done; tmux -S $PWD/s list-windows -F '#{window_width}'; tmux -S $PWD/s kill-server; cat out; rm -f s"},
	{name: "screen", gvisor: "its master of a pseudo-terminal", needs: "screen", packages: "screen", script: "export TERM=xterm SCREENDIR=$PWD/s; mkdir -m 700 s; screen -c /dev/null -dmS x sh -c 'echo inside >out; mv out done'; for i in $(seq 300); do if test -e done; then break; fi; sleep 0.1; done; cat done; rm -rf s"},
	{name: "locale-tz", needs: "locale date iconv", packages: "libc-bin tzdata", script: "locale | head -2; locale -a | grep -c -i c.utf; date -d @0 '+%H %Z %A'; TZ=America/New_York date -d @0 +%H; unset TZ; date -d @0 +%Z; printf '\\344' | iconv -f latin1 -t utf8; printf 'é' | wc -m"},
	{name: "names", quick: true, needs: "getent", packages: "libc-bin netbase", script: "getent hosts localhost | awk '{print $NF != \"\"}'; getent services https; getent protocols tcp; getent ahosts 127.0.0.1 | head -1; getent passwd root | cut -d: -f3; getent passwd $(id -u) | wc -l; . /etc/os-release; echo $ID; test -e /etc/ssl/certs/ca-certificates.crt && echo certificates; ls /etc/ssl/certs | wc -l; test -e /etc/mime.types && echo mime; test -e /etc/protocols"},

	// Network tools and servers, on the loopback.
	{name: "curl", needs: "curl /usr/bin/python3", packages: "curl python3",
		script: "python3 -m http.server --bind 127.0.0.1 18080 >/dev/null 2>&1 & p=$!; echo content >f; until curl -s -o /dev/null http://127.0.0.1:18080/; do sleep 0.1; done; curl -s http://localhost:18080/f; curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:18080/no; curl -s http://127.0.0.1:9 || echo $?; kill $p"},
	{name: "wget", needs: "wget /usr/bin/python3", packages: "wget python3", script: "python3 -m http.server --bind 127.0.0.1 18082 >/dev/null 2>&1 & p=$!; echo content >f; until wget -qO- http://127.0.0.1:18082/f; do sleep 0.1; done; kill $p"},
	{name: "nc", needs: "nc.openbsd", packages: "netcat-openbsd", script: "nc.openbsd -lU s & while ! test -S s; do sleep 0.1; done; echo through | nc.openbsd -NU s; wait; rm s; nc.openbsd -z 127.0.0.1 9 || echo closed; (nc.openbsd -u -l 127.0.0.1 18085 -W1 || true) & sleep 0.5; echo datagram | nc.openbsd -u -w1 127.0.0.1 18085; wait"},
	{name: "socat", needs: "socat", packages: "socat", script: "socat UNIX-LISTEN:s,fork EXEC:'tr a-z A-Z' & p=$!; for i in $(seq 300); do if test -S s; then break; fi; kill -0 $p || exit 1; sleep 0.1; done; echo hi | socat -t5 - UNIX-CONNECT:s; kill $p; socat -u EXEC:'echo pty',pty,stderr - | tr -d '\\r'; rm -f s"},
	{name: "openssl", needs: "openssl", packages: "openssl", script: "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -out c -days 1 -subj /CN=localhost 2>/dev/null; openssl x509 -in c -noout -subject; openssl s_server -quiet -accept 127.0.0.1:18084 -key k -cert c -www >/dev/null 2>&1 & p=$!; until v=$(openssl s_client -connect 127.0.0.1:18084 -CAfile c </dev/null 2>/dev/null | grep -m1 'Verify return'); do sleep 0.2; done; echo $v; kill $p; echo x | openssl dgst -sha256; openssl version -d", varies: "k c"},
	{name: "ssh-keygen", needs: "ssh-keygen ssh", packages: "openssh-client", script: "ssh-keygen -q -t ed25519 -N '' -C c -f k; ssh-keygen -l -f k.pub | cut -d' ' -f1,3-; ssh -G example.com | grep -m1 '^port'; eval $(ssh-agent -a $PWD/s) >/dev/null; ssh-add -q k; ssh-add -l | wc -l; ssh-agent -k >/dev/null; rm -f s", varies: "k k.pub"},
	{name: "gpg", needs: "gpg gpg-agent", packages: "gnupg", script: "export GNUPGHOME=$(mktemp -d); gpg -q --batch --passphrase '' --quick-gen-key t@example.com ed25519 sign 2>/dev/null; echo x >f; gpg -q --batch -u t@example.com --detach-sign f; gpg -q --verify f.sig f 2>&1 | grep -c Good; gpgconf --kill all; rm -r $GNUPGHOME", varies: "f.sig"},
	{name: "age", needs: "age age-keygen", packages: "age", script: "age-keygen -o k 2>/dev/null; echo secret | age -r $(age-keygen -y k) -o e; age -d -i k e", varies: "k e"},
	{name: "rsync", needs: "rsync", packages: "rsync", files: map[string]string{"a/f": "f", "a/d/g": "g"}, script: "ln -s f a/l; chmod 600 a/f; rsync -aOH --delete -i a/ b/; rsync -aOi a/ b/; stat -c %a b/f; rm a/f; rsync -aO --delete -i a/ b/"},
	{name: "ip", gvisor: "its network interfaces", needs: "ip", packages: "iproute2", script: "ip -o -4 address show lo | awk '{print $4}'; ip link show lo | head -1; ip -V | cut -c1-2"},
	{name: "ss", differs: diag, needs: "ss", packages: "iproute2", script: "ss -ltn | head -1"},

	// Browsers and pictures.
	{name: "chromium", needs: "chromium", packages: "chromium", files: map[string]string{"a.html": "<p id=x></p><script>x.textContent = 6 * 7</script>\n"},
		script: "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$(mktemp -d) --dump-dom file://$PWD/a.html 2>/dev/null; chromium --headless --no-sandbox --disable-gpu --user-data-dir=$(mktemp -d) --screenshot=$PWD/a.png file://$PWD/a.html >/dev/null 2>&1; file a.png | cut -c1-20", varies: "a.png"},
	{name: "imagemagick", needs: "convert identify", packages: "imagemagick", script: "convert -size 10x10 xc:red a.png; identify -format '%wx%h %m\\n' a.png; convert a.png -resize 50% a.gif; identify a.gif | cut -d' ' -f3", varies: "a.png a.gif"},
	{name: "graphviz", needs: "dot", packages: "graphviz", script: "echo 'digraph { a -> b }' | dot -Tsvg -o a.svg; grep -c '<g id' a.svg; echo 'digraph { a -> b }' | dot -Tpng -o a.png; file a.png | cut -c1-20", varies: "a.png"},
	{name: "docker", needs: "docker", packages: "docker.io", script: "docker ps >out 2>&1 || echo $?; grep -c -i -E 'connect|daemon|permission' out | sed 's/[1-9][0-9]*/some/'", varies: "out"},
}

package tools

import (
	"os"
	"path/filepath"
	"testing"
)

// What Python's standard library does, the host's says, too: these are asked of both. What is
// printed stands here, since a host may have another Python.
var pythonUses = []moreUse{
	{argv: []string{"python3", "-c", "print(1+1)"}, want: "2\n"},
	{argv: []string{"python3", "-"}, stdin: "import sys\nprint(sys.argv, __name__)\n", want: "['-'] __main__\n"},
	{argv: []string{"python3", "prog.py", "a", "b c"}, want: "['prog.py', 'a', 'b c']\nmodule\n"},
	{argv: []string{"python3", "-c", "import sys; sys.exit(7)"}, code: 7},
	{argv: []string{"python3", "-c", "raise ValueError('x')"}, code: 1},
	{argv: []string{"python3", "-c", "1 +"}, code: 1},
	{argv: []string{"python3", "missing.py"}, code: 2},
	{argv: []string{"python3", "-m", "json.tool", "json"}, want: "{\n    \"x\": 1\n}\n"},
	{argv: []string{"python3", "-c", "import sys; print(sys.stdin.read().upper(), end='')"}, stdin: "text\n", want: "TEXT\n"},
	{argv: []string{"python3", "-c", "open('out','w').write('ü'); import os; " +
		"os.rename('out','new'); os.mkdir('dir'); os.remove('noeol')"}},
	{argv: []string{"python3", "-c", "import os; print(sorted(os.listdir('d')), " +
		"os.path.exists('missing'), os.stat('fruit').st_size)"}, want: "['deep', 'script.sh'] " +
		"False 43\n"},
	{argv: []string{"python3", "-c", "import pathlib; print(sorted(str(p) for p in " +
		"pathlib.Path('d').rglob('*.txt')), pathlib.Path('fruit').read_text()[:6])"}, want: "['d/deep/more.txt'] banana\n"},
	{argv: []string{"python3", "-c", "import json; print(json.dumps({'b': [1, 2.5, None], 'a': " +
		"'ü'}, sort_keys=True), json.loads('[1]'))"}, want: `{"a": "\u00fc", "b": [1, 2.5, null]} [1]` +
		"\n"},
	{argv: []string{"python3", "-c", "import csv,sys; w=csv.writer(sys.stdout, " +
		"lineterminator='\\n'); [w.writerow(r[::-1]) for r in csv.reader(open('table.csv'))]"}, want: "size,name,id\n10,one,1\n20,two,2\n30,three,3\n"},
	{argv: []string{"python3", "-c", "import re; print(re.sub(r'(?P<w>\\w+) (\\d+)', r'\\2 " +
		"\\g<w>', open('fruit').readline()), end='')"}, want: "3 banana\n"},
	{argv: []string{"python3", "-c", "import hashlib,zlib,bz2,base64; " +
		"print(hashlib.sha256(b'x').hexdigest()[:8], zlib.decompress(zlib.compress(b'y'*99))[:2], " +
		"bz2.decompress(bz2.compress(b'z')), base64.b64encode(b'ab'))"}, want: "2d711642 b'yy' " +
		"b'z' b'YWI='\n"},
	{argv: []string{"python3", "-c", "import datetime as d; " +
		"print(d.date(2024,2,28)+d.timedelta(2), " +
		"d.datetime(2024,1,1,tzinfo=d.timezone.utc).isoformat())"}, want: "2024-03-01 2024-01-01T00:00:00+00:00\n"},
	{argv: []string{"python3", "-c", "import collections,itertools,functools; " +
		"print(collections.Counter('abca').most_common(1), list(itertools.pairwise([1,2,3])), " +
		"functools.reduce(int.__mul__, range(1,30)))"}, want: "[('a', 2)] [(1, 2), (2, 3)] " +
		"8841761993739701954543616000000\n"},
	{argv: []string{"python3", "-c", "from decimal import *; from fractions import Fraction; " +
		"import statistics, math; print(Decimal('0.1')+Decimal('0.2'), Fraction(1,3)+1, " +
		"statistics.mean([1,2,3]), round(math.pi,5))"}, want: "0.3 4/3 2 3.14159\n"},
	{argv: []string{"python3", "-c", "import sqlite3; c=sqlite3.connect('p.db'); " +
		"c.execute('create table t(a)'); c.execute('insert into t values(41)'); c.commit(); " +
		"print(c.execute('select a+1 from t').fetchone()); c.close(); import os; os.remove('p.db')"}, want: "(42,)\n"},
	{argv: []string{"python3", "-c", "import tarfile,zipfile,io; b=io.BytesIO(); " +
		"z=zipfile.ZipFile(b,'w',zipfile.ZIP_DEFLATED); z.write('fruit'); z.close(); " +
		"print(zipfile.ZipFile(b).namelist()); t=tarfile.open('t.tar','w'); t.add('fruit'); " +
		"t.close(); print(tarfile.open('t.tar').getnames()); import os; os.remove('t.tar')"}, want: "['fruit']\n['fruit']\n"},
	{argv: []string{"python3", "-c", "import tempfile,shutil; d=tempfile.mkdtemp(); " +
		"shutil.copy('fruit', d); print(open(d+'/fruit').readline(), end=''); shutil.rmtree(d)"}, want: "banana 3\n"},
	{argv: []string{"python3", "-c", "import dataclasses,enum,typing,textwrap,string\n" +
		"@dataclasses.dataclass\nclass A:\n  x: int = 1\n" +
		"print(A(), enum.Enum('E','a b').b.value, textwrap.fill('a b c', 3), " +
		"string.Template('$x').substitute(x=1))"}, want: "A(x=1) 2 a b\nc 1\n"},
	{argv: []string{"python3", "-c", "import urllib.parse as p, html, xml.etree.ElementTree as e, " +
		"configparser, tomllib; print(p.urlparse('http://a/b?c=d').query, html.escape('<'), " +
		"e.fromstring('<a><b>t</b></a>').find('b').text, tomllib.loads('a=1'))"}, want: "c=d &lt; t {'a': 1}\n"},
	{argv: []string{"python3", "-c", "import argparse; p=argparse.ArgumentParser(); " +
		"p.add_argument('-n', type=int); print(p.parse_args(['-n','3']).n)"}, want: "3\n"},
	{argv: []string{"python3", "-c", "import logging; logging.basicConfig(format='%(levelname)s " +
		"%(message)s', stream=__import__('sys').stdout); logging.warning('w')"}, want: "WARNING w\n"},
	{argv: []string{"python3", "-c", "import time; a=time.monotonic(); time.sleep(0.01); " +
		"print(time.monotonic() - a >= 0.01, time.gmtime(0).tm_year)"}, want: "True 1970\n"},
	{argv: []string{"python3", "-c", "import random,uuid,secrets; random.seed(1); " +
		"print(random.randint(1,100), uuid.UUID(int=1), len(secrets.token_hex(4)))"}, want: "18 00000000-0000-0000-0000-000000000001 8\n"},
	{argv: []string{"python3", "-c", "import struct,array,pickle,copy; " +
		"print(struct.pack('<IH',1,2), array.array('i',[1]).itemsize, " +
		"pickle.loads(pickle.dumps({'a':(1,)})), copy.deepcopy([1]))"}, want: "b'\\x01\\x00\\x00\\x00\\x02\\x00' 4 {'a': (1,)} [1]\n"},
	{argv: []string{"python3", "-c", "import difflib; " +
		"print(''.join(difflib.unified_diff(['a\\n'],['b\\n'])), end='')"}, want: "--- \n+++ \n" +
		"@@ -1 +1 @@\n-a\n+b\n"},
	{argv: []string{"python3", "-m", "unittest", "-q", "test_it"}},
	{argv: []string{"python3", "-c", "import subprocess; subprocess.run(['ls'])"}, code: 1, ours: true},
	{argv: []string{"python3", "-c", "import ssl"}, code: 1, ours: true},
	{argv: []string{"python3", "-c", "import threading; threading.Thread(target=print).start()"}, code: 1, ours: true},
}

var jsUses = []moreUse{
	{argv: []string{"js", "-e", "console.log(1+1)"}, want: "2\n"},
	{argv: []string{"qjs", "-e", "print([1,2,3].map(x => x**2).join(), `t${1}`, 2n**70n)"}, want: "1,4,9 t1 1180591620717411303424\n"},
	{argv: []string{"js"}, stdin: "console.log('from standard input')\n", want: "from standard " +
		"input\n"},
	{argv: []string{"js", "prog.mjs", "a", "b"}, want: "prog.mjs,a,b\nimported\nbanana\n"},
	{argv: []string{"js", "-e", "throw new Error('x')"}, code: 1},
	{argv: []string{"js", "-e", "1 +"}, code: 1},
	{argv: []string{"js", "missing.js"}, code: 1},
	{argv: []string{"js", "--std", "-e", "std.exit(7)"}, code: 7},
	{argv: []string{"js", "--std", "-e", "const f = std.open('out','w'); f.puts('ü'); f.close(); " +
		"os.mkdir('dir'); os.remove('noeol')"}},
	{argv: []string{"js", "--std", "-e", "print(os.readdir('d')[0].sort(), " +
		"std.loadFile('sorted').split('\\n').length, std.getenv('LANG'), os.stat('fruit')[0].size)"}, want: ".,..,deep,script.sh 4 C.UTF-8 43\n"},
	{argv: []string{"js", "--std", "-e", "let l, n = 0; while ((l = std.in.getline()) !== null) n += Number(l); print(n)"}, stdin: "1\n2\n3\n", want: "6\n"},
	{argv: []string{"js", "-e", "class A { #x = 1; static s = 2; get x() { return this.#x } }; print(new A().x, A.s, 'ab12'.replace(/(?<n>\\d+)/, '<$<n>>'), new Date(0).toISOString())"}, want: "1 2 ab<12> 1970-01-01T00:00:00.000Z\n"},
	{argv: []string{"js", "-e", "const {a, ...r} = {a: 1, b: 2}; print(a, JSON.stringify(r), [...new Set([1,1,2])].length, a ?? 3, r?.b, Object.entries(r))"}, want: "1 {\"b\":2} 2 1 2 b,2\n"},
	{argv: []string{"js", "-e", "(async () => { for await (const x of (async function* () { yield 1; yield 2 })()) print(x); await null; print('end') })()"}, want: "1\n2\nend\n"},
	{argv: []string{"js", "--std", "-e", "os.setTimeout(() => print('later'), 5); print('now')"}, want: "now\nlater\n"},
	{argv: []string{"js", "-e", "function f() { return f() + 1 } try { f() } catch (e) { print(e.message) }"}, want: "stack overflow\n"},
	{argv: []string{"js", "-e", "print(/(\\d+)-\\1/u.test('12-12'), 'äöü'.normalize('NFD').length, 'ß'.toUpperCase(), (0.1+0.2).toFixed(2), parseInt('ff',16))"}, want: "true 6 SS 0.30 255\n"},
	{argv: []string{"js", "-e", "print(new Uint8Array([1,2,300]).join(), Math.max(...[3,1]), new Map([[1,2]]).get(1), Symbol('s').toString(), typeof globalThis)"}, want: "1,2,44 3 2 Symbol(s) object\n"},
	{argv: []string{"js", "--std", "-e", "print(os.exec(['ls']))"}, code: 1},
}

func languageFixture(t *testing.T) string {
	t.Helper()
	dir := moreFixture(t)
	for name, text := range map[string]string{
		"prog.py": "import sys, mod\nprint(sys.argv)\nmod.say()\n", "mod.py": "def say(): print('module')\n",
		"test_it.py": "import unittest\nclass T(unittest.TestCase):\n  def test(self): self.assertEqual(1, 1)\n",
		"prog.mjs":   "import * as std from 'std';\nimport { x } from './lib.mjs';\nprint(scriptArgs);\nprint(x);\nprint(std.loadFile('fruit').slice(0, 6));\n",
		"lib.mjs":    "export const x = 'imported';\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func TestLanguages(t *testing.T) {
	b := tools(t)
	for _, uses := range [][]moreUse{pythonUses, jsUses} {
		name := uses[0].argv[0]
		for _, u := range uses {
			t.Run(name+" "+u.argv[len(u.argv)-1], func(t *testing.T) {
				b.has(t, name)
				got := b.inJail(t, languageFixture(t), u.stdin, u.argv...)
				if got.stdout != u.want || got.code != u.code {
					t.Errorf("%q: %d %q, want %d %q; stderr %q", u.argv, got.code, got.stdout, u.code, u.want, got.stderr)
				}
				if u.code != 0 && u.code != 7 && got.stderr == "" {
					t.Errorf("%q: it failed and said nothing", u.argv)
				}
			})
		}
	}
}

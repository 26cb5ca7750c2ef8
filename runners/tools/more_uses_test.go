package tools

var jqUses = []moreUse{
	{argv: []string{"jq", "."}, stdin: `{"b":{"c":[]},"a":[1,2.5,"x",null,true]}`, want: "{\n  \"b\": {\n    \"c\": []\n  },\n  \"a\": [\n    1,\n    2.5,\n    \"x\",\n    null,\n    true\n  ]\n}\n"},
	{argv: []string{"jq", "-c", "."}, stdin: `{"z":1, "a":[ 1,2 ]}`, want: `{"z":1,"a":[1,2]}` +
		"\n"},
	{argv: []string{"jq", "-S", "-c", "."}, stdin: `{"z":1,"a":{"y":1,"b":2}}`, want: `{"a":{"b":2,"y":1},"z":1}` +
		"\n"},
	{argv: []string{"jq", "-r", ".[] | select(.n > 1) | .name"}, stdin: `[{"n":1,"name":"one"},{"n":2,"name":"two"}]`, want: "two\n"},
	{argv: []string{"jq", "-j", ".[]"}, stdin: `["a","b"]`, want: "ab"},
	{argv: []string{"jq", "-c", "map(.a) | add"}, stdin: `[{"a":1},{"a":2}]`, want: "3\n"},
	{argv: []string{"jq", "-r", ".[] | @csv"}, stdin: `[[1,"a,b"],[2,"c\"d"]]`, want: "1,\"a,b\"\n2,\"c\"\"d\"\n"},
	{argv: []string{"jq", "-r", ".[] | @tsv"}, stdin: `[[1,"a\tb"],[2,"b"]]`, want: "1\ta\\tb\n2\tb\n"},
	{argv: []string{"jq", "-r", "@base64, @uri, @sh, @json"}, stdin: `"a <b> 'c'"`, ours: true, want: "YSA8Yj4gJ2Mn\na%20%3Cb%3E%20%27c%27\n'a <b> '\\''c'\\'''\n\"a <b> 'c'\"\n"},
	{argv: []string{"jq", "-n", "--arg", "x", "1", "$x"}, want: "\"1\"\n"},
	{argv: []string{"jq", "-n", "--argjson", "x", "1", "$x+1"}, want: "2\n"},
	{argv: []string{"jq", "-n", "-c", "--slurpfile", "f", "json", "$f"}, want: `[{"x":1}]` + "\n"},
	{argv: []string{"jq", "-n", "-c", "[inputs]"}, stdin: "1 2 3", want: "[1,2,3]\n"},
	{argv: []string{"jq", "-n", "-c", "$ARGS.named", "--arg", "a", "b"}, want: `{"a":"b"}` + "\n"},
	{argv: []string{"jq", "-n", "-c", "$ARGS.positional", "--args", "a", "b"}, want: `["a","b"]` +
		"\n"},
	{argv: []string{"jq", "-s", "-c", "."}, stdin: "1 2 3", want: "[1,2,3]\n"},
	{argv: []string{"jq", "-R", "."}, stdin: "a\nb\n", want: "\"a\"\n\"b\"\n"},
	{argv: []string{"jq", "-Rs", "-c", `split("\n")`}, stdin: "a\nb\n", want: `["a","b",""]` + "\n"},
	{argv: []string{"jq", "-c", "group_by(.k) | map({k: .[0].k, n: length})"}, stdin: `[{"k":"a"},{"k":"b"},{"k":"a"}]`, want: `[{"k":"a","n":2},{"k":"b","n":1}]` +
		"\n"},
	{argv: []string{"jq", "-c", "sort_by(.n), unique, min, max"}, stdin: `[{"n":2},{"n":1},{"n":2}]`, want: `[{"n":1},{"n":2},{"n":2}]` +
		"\n" + `[{"n":1},{"n":2}]` + "\n" + `{"n":1}` + "\n" + `{"n":2}` + "\n"},
	{argv: []string{"jq", "-r", `gsub("[aeiou]"; "_")`}, stdin: `"education"`, want: "_d_c_t__n\n"},
	{argv: []string{"jq", "-c", `capture("(?<y>\\d{4})-(?<m>\\d\\d)")`}, stdin: `"on 2024-05"`, want: `{"y":"2024","m":"05"}` +
		"\n"},
	{argv: []string{"jq", "-c", `[match("ä+"; "ig") | .offset]`}, stdin: `"xÄäyä"`, want: "[1,4]\n"},
	{argv: []string{"jq", "-c", `test("^A"; "i"), ascii_downcase, length, utf8bytelength`}, stdin: `"aÜ"`, want: "true\n\"aÜ\"\n2\n3\n"},
	{argv: []string{"jq", "-e", ".missing"}, stdin: `{}`, want: "null\n", code: 1},
	{argv: []string{"jq", "."}, stdin: `{"a":`, code: 5, ours: true},
	{argv: []string{"jq", ".["}, stdin: `{}`, code: 3},
	{argv: []string{"jq", ".a.b"}, stdin: `{"a":1}`, code: 5},
	{argv: []string{"jq", ".", "missing"}, code: 2},
	{argv: []string{"jq", "-n", "-r", `try error("x") catch ("caught " + .)`}, want: "caught x\n"},
	{argv: []string{"jq", "-n", `"bye\n" | halt_error(7)`}, code: 7},
	{argv: []string{"jq", "-c", "to_entries, with_entries(.value += 1), keys, (del(.a) | length)"}, stdin: `{"a":1}`, want: `[{"key":"a","value":1}]` +
		"\n" + `{"a":2}` + "\n" + `["a"]` + "\n0\n"},
	{argv: []string{"jq", "-c", "[paths], getpath([\"a\",0]), (.. |= .)"}, stdin: `{"a":[1]}`, want: `[["a"],["a",0]]` +
		"\n1\n" + `{"a":[1]}` + "\n"},
	{argv: []string{"jq", "-c", "limit(3; range(10)), first(range(5;10)), (reduce .[] as $x (0; " +
		".+$x)), [foreach .[] as $x (0; .+$x)]"}, stdin: `[1,2,3]`, want: "0\n1\n2\n5\n6\n[1,3,6]\n"},
	{argv: []string{"jq", "-c", "def f(x): x*2; f(.), (. as [$a] ?// $a | $a), (if . > 1 then " +
		"\"m\" else \"l\" end)"}, stdin: "3", want: "6\n3\n\"m\"\n"},
	{argv: []string{"jq", "-n", "-c", "[0|todate, strftime(\"%Y-%m-%d\")], " +
		"(\"2015-03-05T23:51:47Z\"|fromdate)"}, want: `["1970-01-01T00:00:00Z","1970-01-01"]` +
		"\n1425599507\n"},
	{argv: []string{"jq", "-n", "-c", "[(10|sqrt|floor), (2|pow(.;10)), " +
		"(1|atan*4|tostring|.[:6]), (7%3), infinite > 1, (nan|isnan)]"}, want: `[3,1024,"3.1415",1,true,true]` +
		"\n"},
	{argv: []string{"jq", "-n", "-r", "env.LANG, $ENV.NONE"}, want: "C.UTF-8\nnull\n", ours: true},
	{argv: []string{"jq", "-c", "tojson, (.[0]|tostring), (\"[1]\"|fromjson)"}, stdin: `["a"]`, want: `"[\"a\"]"` +
		"\n\"a\"\n[1]\n"},
	{argv: []string{"jq", "-c", "input_line_number, splits(\", *\")"}, stdin: `"a, b"`, want: "0\n\"a\"\n\"b\"\n"},
	{argv: []string{"jq", "--tab", "."}, stdin: `{"a":1}`, want: "{\n\t\"a\": 1\n}\n"},
	{argv: []string{"jq", "--indent", "1", "."}, stdin: `[1]`, want: "[\n 1\n]\n"},
	{argv: []string{"jq", "-a", "."}, stdin: `"é"`, want: "\"\\u00e9\"\n"},
	{argv: []string{"jq", "-C", "-c", "."}, stdin: `1`, want: "\x1b[0;39m1\x1b[0m\n", ours: true},
	{argv: []string{"jq", "-c", "--stream", "."}, stdin: `{"a":[1]}`, want: `[["a",0],1]` + "\n" + `[["a",0]]` +
		"\n" + `[["a"]]` + "\n"},
	{argv: []string{"jq", "-c", "--seq", "."}, stdin: "\x1e1\n", want: "\x1e1\n"},
	{argv: []string{"jq", "-f", "program", "json"}, want: "1\n"},
	{argv: []string{"jq", "-c", ".", "json"}, want: `{"x":1}` + "\n"},
	{argv: []string{"jq", "-c", "[limit(5; repeat(1))], ([1,[2]]|flatten), ([3,1]|sort), " +
		"([1,2]|IN(2)), (\"x\"*3), ([1,2,3]-[2]), ({} + {a:1}), ([1,2]|any(.>1))", "json"}, want: "[1,1,1,1,1]\n[1,2]\n[1,3]\nfalse\n\"xxx\"\n[1,3]\n{\"a\":1}\ntrue\n", ours: true},
	{argv: []string{"jq", "."}, stdin: "100000000000000000000", ours: true, want: "100000000000000000000\n"},
}

var sqliteUses = []moreUse{
	{argv: []string{"sqlite3", ":memory:", "select 1+1"}, want: "2\n"},
	{argv: []string{"sqlite3", "-csv", ":memory:", "select 1, 'a,b'"}, want: "1,\"a,b\"\n", ours: true},
	{argv: []string{"sqlite3", "-json", ":memory:", "select 1 as a, 'x' as b"}, want: `[{"a":1,"b":"x"}]` +
		"\n"},
	{argv: []string{"sqlite3", "-header", "-separator", "|", ":memory:", "select 1 as a, 2 as b"}, want: "a|b\n1|2\n"},
	{argv: []string{"sqlite3", "-box", ":memory:", "select 1 as a"}, want: "┌───┐\n│ a │\n├───┤\n" +
		"│ 1 │\n└───┘\n"},
	{argv: []string{"sqlite3", "-markdown", ":memory:", "select 1 as a"}, want: "| a |\n|---|\n" +
		"| 1 |\n"},
	{argv: []string{"sqlite3", ":memory:"}, stdin: ".import --csv table.csv t\n" +
		"select name, size+1 from t where id > 1;\n", want: "two|21\nthree|31\n"},
	{argv: []string{"sqlite3", ":memory:"}, stdin: ".mode json\n.import --csv table.csv t\n" +
		"select max(cast(size as int)) m, count(*) n from t;\n", want: `[{"m":30,"n":3}]` + "\n"},
	{argv: []string{"sqlite3", "new.db"}, stdin: "create table t(a);\n" +
		"insert into t values(1),(2);\nselect sum(a) from t;\n", want: "3\n", ours: true},
	{argv: []string{"sqlite3", ":memory:"}, stdin: "create table t(a int);\n.schema\n.tables\n" +
		"insert into t values(1);\n.dump\n", want: "CREATE TABLE t(a int);\nt\n" +
		"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t(a int);\n" +
		"INSERT INTO t VALUES(1);\nCOMMIT;\n"},
	{argv: []string{"sqlite3", ":memory:", "select upper('x') || printf('%05.1f', 2.5)"}, want: "X002.5\n"},
	{argv: []string{"sqlite3", ":memory:", `select json_extract('{"a":[1,2]}', '$.a[1]')`}, want: "2\n"},
	{argv: []string{"sqlite3", ":memory:", "with recursive n(i) as (select 1 union all select i+1 " +
		"from n where i<10) select sum(i) from n"}, want: "55\n"},
	{argv: []string{"sqlite3", ":memory:"}, stdin: "create virtual table f using fts5(x);\n" +
		"insert into f values('the quick fox'),('lazy dog');\n" +
		"select x from f where f match 'fox';\n", want: "the quick fox\n"},
	{argv: []string{"sqlite3", ":memory:", "select sum(x) over (order by x) from (values(1),(2)) " +
		"as t(x)"}, want: "", code: 1},
	{argv: []string{"sqlite3", ":memory:", "select sum(column1) over (order by column1) from " +
		"(values(1),(2))"}, want: "1\n3\n"},
	{argv: []string{"sqlite3", ":memory:", "select date('2024-02-28', '+1 day'), strftime('%j', " +
		"'2024-03-01')"}, want: "2024-02-29|061\n"},
	{argv: []string{"sqlite3", ":memory:", "select * from missing"}, code: 1},
	{argv: []string{"sqlite3", ":memory:", "select round(sqrt(2), 6)"}, want: "1.414214\n"},
	{argv: []string{"sqlite3", ":memory:", "select * from generate_series(1,3)"}, want: "1\n2\n3\n"},
	{argv: []string{"sqlite3", ":memory:"}, stdin: ".once out.txt\nselect 'to a file';\n", want: ""},
	{argv: []string{"sqlite3", ":memory:", "select 'a' regexp '^A', 'abc' like 'A%', 'abc' glob " +
		"'a*'"}, want: "0|1|1\n"},
}

var rgUses = []moreUse{
	{argv: []string{"rg", "--sort", "path", "needle", "."}, want: "./d/deep/er/text:needle in a " +
		"haystack\n./d/deep/more.txt:needle\n"},
	{argv: []string{"rg", "-n", "apple", "fruit"}, want: "2:apple 10\n4:apple 10\n"},
	{argv: []string{"rg", "-c", "apple", "fruit"}, want: "2\n"},
	{argv: []string{"rg", "-i", "DATE", "fruit"}, want: "Date 7\n"},
	{argv: []string{"rg", "-w", "10", "fruit"}, want: "apple 10\napple 10\n"},
	{argv: []string{"rg", "-v", "apple", "fruit"}, want: "banana 3\ncherry 2\nDate 7\n"},
	{argv: []string{"rg", "-o", "a[np]", "fruit"}, want: "an\nan\nap\nap\n"},
	{argv: []string{"rg", "-l", "--sort", "path", "needle"}, ours: true, want: "d/deep/er/text\n" +
		"d/deep/more.txt\n"},
	{argv: []string{"rg", "--files", "--sort", "path", "d"}, want: "d/deep/er/text\n" +
		"d/deep/more.txt\nd/script.sh\n"},
	{argv: []string{"rg", "--files", "-g", "*.txt", "--sort", "path"}, want: "d/deep/more.txt\n"},
	{argv: []string{"rg", "--files", "-t", "sh"}, want: "d/script.sh\n"},
	{argv: []string{"rg", "-e", "apple", "-e", "cherry", "-N", "fruit"}, want: "apple 10\ncherry 2\napple 10\n"},
	{argv: []string{"rg", "-F", ".", "fruit"}, code: 1},
	{argv: []string{"rg", "-A1", "-B1", "cherry", "fruit"}, want: "apple 10\ncherry 2\napple 10\n"},
	{argv: []string{"rg", "-r", "$2 $1", `(\w+) (\d+)`, "fruit2"}, want: "3 banana\n11 apple\n" +
		"2 cherry\n1 elder\n"},
	{argv: []string{"rg", "nothing", "fruit"}, code: 1},
	{argv: []string{"rg", "x", "missing"}, code: 2},
	{argv: []string{"rg", "(", "fruit"}, code: 2},
	{argv: []string{"rg", "in"}, stdin: "line in\nother\n", want: "line in\n"},
	{argv: []string{"rg", "gr.n", "umlaut"}, want: "grün\n"},
	{argv: []string{"rg", "-U", `apple 10\ncherry`, "fruit"}, want: "apple 10\ncherry 2\n"},
	{argv: []string{"rg", "--max-count", "1", "a", "fruit"}, want: "banana 3\n"},
	{argv: []string{"rg", "-q", "apple", "fruit"}},
	{argv: []string{"rg", "--json", "nothing", "fruit"}, code: 1, ours: true, want: "*"},
	{argv: []string{"rg", "--count-matches", "an", "fruit"}, want: "2\n"},
	{argv: []string{"rg", "--sort", "path", "-l", "only", "ignored"}, want: "ignored/shown\n"},
	{argv: []string{"rg", "--sort", "path", "-l", "--no-ignore", "only", "ignored"}, want: "ignored/build/x\nignored/notes.log\nignored/shown\n"},
	{argv: []string{"rg", "--sort", "path", "-l", "-uu", "only", "ignored"}, want: "ignored/.hidden\nignored/build/x\nignored/notes.log\nignored/shown\n"},
}

// gojq is jq by another name, and yq with its options for YAML.
var gojqUses = []moreUse{
	{argv: []string{"gojq", "--yaml-input", "-c", "."}, stdin: "b: [1, x]\na: {c: null}\n", want: `{"b":[1,"x"],"a":{"c":null}}` +
		"\n"},
	{argv: []string{"gojq", "--yaml-input", "--yaml-output", ".b"}, stdin: "b: [1, x]\n", want: "- 1\n- x\n"},
	{argv: []string{"gojq", "--yaml-output", ".", "json"}, want: "x: 1\n"},
	{argv: []string{"gojq", "--yaml-input", "-r", ".k"}, stdin: "k: v\n---\nk: w\n", want: "v\nw\n"},
	{argv: []string{"gojq", "--yaml-input", "."}, stdin: "a: [", code: 1},
	{argv: []string{"gojq", "-c", "map(select(.n > 1).name)"}, stdin: `[{"n":1,"name":"one"},{"n":2,"name":"two"}]`, want: `["two"]` +
		"\n"},
}

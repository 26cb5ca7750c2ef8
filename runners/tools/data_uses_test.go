package tools

// What stands beside the files of fixture for yq and mlr.
var dataFiles = map[string]string{
	"anchors.yml": "d: &d {x: 1, y: 2}\ne: {<<: *d, y: 3}\nf: [*d, *d]\ng:\n  <<: [{x: 9}, *d]\n",
	"bad.yml":     "a: [",
	"bom.csv":     "\ufeffa,b\n1,2\n",
	"service.yml": "# of a service\napiVersion: v1\nkind: Service\n" +
		"metadata: {name: web, labels: {app: web, tier: \"front\"}}\nspec:\n  ports:\n" +
		"    - port: 80\n      name: http\n    - {port: 443, name: https}\n  on: yes\n" +
		"  ratio: 1.5\n  mode: 0644\n  date: 2024-02-29\n  empty:\n  text: |\n    one\n    two\n" +
		"  folded: >-\n    a\n    b\n",
	"docs.yml":   "---\na: 1\n---\na: 2\n",
	"dos.csv":    "a,b\r\n1,2\r\n",
	"holes.csv":  "a,b\n1,x\n2,\n,\n",
	"cities.csv": "id,city\n1,Rome\n3,Oslo\n",
	"filter.jq":  ".spec.ports[0].port\n",
	"prog.mlr":   "$z = $id . \"-\" . $name\n",
	"ragged.csv": "a,b\n1\n1,2,3\n",
	"semi.csv":   "a;b\n1;2\n",
	"items.csv":  "id,name,size\n1,one,10\n2,two,20\n3,\"th, ree\",30\n",
	"t.jsonl":    "{\"id\":1,\"v\":{\"a\":2}}\n{\"id\":2,\"v\":{\"a\":3}}\n",
	"t.tsv":      "id\tname\n1\tx y\n",
}

// Debian's is jq with YAML at both ends, too.
var yqUses = []moreUse{
	{argv: []string{"yq", ".", "service.yml"}, want: "{\n  \"apiVersion\": \"v1\",\n" +
		"  \"kind\": \"Service\",\n  \"metadata\": {\n    \"name\": \"web\",\n    \"labels\": {\n" +
		"      \"app\": \"web\",\n      \"tier\": \"front\"\n    }\n  },\n  \"spec\": {\n" +
		"    \"ports\": [\n      {\n        \"port\": 80,\n        \"name\": \"http\"\n      },\n" +
		"      {\n        \"port\": 443,\n        \"name\": \"https\"\n      }\n    ],\n" +
		"    \"on\": \"yes\",\n    \"ratio\": 1.5,\n    \"mode\": 420,\n" +
		"    \"date\": \"2024-02-29\",\n    \"empty\": null,\n    \"text\": \"one\\ntwo\\n\",\n" +
		"    \"folded\": \"a b\"\n  }\n}\n"},
	{argv: []string{"yq", "-y", ".", "service.yml"}, want: "apiVersion: v1\nkind: Service\n" +
		"metadata:\n  name: web\n  labels:\n    app: web\n    tier: front\nspec:\n  ports:\n" +
		"    - port: 80\n      name: http\n    - port: 443\n      name: https\n  'on': 'yes'\n" +
		"  ratio: 1.5\n  mode: 420\n  date: '2024-02-29'\n  empty: null\n  text: 'one\n\n    two\n" +
		"\n    '\n  folded: a b\n"},
	{argv: []string{"yq", "-y", ".", "docs.yml"}, want: "a: 1\n---\na: 2\n"},
	{argv: []string{"yq", "-c", ".a", "docs.yml"}, want: "1\n2\n"},
	{argv: []string{"yq", "-r", ".metadata.name", "service.yml"}, want: "web\n"},
	{argv: []string{"yq", `.spec.ports[] | select(.name == "https") | .port`, "service.yml"}, want: "443\n"},
	{argv: []string{"yq", "-y", `.spec.ports += [{port: 8080, name: "alt"}] | .spec`, "service.yml"}, want: "ports:\n  - port: 80\n    name: http\n  - port: 443\n    name: https\n  - port: 8080\n    name: alt\n'on': 'yes'\nratio: 1.5\nmode: 420\ndate: '2024-02-29'\nempty: null\ntext: 'one\n\n  two\n\n  '\nfolded: a b\n"},
	{argv: []string{"yq", "-y", "del(.spec.text, .spec.folded)", "service.yml"}, want: "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  labels:\n    app: web\n    tier: front\nspec:\n  ports:\n    - port: 80\n      name: http\n    - port: 443\n      name: https\n  'on': 'yes'\n  ratio: 1.5\n  mode: 420\n  date: '2024-02-29'\n  empty: null\n"},
	{argv: []string{"yq", "-y", "--indentless-lists", ".spec.ports", "service.yml"}, want: "- port: 80\n  name: http\n- port: 443\n  name: https\n"},
	{argv: []string{"yq", "-y", "--indentless", ".spec", "service.yml"}, want: "ports:\n- port: 80\n  name: http\n- port: 443\n  name: https\n'on': 'yes'\nratio: 1.5\nmode: 420\ndate: '2024-02-29'\nempty: null\ntext: 'one\n\n  two\n\n  '\nfolded: a b\n"},
	{argv: []string{"yq", "--arg", "n", "web", "-r", "select(.metadata.name == $n).kind",
		"service.yml"}, want: "Service\n"},
	{argv: []string{"yq", "--argjson", "p", "81", "-c", ".spec.ports[0].port = $p | .spec.ports[0]",
		"service.yml"}, want: "{\"port\":81,\"name\":\"http\"}\n"},
	{argv: []string{"yq", "-c", ".", "anchors.yml"}, want: "{\"d\":{\"x\":1,\"y\":2},\"e\":{\"x\":1,\"y\":3},\"f\":[{\"x\":1,\"y\":2},{\"x\":1,\"y\":2}],\"g\":{\"x\":9,\"y\":2}}\n"},
	{argv: []string{"yq", "-y", ".", "anchors.yml"}, want: "d:\n  x: 1\n  y: 2\ne:\n  x: 1\n" +
		"  y: 3\nf:\n  - x: 1\n    y: 2\n  - x: 1\n    y: 2\ng:\n  x: 9\n  y: 2\n"},
	{argv: []string{"yq", "-s", "-c", "map(.a)", "docs.yml"}, want: "[1,2]\n"},
	{argv: []string{"yq", "-n", "-c", "[inputs.a]", "docs.yml"}, want: "[1,2]\n"},
	{argv: []string{"yq", "-n", "-y", `{a: [1, {b: null}], c: "no", d: "1", e: "", f: "a: b", g: "x\ny", h: true, i: 1.5}`}, want: "a:\n  - 1\n  - b: null\nc: 'no'\nd: '1'\ne: ''\nf: 'a: b'\ng: 'x\n\n  y'\nh: true\ni: 1.5\n"},
	{argv: []string{"yq", "-f", "filter.jq", "service.yml"}, want: "80\n"},
	{argv: []string{"yq", "--from-file", "filter.jq", "service.yml"}, want: "80\n"},
	{argv: []string{"yq", "-S", "-c", ".metadata", "service.yml"}, want: "{\"labels\":{\"app\":\"web\",\"tier\":\"front\"},\"name\":\"web\"}\n"},
	{argv: []string{"yq", "-S", "-y", ".metadata", "service.yml"}, want: "labels:\n  app: web\n" +
		"  tier: front\nname: web\n"},
	{argv: []string{"yq", "-e", ".missing", "service.yml"}, code: 1, want: "null\n"},
	{argv: []string{"yq", "-e", ".kind", "service.yml"}, want: "\"Service\"\n"},
	{argv: []string{"yq", ".", "bad.yml"}, code: 1},
	{argv: []string{"yq", ".", "missing.yml"}, code: 2},
	{argv: []string{"yq", ".[", "service.yml"}, code: 3},
	{argv: []string{"yq", ".kind.x", "service.yml"}, code: 5},
	{argv: []string{"yq", "."}, stdin: "# of a service\napiVersion: v1\nkind: Service\n" +
		"metadata: {name: web, labels: {app: web, tier: \"front\"}}\nspec:\n  ports:\n" +
		"    - port: 80\n      name: http\n    - {port: 443, name: https}\n  on: yes\n" +
		"  ratio: 1.5\n  mode: 0644\n  date: 2024-02-29\n  empty:\n  text: |\n    one\n    two\n" +
		"  folded: >-\n    a\n    b\n", want: "{\n  \"apiVersion\": \"v1\",\n" +
		"  \"kind\": \"Service\",\n  \"metadata\": {\n    \"name\": \"web\",\n    \"labels\": {\n" +
		"      \"app\": \"web\",\n      \"tier\": \"front\"\n    }\n  },\n  \"spec\": {\n" +
		"    \"ports\": [\n      {\n        \"port\": 80,\n        \"name\": \"http\"\n      },\n" +
		"      {\n        \"port\": 443,\n        \"name\": \"https\"\n      }\n    ],\n" +
		"    \"on\": \"yes\",\n    \"ratio\": 1.5,\n    \"mode\": 420,\n" +
		"    \"date\": \"2024-02-29\",\n    \"empty\": null,\n    \"text\": \"one\\ntwo\\n\",\n" +
		"    \"folded\": \"a b\"\n  }\n}\n"},
	{argv: []string{"yq", "-y", "."}, stdin: "---\na: 1\n---\na: 2\n", want: "a: 1\n---\na: 2\n"},
	{argv: []string{"yq", "-c", ".spec.mode,.spec.ratio,.spec.on,.spec.date,.spec.empty",
		"service.yml"}, want: "420\n1.5\n\"yes\"\n\"2024-02-29\"\nnull\n"},
	{argv: []string{"yq", "-r", ".spec.ports[] | [.name, .port] | @csv", "service.yml"}, want: "\"http\",80\n\"https\",443\n"},
	{argv: []string{"yq", "-r", ".spec | keys[]", "service.yml"}, want: "date\nempty\nfolded\n" +
		"mode\non\nports\nratio\ntext\n"},
	{argv: []string{"yq", "-c", "to_entries | map(.key)", "service.yml"}, want: "[\"apiVersion\",\"kind\",\"metadata\",\"spec\"]\n"},
	{argv: []string{"yq", "-y", "-w", "20", "-n", `{a: "some words that are longer than twenty columns"}`}, want: "a: some words that are\n  longer than twenty columns\n"},
	{argv: []string{"yq", "-y", "-n", `{a: "some words that are longer than eighty columns, so that they are folded where it is not said otherwise"}`}, want: "a: some words that are longer than eighty columns, so that they are folded where it\n  is not said otherwise\n"},
	{argv: []string{"yq", "-y", "--width", "200", "-n", `{a: "some words that are longer than eighty columns, so that they are folded where it is not said otherwise"}`}, want: "a: some words that are longer than eighty columns, so that they are folded where it is not said otherwise\n"},
	{argv: []string{"yq", "-y", "--explicit-start", "-n", "{a: 1}"}, want: "---\na: 1\n"},
	{argv: []string{"yq", "-y", "--explicit-start", "--explicit-end", ".", "docs.yml"}, want: "---\na: 1\n...\n---\na: 2\n...\n"},
	{argv: []string{"yq", "-y", "--yml-out-ver", "1.2", "-n", `["yes", "on", "true", "1", "0o7", "012", "~", "null", "", "1:30", "2024-01-01", "=", "<<"]`}, want: "- yes\n- on\n- 'true'\n- '1'\n- '0o7'\n- '012'\n- '~'\n- 'null'\n- ''\n- 1:30\n- 2024-01-01\n- =\n- '<<'\n"},
	{argv: []string{"yq", "-y", "-n", `["yes", "on", "true", "1", "0o7", "012", "~", "null", "", "1:30", "2024-01-01", "2024-01-01 10:00:00", "=", "<<", "-", "- a", "#x", "a #b", "a:", "@x", "%x", "{", "[", "\t", " a", "a ", "ü", "\u0001", "\u2028", "🙂", "*a", "&a", "!a", "?", "? a", "0x1f", "1e3", "1.0e+3", "1_000", ".5", ".", "..", "---", "...", "a\n", "a\n\nb\n", "\n", "'", "\"", "\\"]`}, want: "- 'yes'\n- 'on'\n- 'true'\n- '1'\n- 0o7\n- '012'\n- '~'\n- 'null'\n- ''\n- '1:30'\n- '2024-01-01'\n- '2024-01-01 10:00:00'\n- '='\n- '<<'\n- '-'\n- '- a'\n- '#x'\n- 'a #b'\n- 'a:'\n- '@x'\n- '%x'\n- '{'\n- '['\n- \"\\t\"\n- ' a'\n- 'a '\n- ü\n- \"\\x01\"\n- '\u2028  '\n- 🙂\n- '*a'\n- '&a'\n- '!a'\n- '?'\n- '? a'\n- '0x1f'\n- 1e3\n- '1.0e+3'\n- '1_000'\n- '.5'\n- .\n- ..\n- '---'\n- '...'\n- 'a\n\n  '\n- 'a\n\n\n  b\n\n  '\n- '\n\n  '\n- ''''\n- '\"'\n- \\\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "[0x1F, 0o17, 010, +12, -3, 1e3, .5, -1.5E-3, 1., " +
		"12345678901234567890, .inf, 1_000, 0b1, 1:30, 08x]\n", ours: true, want: "[31,15,8,12,-3,1000.0,0.5,-0.0015,1.0,12345678901234567890,1.7976931348623157E+308,\"1_000\",\"0b1\",\"1:30\",\"08x\"]\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "[null, Null, NULL, ~, \"~\", nULL, true, True, " +
		"TRUE, tRUE, false, y, n, on, off, Yes]\n", want: "[null,null,null,null,\"~\",\"nULL\",true,true,true,\"tRUE\",false,\"y\",\"n\",\"on\",\"off\",\"Yes\"]\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "{1: a, true: b, null: c, 1.5: d, \"x\": e, ~: f}\n", ours: true, want: "{\"1\":\"a\",\"true\":\"b\",\"null\":\"f\",\"1.5\":\"d\",\"x\":\"e\"}\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "{a: !!str 123, b: !!int \"7\", c: !!float 3, d: !x " +
		"foo, e: !x {k: 1}, f: !x [1], g: !!binary aGk=, h: ! 12, i: !!set {a, b}}\n", ours: true, want: "{\"a\":\"123\",\"b\":7,\"c\":3,\"d\":\"foo\",\"e\":{\"k\":1},\"f\":[1],\"g\":\"aGk=\",\"h\":\"12\",\"i\":{\"a\":null,\"b\":null}}\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "{a: 1, a: 2}\n", want: "{\"a\":2}\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "plain\n", want: "\"plain\"\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "\"quoted \\u00e9 \\x41\"\n", want: "\"quoted é A\"\n"},
	{argv: []string{"yq", "-c", "."}},
	{argv: []string{"yq", "-c", "."}, stdin: "---\n", want: "null\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "# only a comment\n"},
	{argv: []string{"yq", "-y", "."}, stdin: "[]\n", want: "[]\n"},
	{argv: []string{"yq", "-y", "."}, stdin: "{}\n", want: "{}\n"},
	{argv: []string{"yq", "-y", "."}, stdin: "[[1, [2]], {a: [{b: [c]}]}, [], {}]\n", want: "- - 1\n  - - 2\n- a:\n    - b:\n        - c\n- []\n- {}\n"},
	{argv: []string{"yq", "-y", ".[] | {a: .}"}, stdin: "[1, 2]\n", want: "a: 1\n---\na: 2\n"},
	{argv: []string{"yq", "-c", "."}, stdin: "{a: [1\n", code: 1},
	{argv: []string{"yq", "-c", ".[] "}, stdin: "*x\n", code: 1},
	{argv: []string{"yq", "-c", "."}, stdin: "[&a 1, *a, &a 2, *a]\n", code: 1},
	{argv: []string{"yq", "--tab", "."}, stdin: "{a: [1]}\n", want: "{\n\t\"a\": [\n\t\t1\n\t]\n}\n"},
	{argv: []string{"yq", "--indent", "1", "."}, stdin: "{a: [1]}\n", want: "{\n \"a\": [\n  1\n" +
		" ]\n}\n"},
	{argv: []string{"yq", "-j", ".[]"}, stdin: "[a, b]\n", want: "ab"},
	{argv: []string{"yq", "-yr", "."}, stdin: "{a: b}\n", ours: true, want: "a: b\n"},
	{argv: []string{"yq", "-n", "$ARGS.positional", "-c", "--args", "a", "b"}, want: "[\"a\",\"b\"]\n"},
	{argv: []string{"yq", "-c", "--stream", "."}, stdin: "{a: [1]}\n", want: "[[\"a\",0],1]\n" +
		"[[\"a\",0]]\n[[\"a\"]]\n"},
	{argv: []string{"yq", "-M", "."}, stdin: "{a: 1}\n", want: "{\n  \"a\": 1\n}\n"},
	{argv: []string{"yq", "-y", "-i", "."}, code: 1},
	{argv: []string{"yq", "-i", ".", "service.yml"}, code: 1},
	{argv: []string{"yq", "-r", ".a | length"}, stdin: "a: \"üx\"\n", want: "2\n"},
	{argv: []string{"yq", "-y", "."}, stdin: "{\"json\": [1, 2.50, \"x\"], \"n\": 1e20, \"t\": " +
		"100000}\n", want: "json:\n  - 1\n  - 2.5\n  - x\nn: 1.0e+20\nt: 100000\n"},
	{argv: []string{"yq", "-y", ".ratio"}, stdin: "ratio: 1.0\n", ours: true, want: "1.0\n"},
	{argv: []string{"yq", "-Y", ".", "service.yml"}, code: 2, ours: true},
	{argv: []string{"yq", "-y", "-i", `.kind = "Deployment"`, "service.yml"}},
	{argv: []string{"yq", "-yi", ".x = 1", "service.yml", "docs.yml"}},
	{argv: []string{"yq", "-y", "-i", ".[", "service.yml"}, code: 3},
}

// Debian 12's is older: 6.6.
var mlrUses = []moreUse{
	{argv: []string{"mlr", "--icsv", "--opprint", "cat", "items.csv"}, want: "id name    size\n" +
		"1  one     10\n2  two     20\n3  th, ree 30\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "cat", "items.csv"}, want: "[\n{\n  \"id\": 1,\n" +
		"  \"name\": \"one\",\n  \"size\": 10\n},\n{\n  \"id\": 2,\n  \"name\": \"two\",\n  \"size\": 20\n},\n{\n  \"id\": 3,\n  \"name\": \"th, ree\",\n  \"size\": 30\n}\n]\n"},
	{argv: []string{"mlr", "--icsv", "--ojsonl", "cat", "items.csv"}, want: "{\"id\": 1, \"name\": \"one\", \"size\": 10}\n{\"id\": 2, \"name\": \"two\", \"size\": 20}\n{\"id\": 3, \"name\": \"th, ree\", \"size\": 30}\n"},
	{argv: []string{"mlr", "--c2p", "sort", "-nr", "size", "items.csv"}, want: "id name    size\n3  th, ree 30\n2  two     20\n1  one     10\n"},
	{argv: []string{"mlr", "--csv", "sort", "-f", "name", "then", "head", "-n", "2", "items.csv"}, want: "id,name,size\n1,one,10\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "filter", "$size > 10", "items.csv"}, want: "id,name,size\n2,two,20\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "filter", `$name =~ "^t"`, "items.csv"}, want: "id,name,size\n2,two,20\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "put", "$double = $size * 2; $name = toupper($name)", "items.csv"}, want: "id,name,size,double\n1,ONE,10,20\n2,TWO,20,40\n3,\"TH, REE\",30,60\n"},
	{argv: []string{"mlr", "--csv", "cut", "-f", "id,size", "items.csv"}, want: "id,size\n1,10\n2,20\n3,30\n"},
	{argv: []string{"mlr", "--csv", "cut", "-x", "-f", "id", "items.csv"}, want: "name,size\none,10\ntwo,20\n\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "cut", "-o", "-f", "size,id", "items.csv"}, want: "size,id\n10,1\n20,2\n30,3\n"},
	{argv: []string{"mlr", "--csv", "rename", "id,key", "items.csv"}, want: "key,name,size\n1,one,10\n2,two,20\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "reorder", "-e", "-f", "id", "items.csv"}, want: "name,size,id\none,10,1\ntwo,20,2\n\"th, ree\",30,3\n"},
	{argv: []string{"mlr", "--csv", "head", "-n", "1", "items.csv"}, want: "id,name,size\n1,one,10\n"},
	{argv: []string{"mlr", "--csv", "tail", "-n", "1", "items.csv"}, want: "id,name,size\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "uniq", "-g", "name", "items.csv"}, want: "name\none\ntwo\n\"th, ree\"\n"},
	{argv: []string{"mlr", "--csv", "count", "items.csv"}, want: "count\n3\n"},
	{argv: []string{"mlr", "--csv", "count-distinct", "-f", "name", "items.csv"}, want: "name,count\none,1\ntwo,1\n\"th, ree\",1\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "stats1", "-a", "sum,mean,min,max,count,p50", "-f", "size", "items.csv"}, want: "[\n{\n  \"size_sum\": 60,\n  \"size_mean\": 20,\n  \"size_min\": 10,\n  \"size_max\": 30,\n  \"size_count\": 3,\n  \"size_p50\": 20\n}\n]\n"},
	{argv: []string{"mlr", "--icsv", "--opprint", "stats1", "-a", "mean", "-f", "size", "-g", "name", "items.csv"}, want: "name    size_mean\none     10\ntwo     20\nth, ree 30\n"},
	{argv: []string{"mlr", "--csv", "join", "-j", "id", "-f", "cities.csv", "items.csv"}, want: "id,city,name,size\n1,Rome,one,10\n3,Oslo,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "join", "--np", "--ul", "--ur", "-j", "id", "-f", "cities.csv", "items.csv"}, want: "id,name,size\n2,two,20\n"},
	{argv: []string{"mlr", "--csv", "join", "--ul", "--lp", "l_", "-j", "id", "-f", "items.csv", "cities.csv"}, code: 1, ours: true, want: "id,l_name,l_size,city\n1,one,10,Rome\n3,\"th, ree\",30,Oslo\n"},
	{argv: []string{"mlr", "--icsv", "--otsv", "cat", "items.csv"}, want: "id\tname\tsize\n1\tone\t10\n2\ttwo\t20\n3\tth, ree\t30\n"},
	{argv: []string{"mlr", "--itsv", "--ocsv", "cat", "t.tsv"}, want: "id,name\n1,x y\n"},
	{argv: []string{"mlr", "--icsv", "--oxtab", "cat", "items.csv"}, want: "id   1\nname one\nsize 10\n\nid   2\nname two\nsize 20\n\nid   3\nname th, ree\nsize 30\n"},
	{argv: []string{"mlr", "--icsv", "--omd", "cat", "items.csv"}, want: "| id | name | size |\n| --- | --- | --- |\n| 1 | one | 10 |\n| 2 | two | 20 |\n| 3 | th, ree | 30 |\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "put", `$m = {"a": [1, $id]}`, "items.csv"}, want: "[\n{\n  \"id\": 1,\n  \"name\": \"one\",\n  \"size\": 10,\n  \"m\": {\n    \"a\": [1, 1]\n  }\n},\n{\n  \"id\": 2,\n  \"name\": \"two\",\n  \"size\": 20,\n  \"m\": {\n    \"a\": [1, 2]\n  }\n},\n{\n  \"id\": 3,\n  \"name\": \"th, ree\",\n  \"size\": 30,\n  \"m\": {\n    \"a\": [1, 3]\n  }\n}\n]\n"},
	{argv: []string{"mlr", "--ijsonl", "--ocsv", "flatten", "t.jsonl"}, want: "id,v.a\n1,2\n2,3\n"},
	{argv: []string{"mlr", "--ijsonl", "--ojson", "put", "$v.a += 1", "t.jsonl"}, want: "[\n{\n  \"id\": 1,\n  \"v\": {\n    \"a\": 3\n  }\n},\n{\n  \"id\": 2,\n  \"v\": {\n    \"a\": 4\n  }\n}\n]\n"},
	{argv: []string{"mlr", "--json", "sort", "-nr", "id", "t.jsonl"}, want: "[\n{\n  \"id\": 2,\n  \"v\": {\n    \"a\": 3\n  }\n},\n{\n  \"id\": 1,\n  \"v\": {\n    \"a\": 2\n  }\n}\n]\n"},
	{argv: []string{"mlr", "--csv", "template", "-f", "size,id,new", "items.csv"}, want: "size,id,new\n10,1,\n20,2,\n30,3,\n"},
	{argv: []string{"mlr", "--csv", "--implicit-csv-header", "--headerless-csv-output", "cut", "-f", "2", "items.csv"}, want: "name\none\ntwo\n\"th, ree\"\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "--ifs", "semicolon", "cat", "semi.csv"}, want: "[\n{\n  \"a\": 1,\n  \"b\": 2\n}\n]\n"},
	{argv: []string{"mlr", "--csv", "--quote-all", "cat", "items.csv"}, want: "\"id\",\"name\",\"size\"\n\"1\",\"one\",\"10\"\n\"2\",\"two\",\"20\"\n\"3\",\"th, ree\",\"30\"\n"},
	{argv: []string{"mlr", "--csv", "sec2gmt", "id", "items.csv"}, want: "id,name,size\n1970-01-01T00:00:01Z,one,10\n1970-01-01T00:00:02Z,two,20\n1970-01-01T00:00:03Z,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "put", `$d = strftime($id, "%Y-%m-%d")`, "items.csv"}, want: "id,name,size,d\n1,one,10,1970-01-01\n2,two,20,1970-01-01\n3,\"th, ree\",30,1970-01-01\n"},
	{argv: []string{"mlr", "--csv", "put", "$d = sec2gmtdate($id * 86400)", "items.csv"}, want: "id,name,size,d\n1,one,10,1970-01-02\n2,two,20,1970-01-03\n3,\"th, ree\",30,1970-01-04\n"},
	{argv: []string{"mlr", "--csv", "put", `$n = gsub($name, "[aeiou]", "_")`, "items.csv"}, want: "id,name,size,n\n1,one,10,_n_\n2,two,20,tw_\n3,\"th, ree\",30,\"th, r__\"\n"},
	{argv: []string{"mlr", "--csv", "put", "$l = strlen($name); $f = format_values", "items.csv"}, want: "id,name,size,l\n1,one,10,3\n2,two,20,3\n3,\"th, ree\",30,7\n"},
	{argv: []string{"mlr", "--csv", "put", "-q", `tee > $id.".csv", $*`, "items.csv"}},
	{argv: []string{"mlr", "--csv", "split", "-n", "1", "items.csv"}},
	{argv: []string{"mlr", "--csv", "step", "-a", "delta,shift", "-f", "size", "items.csv"}, want: "id,name,size,size_delta,size_shift\n1,one,10,0,\n2,two,20,10,10\n3,\"th, ree\",30,10,20\n"},
	{argv: []string{"mlr", "--csv", "merge-fields", "-a", "sum", "-f", "id,size", "-o", "x", "items.csv"}, want: "name,x_sum\none,11\ntwo,22\n\"th, ree\",33\n"},
	{argv: []string{"mlr", "--csv", "top", "-n", "1", "-f", "size", "-a", "items.csv"}, want: "id,name,size\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "sec2gmt", "-3", "id", "then", "altkv", "items.csv"}, code: 1, ours: true, want: "1970-01-01T00:00:01.000Z,2\none,10\n"},
	{argv: []string{"mlr", "--csv", "fill-empty", "-v", "X", "holes.csv"}, want: "a,b\n1,x\n2,X\nX,X\n"},
	{argv: []string{"mlr", "--csv", "fill-down", "-a", "-f", "b", "holes.csv"}, want: "a,b\n1,x\n2,\n,\n"},
	{argv: []string{"mlr", "--icsv", "--opprint", "--barred", "cat", "items.csv"}, want: "+----+---------+------+\n| id | name    | size |\n+----+---------+------+\n| 1  | one     | 10   |\n| 2  | two     | 20   |\n| 3  | th, ree | 30   |\n+----+---------+------+\n"},
	{argv: []string{"mlr", "--icsv", "--opprint", "--right", "cat", "items.csv"}, want: "id    name size\n 1     one   10\n 2     two   20\n 3 th, ree   30\n"},
	{argv: []string{"mlr", "-n", "put", "end { print 1 + 2 }"}, want: "3\n"},
	{argv: []string{"mlr", "-n", "put", `end { print splitax("a,b", ",") }`}, want: "[\"a\", \"b\"]\n"},
	{argv: []string{"mlr", "-n", "put", "func f(x) { return x ** 2 } end { for (i = 0; i < 3; i += 1) { print f(i) } }"}, want: "0\n1\n4\n"},
	{argv: []string{"mlr", "-n", "put", `end { print sort([5, 2, 3], "nr"); print fmtnum(3.1, "%08.3lf"); print 7 // 2; print 7 / 2; print 1 <=> 2 }`}, want: "[5, 3, 2]\n0003.100\n3\n3.5\n-1\n"},
	{argv: []string{"mlr", "-n", "put", `end { print strptime("2024-02-29T00:00:00Z", "%Y-%m-%dT%H:%M:%SZ"); print sec2gmt(0) }`}, want: "1709164800\n1970-01-01T00:00:00Z\n"},
	{argv: []string{"mlr", "-n", "put", `end { print md5("a"); print crc32("a") }`}, code: 1},
	{argv: []string{"mlr", "--icsv", "--ojson", "put", "-q", `@sum[$name] += $size; end { emit @sum, "name" }`, "items.csv"}, want: "[\n{\n  \"name\": \"one\",\n  \"sum\": 10\n},\n{\n  \"name\": \"two\",\n  \"sum\": 20\n},\n{\n  \"name\": \"th, ree\",\n  \"sum\": 30\n}\n]\n"},
	{argv: []string{"mlr", "--csv", "nothing", "items.csv"}},
	{argv: []string{"mlr", "--csv", "sort", "-t", "name", "items.csv"}, want: "id,name,size\n1,one,10\n3,\"th, ree\",30\n2,two,20\n"},
	{argv: []string{"mlr", "--csv", "cat", "missing.csv"}, code: 1},
	{argv: []string{"mlr", "--csv", "nosuchverb", "items.csv"}, code: 1},
	{argv: []string{"mlr", "--csv", "put", "$x = ", "items.csv"}, code: 1},
	{argv: []string{"mlr", "--csv", "cat"}, stdin: "id,name,size\n1,one,10\n2,two,20\n3,\"th, ree\",30\n", want: "id,name,size\n1,one,10\n2,two,20\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--c2j", "cat", "then", "put", "$a=NR", "items.csv"}, want: "[\n{\n  \"id\": 1,\n  \"name\": \"one\",\n  \"size\": 10,\n  \"a\": 1\n},\n{\n  \"id\": 2,\n  \"name\": \"two\",\n  \"size\": 20,\n  \"a\": 2\n},\n{\n  \"id\": 3,\n  \"name\": \"th, ree\",\n  \"size\": 30,\n  \"a\": 3\n}\n]\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "--records-per-batch", "1", "cat", "items.csv"}, want: "[\n{\n  \"id\": 1,\n  \"name\": \"one\",\n  \"size\": 10\n},\n{\n  \"id\": 2,\n  \"name\": \"two\",\n  \"size\": 20\n},\n{\n  \"id\": 3,\n  \"name\": \"th, ree\",\n  \"size\": 30\n}\n]\n"},
	{argv: []string{"mlr", "--csv", "--allow-ragged-csv-input", "cat", "ragged.csv"}, ours: true, want: "a\n1\n1,2,3\n"},
	// Debian's ends with 0 now and then: mlr.patch says why.
	{argv: []string{"mlr", "--csv", "cat", "ragged.csv"}, code: 1, ours: true},
	{argv: []string{"mlr", "--c2t", "put", `$name = "a\tb"`, "items.csv"}, want: "id\tname\tsize\n1\ta\\tb\t10\n2\ta\\tb\t20\n3\ta\\tb\t30\n"},
	{argv: []string{"mlr", "--csv", "decimate", "-n", "2", "items.csv"}, want: "id,name,size\n2,two,20\n"},
	{argv: []string{"mlr", "--csv", "histogram", "-f", "size", "--lo", "0", "--hi", "40", "--nbins", "4", "items.csv"}, want: "bin_lo,bin_hi,size_count\n0,10,0\n10,20,1\n20,30,1\n30,40,1\n"},
	{argv: []string{"mlr", "--csv", "tac", "items.csv"}, want: "id,name,size\n3,\"th, ree\",30\n2,two,20\n1,one,10\n"},
	{argv: []string{"mlr", "--csv", "regularize", "items.csv"}, want: "id,name,size\n1,one,10\n2,two,20\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--csv", "case", "-u", "-k", "-f", "id", "items.csv"}, ours: true, want: "ID,name,size\n1,one,10\n2,two,20\n3,\"th, ree\",30\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "cat", "dos.csv"}, want: "[\n{\n  \"a\": 1,\n  \"b\": 2\n}\n]\n"},
	{argv: []string{"mlr", "--icsv", "--ojson", "cat", "bom.csv"}, want: "[\n{\n  \"a\": 1,\n  \"b\": 2\n}\n]\n"},
	{argv: []string{"mlr", "--gen-start", "1", "--gen-stop", "3", "--igen", "--ojson", "cat"}, want: "[\n{\n  \"i\": 1\n},\n{\n  \"i\": 2\n},\n{\n  \"i\": 3\n}\n]\n"},
	{argv: []string{"mlr", "--csv", "--from", "items.csv", "put", "-f", "prog.mlr"}, want: "id,name,size,z\n1,one,10,1-one\n2,two,20,2-two\n3,\"th, ree\",30,\"3-th, ree\"\n"},
	{argv: []string{"mlr", "--csv", "put", `system("ls")`, "items.csv"}, code: 1, ours: true},
	{argv: []string{"mlr", "--icsv", "--ojson", "put", `$y = exec("echo", ["x"])`, "items.csv"}, code: 1, ours: true},
	{argv: []string{"mlr", "--csv", "cat", "http://example.org/x.csv"}, code: 1, ours: true},
	{argv: []string{"mlr", "--csv", "unsparsify", "items.csv", "cities.csv"}, want: "id,name,size,city\n1,one,10,\n2,two,20,\n3,\"th, ree\",30,\n1,,,Rome\n3,,,Oslo\n"},
	{argv: []string{"mlr", "-I", "--csv", "put", "$x = 1", "items.csv", "cities.csv"}},
}

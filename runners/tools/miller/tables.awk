# Writes gocc's tables of a parser as lists of what is in them: nine of ten of their cells are empty, and each state has a row of its own
# in each table, though many rows are the same. As gocc writes them they are 29 MB of every module that holds them.
#
# usage: awk -f tables.awk actiontable.go gototable.go >tables.go
# takes the place of both files, and of the cells that parser.go looks at: actionAt(state, symbol), gotoAt(state, symbol).

# One cell a line, in the order of the symbols: nil, shift(N), reduce(N), accept(true) in the one table, and N, -1 for none, in the other.
/^\taction/ { table = "action"; start() }
/^\tgoto/ { table = "goto"; start() }
/^\t\t\t(nil|shift|reduce|accept)/ || /^\t\t-?[0-9]+,/ {
	cell = $1
	sub(/,$/, "", cell)
	if (cell != "nil" && cell != "-1") {
		kind = 0
		if (cell ~ /^reduce/) kind = 1
		if (cell ~ /^accept/) kind = 2
		gsub(/[^0-9]/, "", cell)
		row = row (symbol * 65536 + kind * 16384 + cell) ","
	}
	symbol++
}
/canRecover: true/ { print "tables.awk: a state can recover, which is not written" >"/dev/stderr"; failed = 1; exit 1 }
/^\t},/ {
	if (!((table, row) in number)) {
		number[table, row] = rows[table]++
		starts[table] = starts[table] (cells[table] + 0) ","
		cells[table] += gsub(/,/, ",", row)
		lists[table] = lists[table] row "\n"
	}
	states[table] = states[table] number[table, row] ","
}
function start() { row = ""; symbol = 0 }
function list(name, type, table, text) {
	printf "var %s%s = [...]%s{\n%s\n}\n\n", table, name, type, text
}
END {
	if (failed) exit 1
	print "// Made from gocc's tables by tables.awk.\n\npackage parser\n"
	for (i = split("action goto", names, " "); i > 0; i--) {
		list("Rows", "uint16", names[i], states[names[i]])
		list("Starts", "uint32", names[i], starts[names[i]] cells[names[i]] ",")
		list("Cells", "uint32", names[i], lists[names[i]])
	}
	print "// cell is what a row has for a symbol, and whether it has anything.\n" \
	"func cell(cells []uint32, symbol int) (kind, value int, ok bool) {\n" \
	"\tfor _, c := range cells {\n" \
	"\t\tif int(c>>16) == symbol {\n" \
	"\t\t\treturn int(c >> 14 & 3), int(c & 16383), true\n" \
	"\t\t}\n\t}\n\treturn 0, 0, false\n}\n\n" \
	"func actionAt(state, symbol int) action {\n" \
	"\tr := actionRows[state]\n" \
	"\tkind, value, ok := cell(actionCells[actionStarts[r]:actionStarts[r+1]], symbol)\n" \
	"\tswitch {\n\tcase !ok:\n\t\treturn nil\n\tcase kind == 1:\n\t\treturn reduce(value)\n\tcase kind == 2:\n\t\treturn accept(true)\n\t}\n" \
	"\treturn shift(value)\n}\n\n" \
	"func gotoAt(state, symbol int) int {\n" \
	"\tr := gotoRows[state]\n" \
	"\tif _, value, ok := cell(gotoCells[gotoStarts[r]:gotoStarts[r+1]], symbol); ok {\n\t\treturn value\n\t}\n\treturn -1\n}"
}

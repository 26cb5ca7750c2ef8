#!/bin/sh
# Builds the one true awk for WASI.
#
# usage: build.sh TOOLS UNPACKED OUT.wasm      with $WASM_CC and $WASM_LINK
set -eu
tools=$1 out=$3
cd "$2"
patch -s -p0 <"$tools/awk/awk.patch"
bison -Wnone -d awkgram.y
cc -w -o maketab maketab.c
./maketab awkgram.tab.h >proctab.c

mkdir obj
export flags="-O2 -w -ffunction-sections -fdata-sections
	-I. -I$tools/compat/include -include posix.h"
for f in awkgram.tab.c b.c main.c parse.c proctab.c tran.c lib.c run.c lex.c "$tools"/compat/*.c; do
	echo "$f"
done | xargs -P "$(nproc)" -I{} sh -c '$WASM_CC $flags -c -o "obj/$(basename "{}").o" "{}"'
# Its parser and its interpreter recurse as deep as the program is nested.
$WASM_LINK -z stack-size=1048576 -o "$out" obj/*.o

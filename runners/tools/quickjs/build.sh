#!/bin/sh
# Builds QuickJS for WASI.
#
# usage: build.sh TOOLS UNPACKED OUT.wasm      with $WASM_CC and $WASM_LINK
set -eu
tools=$1 out=$3
cd "$2"
patch -s -p0 <"$tools/quickjs/quickjs.patch"
{
	echo 'const char repl_js[] = {'
	od -An -v -tu1 repl.js | sed 's/  */,/g; s/^,//; s/$/,/'
	echo '0}; const int repl_js_size = sizeof(repl_js) - 1;'
} >repl.c

mkdir obj
export flags="-O2 -w -ffunction-sections -fdata-sections -I. -I$tools/compat/include -include posix.h
	-include $tools/quickjs/wasi.h -DCONFIG_VERSION=\"$(cat VERSION)\""
for f in quickjs.c cutils.c dtoa.c libregexp.c libunicode.c quickjs-libc.c qjs.c repl.c "$tools"/quickjs/os.c "$tools"/quickjs/agent.c "$tools"/compat/*.c; do
	echo "$f"
done | xargs -P "$(nproc)" -I{} sh -c '$WASM_CC $flags -c -o "obj/$(basename "{}").o" "{}"'
$WASM_LINK -z stack-size=4194304 -o "$out" obj/*.o

#!/bin/sh
# Builds jq, with oniguruma for its regular expressions, for WASI.
#
# usage: build.sh TOOLS UNPACKED ONIGURUMA OUT.wasm      with $WASM_CC and $WASM_LINK
#
# Neither has a configure script in Debian's sources, nor is one needed: wasi.h
# says what it would find.
set -eu
tools=$1 onig=$3 out=$4
cd "$2"
patch -s -p1 <"$tools/jq/jq.patch"

version=$(awk '$1 == "jq" { sub(/-.*/, "", $2); print $2 }' "$tools/data.lock")
echo "#define JQ_VERSION \"$version\"" >src/version.h
echo '#define JQ_CONFIG "wasi"' >src/config_opts.inc
sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' src/builtin.jq >src/builtin.inc
: >"$onig/src/config.h"

{
	ls src/*.c src/decNumber/decContext.c src/decNumber/decNumber.c | grep -v inject_errors
	for f in regparse regcomp regexec regenc regerror regext regsyntax regtrav regversion st onig_init \
		unicode unicode_unfold_key unicode_fold1_key unicode_fold2_key unicode_fold3_key \
		ascii utf8 utf16_be utf16_le utf32_be utf32_le iso8859_1 euc_jp euc_jp_prop sjis sjis_prop; do
		echo "$onig/src/$f.c"
	done
	echo "$tools"/compat/*.c | tr ' ' '\n'
} >files
mkdir obj
export flags="-O2 -w -ffunction-sections -fdata-sections -DHAVE_CONFIG_H -I. -Isrc -I$onig/src
	-I$tools/compat/include -include posix.h -include $tools/jq/wasi.h"
xargs -P "$(nproc)" -I{} sh -c '$WASM_CC $flags -c -o "obj/$(basename "{}").o" "{}"' <files
$WASM_LINK -z stack-size=1048576 -o "$out" obj/*.o

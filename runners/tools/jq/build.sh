#!/bin/sh
# Builds jq, with oniguruma for its regular expressions and libyaml for yq, for WASI: one module, two commands.
#
# usage: build.sh TOOLS UNPACKED ONIGURUMA LIBYAML OUT.wasm      with $WASM_CC and $WASM_LINK
#
# None has a configure script in Debian's sources, nor is one needed: wasi.h
# says what it would find.
set -eu
tools=$1 onig=$3 yaml=$4 out=$5
cd "$2"
patch -s -p1 <"$tools/jq/jq.patch"
patch -s -p1 <"$tools/yq/jq.patch"
(cd "$yaml" && patch -s -p1 <"$tools/yq/libyaml.patch")
# Both have a parser.c.
for f in api emitter loader parser reader scanner writer; do
	mv "$yaml/src/$f.c" "src/yaml_$f.c"
done

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
	echo "$tools"/yq/*.c "$tools"/compat/*.c | tr ' ' '\n'
} >files
mkdir obj
export flags="-O2 -w -ffunction-sections -fdata-sections -DHAVE_CONFIG_H -I. -Isrc -I$onig/src -I$yaml/include -I$yaml/src -I$tools/yq
	-DYQ_JQ_VERSION=\"$version\" -DYAML_VERSION_MAJOR=0 -DYAML_VERSION_MINOR=2 -DYAML_VERSION_PATCH=5 -DYAML_VERSION_STRING=\"0.2.5\"
	-I$tools/compat/include -include posix.h -include $tools/jq/wasi.h"
xargs -P "$(nproc)" -I{} sh -c '$WASM_CC $flags -c -o "obj/$(basename "{}").o" "{}"' <files
$WASM_LINK -z stack-size=1048576 -o "$out" obj/*.o

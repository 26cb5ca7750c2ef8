#!/bin/sh
# Builds toybox for WASI as one module with the commands named in `commands`.
#
# usage: build.sh TOOLS UNPACKED ZLIB OUT.wasm      with $WASM_CC and $WASM_LINK
#
# toybox's own scripts make its generated headers; the compiling is done here,
# since theirs would link what the host has.
set -eu
tools=$1 zlib=$3 out=$4
cd "$2"
patch -s -p0 <"$tools/toybox/toybox.patch"

# Its configuration: the commands, and of the switches those that are wanted.
scripts/genconfig.sh >/dev/null 2>&1
wanted=" $(tr 'a-z\n' 'A-Z ' <"$tools/toybox/commands") TOYBOX TOYBOX_FLOAT TOYBOX_FORK TOYBOX_HELP TOYBOX_HELP_DASHDASH TOYBOX_LSM_NONE SORT_FLOAT "
sed -n 's/^config //p' Config.in generated/Config.in generated/Config.probed | LC_ALL=C sort -u |
	while read -r symbol; do
		case "$wanted" in
		*" $symbol "*) echo "CONFIG_$symbol=y" ;;
		*) echo "# CONFIG_$symbol is not set" ;;
		esac
	done >.config
printf 'CONFIG_TOYBOX_UID_SYS=100\nCONFIG_TOYBOX_UID_USR=500\n' >>.config
NOBUILD=1 CC=cc HOSTCC=cc scripts/make.sh >make.log 2>&1 || { cat make.log >&2; exit 1; }

# The files that hold those commands, and the library without the parts that
# wasi.c stands for.
symbols=$(sed -n 's/^CONFIG_\(.*\)=y/\1/p' .config | tr 'A-Z\n' 'a-z|' | sed 's/|$//')
{
	for f in args commas dirtree env lib llist utf8 xwrap; do echo "lib/$f.c"; done
	echo main.c
	LC_ALL=C grep -El "TOY[(]($symbols)[ ,]" toys/*/*.c
	echo "$tools"/toybox/*.c "$tools"/compat/*.c | tr ' ' '\n'
	for f in adler32 crc32 deflate inflate inffast inftrees trees zutil; do echo "$zlib/$f.c"; done
} >files
mkdir obj
export flags="-O2 -w -funsigned-char -ffunction-sections -fdata-sections
	-I. -I$zlib -I$tools/toybox -I$tools/compat/include -include $tools/toybox/wasi.h"
xargs -P "$(nproc)" -I{} sh -c '$WASM_CC $flags -c -o "obj/$(echo "{}" | tr / _).o" "{}"' <files
$WASM_LINK -z stack-size=262144 -o "$out" obj/*.o

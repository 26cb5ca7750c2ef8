#!/bin/sh
# Builds fetch for WASI, over the library for C guests.
#
# usage: build.sh TOOLS WORK OUT.wasm      with $WASM_CC and $WASM_LINK
set -eu
tools=$1 work=$2 out=$3
library=$tools/../wasi/guestlib/c
mkdir -p "$work/obj"
for f in "$tools"/fetch/*.c "$library/jail_fetch.c"; do
	$WASM_CC -std=c11 -Os -Wall -Wextra -Werror -Wno-parentheses -ffunction-sections -fdata-sections -ffile-prefix-map="$library"=. \
		-I"$library" -c -o "$work/obj/$(basename "$f").o" "$f"
done
for f in "$tools"/compat/*.c; do
	$WASM_CC -Os -w -ffunction-sections -fdata-sections -I"$tools/compat/include" -include posix.h -c -o "$work/obj/compat-$(basename "$f").o" "$f"
done
$WASM_LINK -z stack-size=131072 -o "$out" "$work"/obj/*.o

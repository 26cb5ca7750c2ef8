#!/bin/sh
# Installs what build.sh compiles the tools with, from Debian's packages. Says
# what it will install before it does, and nothing where nothing is missing.
#
# usage: deps.sh           install what is missing (as root)
#        deps.sh --check   exit 0 if nothing is missing, name what is otherwise
#        deps.sh --clang   print the version of clang to use, "" if there is none
set -eu

# The newest clang whose WebAssembly run-time library is packaged too.
clang_version() {
	for v in 22 19 16; do
		command -v "clang-$v" >/dev/null && command -v "wasm-ld-$v" >/dev/null &&
			[ -e "/usr/lib/llvm-$v/lib/clang/$v/lib/wasi/libclang_rt.builtins-wasm32.a" ] &&
			echo "$v" && return
	done
}

installable() {
	apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'
}

missing() {
	if [ -z "$(clang_version)" ]; then
		for v in 22 19 16; do
			if installable "libclang-rt-$v-dev-wasm32"; then
				echo "clang-$v lld-$v libclang-rt-$v-dev-wasm32"
				break
			fi
		done
	fi
	[ -e /usr/lib/wasm32-wasi/libc.a ] || echo wasi-libc
	command -v bison >/dev/null || echo bison
	command -v cc >/dev/null || echo gcc libc6-dev
	command -v patch >/dev/null || echo patch
	command -v xz >/dev/null || echo xz-utils
	command -v bzip2 >/dev/null || echo bzip2
}

case "${1-}" in
--clang)
	clang_version
	exit
	;;
--check)
	want=$(missing)
	[ -z "$want" ] && [ -n "$(clang_version)" ] && exit
	echo "missing to build the tools:" $want >&2
	exit 1
	;;
esac

want=$(missing)
[ -n "$want" ] || exit 0
if [ -z "$(ls /var/lib/apt/lists/*Packages* 2>/dev/null)" ]; then
	apt-get update -qq
	want=$(missing)
fi
echo "installing, to build the tools:" $want
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $want >/dev/null

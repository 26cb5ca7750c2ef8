#!/bin/sh
# Installs what build.sh compiles the tools with, from Debian's packages. Says
# what it will install before it does, and nothing where nothing is missing.
#
# usage: deps.sh           install what is missing (as root)
#        deps.sh --check   exit 0 if nothing is missing, name what is otherwise
#        deps.sh --rust [--check]   the same for what is compiled from Rust
#        deps.sh --npm [--check]    the same for what comes from the npm registry
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
	command -v tclsh >/dev/null || echo tcl
}

# Debian 12's compiler, and the crates of Debian 12 that ripgrep is linked with.
rust_missing() {
	[ -x /usr/bin/rustc ] || echo rustc
	[ -x /usr/bin/cargo ] || echo cargo
	[ -e /usr/lib/rustlib/wasm32-wasi ] || echo libstd-rust-dev-wasm32
	[ -x /usr/lib/llvm-14/bin/lld ] || echo lld-14
	for c in bstr-0.2 clap-2 grep-0.2 grep-cli-0.1 grep-searcher-0.1 ignore-0.4 lazy-static-1 log-0.4 num-cpus-1 regex-1 serde-json-1 termcolor-1; do
		# Crates have the one or the other of these signs in their names.
		# A package of the bare name is of the newest version. The name with the version is one that every package of crates provides.
		[ -n "$(ls -d "/usr/share/cargo/registry/$c".* "/usr/share/cargo/registry/$(echo "${c%-*}" | tr - _)-${c##*-}".* 2>/dev/null)" ] ||
			echo "librust-$c-dev"
	done
}

npm_missing() {
	command -v npm >/dev/null || echo npm
}

list=missing
case "${1-}" in
--rust | --npm)
	list=${1#--}_missing
	shift
	;;
esac

case "${1-}" in
--clang)
	clang_version
	exit
	;;
--check)
	want=$($list)
	[ -z "$want" ] && { [ "$list" != missing ] || [ -n "$(clang_version)" ]; } && exit
	echo "missing to build the tools:" $want >&2
	exit 1
	;;
esac

want=$($list)
[ -n "$want" ] || exit 0
if [ -z "$(ls /var/lib/apt/lists/*Packages* 2>/dev/null)" ]; then
	apt-get update -qq
	want=$($list)
fi
echo "installing, to build the tools:" $want
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $want >/dev/null

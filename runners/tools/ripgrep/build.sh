#!/bin/sh
# Builds ripgrep for WASI with Debian's Rust compiler and Debian's crates.
#
# usage: build.sh TOOLS UNPACKED OUT.wasm
set -eu
tools=$1 out=$3
cd "$2"

# Debian's crates, of which one is patched.
cp -rL /usr/share/cargo/registry registry
chmod -R u+w registry
(cd registry/grep-cli-0.1.* && patch -s -p0 <"$tools/ripgrep/grep-cli.patch")
# Debian has no such crates, and WASI no use for them.
sed -i -e '/jemallocator\]/,+1d' -e 's/^simd-accel = .*/simd-accel = []/' Cargo.toml
rm -f Cargo.lock

mkdir home linker
ln -s /usr/lib/llvm-14/bin/lld linker/rust-lld
cat >home/config.toml <<CONFIG
[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "$PWD/registry"
[build]
rustflags = ["--remap-path-prefix", "$PWD=."]
[profile.release]
debug = 0
strip = true
CONFIG
# Its build script asks git for a revision, which would be that of whatever repository this folder lies in.
env -i GIT_DIR=/dev/null HOME="$PWD/home" CARGO_HOME="$PWD/home" RUSTC=/usr/bin/rustc PATH="$PWD/linker:/usr/bin:/bin" \
	/usr/bin/cargo build --quiet --offline --release --target wasm32-wasi >cargo.log 2>&1 || { cat cargo.log >&2; exit 1; }
cp target/wasm32-wasi/release/rg.wasm "$out"

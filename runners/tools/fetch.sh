#!/bin/sh
# Puts the source files that sources.lock names into a folder, by apt from the
# archives that this machine takes its Debian packages from, and checks each
# against the lock. Files that are there and right are not fetched again.
#
# usage: fetch.sh LOCK DIR
set -eu
lock=$(realpath "$1")
mkdir -p "$2"
cd "$2"

right() {
	[ -f "$1" ] && echo "$2  $1" | sha256sum --check --quiet --status
}

# apt's own state goes below the folder: the machine's is not touched.
apt() {
	apt-get -qq \
		-o Dir::Etc::SourceList="$PWD/apt/sources.list" -o Dir::Etc::SourceParts=- \
		-o Dir::State::Lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" \
		-o Acquire::Languages=none -o APT::Sandbox::User="$(id -un)" "$@"
}

# The machine's archives of Debian, as sources of source packages.
prepare() {
	[ -e apt/ready ] && return
	mkdir -p apt/lists/partial apt/cache/archives/partial
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
		'Created-By: Packages' 'Origin: Debian' |
		awk '!seen[$0]++ { print "deb-src", $0 }' >apt/sources.list
	[ -s apt/sources.list ] || { echo "no Debian archive is configured here" >&2; return 1; }
	apt update
	: >apt/ready
}

while read -r package version file sum; do
	case "$package" in '#'* | '') continue ;; esac
	right "$file" "$sum" && continue
	rm -f "$file"
	prepare
	echo "fetching $file"
	apt source --download-only --tar-only "$package=$version" >/dev/null
	right "$file" "$sum" || { echo "$file: not the file that $lock pins" >&2; exit 1; }
done <"$lock"

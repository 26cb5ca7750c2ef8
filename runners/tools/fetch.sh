#!/bin/sh
# Puts the source files that a lock names into a folder, by apt from the archives
# that this machine takes its Debian packages from (npm:NAME by npm from the
# registry that it is set up with), and checks each against the lock. Files that are there and right are not fetched again.
# Several may ask for the same folder at one time: each waits for the one before it.
#
# usage: fetch.sh LOCK DIR
set -eu
lock=$(realpath "$1")
mkdir -p "$2"
cd "$2"

# apt does not wait for its lists, it fails.
exec 9>.lock
flock 9

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

# The machine's archives of Debian, as sources of source packages, of the releases that the locks name, whichever the machine's own is.
prepare() {
	[ -e apt/ready-2 ] && return
	mkdir -p apt/lists/partial apt/cache/archives/partial
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
		'Created-By: Packages' 'Origin: Debian' |
		awk '!seen[$0]++ { print "deb-src", $0 }
			$1 !~ /security/ && !twice[$1]++ { print "deb-src", $1, "bookworm main"; print "deb-src", $1, "trixie main" }' |
		LC_ALL=C sort -u >apt/sources.list
	[ -s apt/sources.list ] || { echo "no Debian archive is configured here" >&2; return 1; }
	apt update
	: >apt/ready-2
}

try() { # try SOURCE: fetches it, and says whether it brought the file
	apt source --download-only --tar-only "$1" >/dev/null 2>&1 && right "$file" "$sum"
}

while read -r package version file sum; do
	case "$package" in '#'* | '') continue ;; */*/*) continue ;; esac # Go's own client fetches its modules
	right "$file" "$sum" && continue
	rm -f "$file"
	echo "fetching $file"
	case "$package" in npm:*)
		npm pack --silent --ignore-scripts "${package#npm:}@$version" >/dev/null
		right "$file" "$sum" || { echo "$file: not the file that $lock pins" >&2; exit 1; }
		continue
		;;
	esac
	prepare
	# A point release of Debian takes the packaging that the version names away and leaves the sources.
	try "$package=$version" || try "$package/bookworm" || try "$package/trixie" || try "$package" ||
		{ echo "$file: the archives of this machine have not the file that $lock pins" >&2; exit 1; }
done <"$lock"

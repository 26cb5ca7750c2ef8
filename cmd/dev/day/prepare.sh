# The functions that the days call to get their repositories, each into the current directory. A
# version and a hash are pinned in each day.
export GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'
export GOTOOLCHAIN=local
export CACHE GOMODCACHE="$CACHE/go" GOFLAGS=-modcacherw npm_config_cache="$CACHE/npm"
mkdir -p "$CACHE/go" "$CACHE/npm" "$CACHE/pip" "$CACHE/apt"

# debian PACKAGE VERSION FILE SHA256: the upstream archive of a Debian source package.
debian() {
	parts=$(mktemp -d)
	mkdir -p "$CACHE/apt/lists/partial"
	for f in /etc/apt/sources.list.d/*.sources; do
		[ ! -e "$f" ] || sed 's/^Types: deb$/Types: deb-src/' "$f" >"$parts/${f##*/}"
	done
	[ ! -e /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$parts/all.list"
	set -- "$1" "$2" "$3" "$4" -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$parts" \
		-o "Dir::State::lists=$CACHE/apt/lists" -o APT::Sandbox::User=root
	package=$1 version=$2 file=$3 sum=$4
	shift 4
	apt-get -qq "$@" update
	(cd "$CACHE/apt" && apt-get -qq "$@" source --download-only "$package=$version")
	echo "$sum  $CACHE/apt/$file" | sha256sum -c --quiet
	tar -xf "$CACHE/apt/$file" --strip-components 1
	rm -rf "$parts"
}

# gomodule PATH VERSION HASH: a module of Go, and in the cache all that it needs.
gomodule() {
	(cd "$CACHE" && go mod download -json "$1@$2" | grep -qF "\"Sum\": \"$3\"")
	cp -R "$GOMODCACHE/$1@$2/." .
	chmod -R u+w .
	go mod download all
}

# npmpackage NAME VERSION SHA512: a package of npm.
npmpackage() {
	archive=$CACHE/npm/$(cd "$CACHE/npm" && npm pack --silent "$1@$2")
	echo "$3  $archive" | sha512sum -c --quiet
	tar -xf "$archive" --strip-components 1
}

# The day's own lines come as standard input.
. /dev/stdin
git init -q -b main .
git config user.name Agent
git config user.email agent@example.org
git add -A
git commit -qm 'import'
chown -R "$OWNER:$OWNER" .
chmod -R a+rX "$CACHE"

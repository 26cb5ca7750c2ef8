#!/bin/sh
# Builds the shell of SQLite for WASI.
#
# usage: build.sh TOOLS UNPACKED OUT.wasm      with $WASM_CC and $WASM_LINK
set -eu
tools=$1 out=$3
cd "$2"
patch -s -p1 <"$tools/sqlite/sqlite.patch"
# A jail gives no home, and nobody needs to hear of it at each start.
sed -i '/eputz("-- warning: cannot find home directory;"/,+1d' src/shell.c.in
./configure --disable-readline --disable-tcl >configure.log 2>&1 || { cat configure.log >&2; exit 1; }
make sqlite3.c shell.c >make.log 2>&1 || { cat make.log >&2; exit 1; }

# No threads, programs, loaded libraries or shared memory here. Locks are files beside a database (unix-dotfile), and so
# there is no write-ahead log; temporary tables stay in memory.
mkdir obj
export flags="-O2 -w -ffunction-sections -fdata-sections -I. -I$tools/compat/include -include posix.h -include $tools/sqlite/wasi.h
	-DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_POPEN -DSQLITE_NOHAVE_SYSTEM -DSQLITE_OMIT_WAL
	-DSQLITE_MAX_MMAP_SIZE=0 -DSQLITE_TEMP_STORE=2 -DSQLITE_DEFAULT_UNIX_VFS=\"unix-dotfile\"
	-DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_MATH_FUNCTIONS -DSQLITE_ENABLE_RTREE -DSQLITE_ENABLE_DBSTAT_VTAB
	-DHAVE_READLINE=0 -DHAVE_EDITLINE=0"
for f in sqlite3.c shell.c "$tools"/compat/*.c; do
	echo "$f"
done | xargs -P "$(nproc)" -I{} sh -c '$WASM_CC $flags -c -o "obj/$(basename "{}").o" "{}"'
$WASM_LINK -z stack-size=1048576 -o "$out" obj/*.o

"""Typed storage over the agent's database: collections, indexes and single values, on top of jail_agent.Storage.

    customers = Collection(agent.storage, "customers", unique=["email"], index=["city"])
    customers.put(7, {"email": "ann@example.com", "city": "Bern"})
    customers.find("city", "Bern")              # [(7, {...})]
    customers.subscribe(lambda change: ...)     # runs in the transaction of the change
    settings = Singleton(agent.storage, "settings", {"tone": "short"})

Keys are numbers or texts; numbers order as numbers, and come before texts. Values are anything that JSON can say. Libraries of the other languages use the
same tables. Everything goes with the transaction of the event; transaction() is one within it.
"""

import json
import re

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}(\.[A-Za-z_][A-Za-z0-9_]{0,47})*\Z")


class transaction:
    """With it what is written is there as a whole when the block ends, or not at all if it raises: with transaction(storage): ..."""

    def __init__(self, storage):
        self._storage = storage

    def __enter__(self):
        self._storage.exec("SAVEPOINT data")

    def __exit__(self, kind, value, traceback):
        if kind is not None:
            self._storage.exec("ROLLBACK TO data")
        self._storage.exec("RELEASE data")


class Change:
    """What subscribers are told: kind is add, update or remove; before and after are values, None where there is none."""

    def __init__(self, kind, key, before, after):
        self.kind, self.key, self.before, self.after = kind, key, before, after


class Collection:
    """Values by keys, with indexes of their fields. A field is a name of a value that is an object, or several with dots between them. A unique index
    refuses a second value with the same field; values without the field are not in it. Indexes that are not named any more are removed."""

    def __init__(self, storage, name, unique=(), index=()):
        if not _NAME.match(name):
            raise ValueError("%r is no name of a collection: lower-case letters, digits and _" % name)
        self._storage, self._table, self._subscribers = storage, "data_" + name, []
        storage.exec("CREATE TABLE IF NOT EXISTS %s (key PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID" % self._table)
        wanted = {}
        for kind, fields in (("UNIQUE", unique), ("", index)):
            for field in fields:
                made = "%s_%s_%s" % (self._table, "u" if kind else "i", field.replace(".", "__"))
                wanted[made] = 'CREATE %s INDEX "%s" ON %s (%s)' % (kind, made, self._table, self._path(field))
        there = {row["name"] for row in storage.query("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", self._table)}
        for old in there - set(wanted):
            storage.exec('DROP INDEX "%s"' % old)
        for made in wanted:
            if made not in there:
                storage.exec(wanted[made])

    def _path(self, field):
        if not _FIELD.match(field):
            raise ValueError("%r is no name of a field" % field)
        return "json_extract(value, '$.%s')" % field

    def _key(self, key):
        if isinstance(key, bool) or not isinstance(key, (int, float, str)):
            raise TypeError("a key is a number or a text, not %r" % (key,))
        return key

    def _rows(self, where, params, reverse, limit):
        rows = self._storage.query("SELECT key, value FROM %s%s ORDER BY key%s LIMIT ?" % (self._table, where, " DESC" if reverse else ""), *params,
                                   -1 if limit is None else limit)
        return [(row["key"], json.loads(row["value"])) for row in rows]

    def get(self, key, default=None):
        """Return the value of a key."""
        row = self._storage.get("SELECT value FROM %s WHERE key = ?" % self._table, self._key(key))
        return default if row is None else json.loads(row["value"])

    def put(self, key, value):
        """Add a value, or replace that of the key. Its subscribers run in the same transaction: if one raises, nothing is written."""
        with transaction(self._storage):
            before = self._storage.get("SELECT value FROM %s WHERE key = ?" % self._table, self._key(key))
            self._storage.run("INSERT INTO %s VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value" % self._table, key, json.dumps(value, allow_nan=False))
            self._tell(Change("add", key, None, value) if before is None else Change("update", key, json.loads(before["value"]), value))

    def remove(self, key):
        """Remove a key, and return whether there was one."""
        with transaction(self._storage):
            before = self._storage.get("SELECT value FROM %s WHERE key = ?" % self._table, self._key(key))
            if before is not None:
                self._storage.run("DELETE FROM %s WHERE key = ?" % self._table, key)
                self._tell(Change("remove", key, json.loads(before["value"]), None))
        return before is not None

    def items(self, low=None, high=None, reverse=False, limit=None):
        """Return (key, value) in the order of the keys, from low on and before high."""
        where = [c for c in (low is not None and "key >= ?", high is not None and "key < ?") if c]
        return self._rows(" WHERE " + " AND ".join(where) if where else "", [self._key(k) for k in (low, high) if k is not None], reverse, limit)

    def find(self, field, value, limit=None):
        """Return (key, value) of the values whose field is that text, number or None, by an index if there is one."""
        return self._rows(" WHERE %s IS ?" % self._path(field), [value], False, limit)

    def __len__(self):
        return self._storage.get("SELECT count(*) AS n FROM %s" % self._table)["n"]

    def subscribe(self, f):
        """Have f(change) called for each change, in its transaction. It returns what ends that."""
        self._subscribers.append(f)
        return lambda: self._subscribers.remove(f)

    def _tell(self, change):
        for f in list(self._subscribers):
            f(change)


class Singleton:
    """One value by a name, with a default."""

    def __init__(self, storage, name, default=None):
        if not _NAME.match(name):
            raise ValueError("%r is no name of a value: lower-case letters, digits and _" % name)
        self._all, self._name, self._default = Collection(storage, "singletons"), name, default

    def get(self):
        """Return the value, the default if it was never set."""
        return self._all.get(self._name, self._default)

    def set(self, value):
        """Set the value."""
        self._all.put(self._name, value)

    def reset(self):
        """Go back to the default."""
        self._all.remove(self._name)

    def subscribe(self, f):
        """Have f(change) called for each change of this value, in its transaction."""
        return self._all.subscribe(f)

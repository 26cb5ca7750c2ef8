"""Typed storage, in a database of Python's own."""

import os
import sqlite3
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from jail_agent_data import Collection, Singleton, transaction


class Storage:
    """The binding STORAGE over the sqlite3 of Python."""

    def __init__(self):
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.row_factory = sqlite3.Row

    def exec(self, sql):
        self.db.execute(sql)

    def run(self, sql, *params):
        self.db.execute(sql, params)

    def get(self, sql, *params):
        return next(iter(self.query(sql, *params)), None)

    def query(self, sql, *params):
        return [dict(row) for row in self.db.execute(sql, params)]


class Data(unittest.TestCase):
    def setUp(self):
        self.storage = Storage()
        self.c = Collection(self.storage, "customers", unique=["email"], index=["address.city"])

    def test_keys_order_as_what_they_are(self):
        for key in (10, 9, "b", 2.5, "a", -1, "10"):
            self.c.put(key, {"n": key})
        self.assertEqual([k for k, _ in self.c.items()], [-1, 2.5, 9, 10, "10", "a", "b"])
        self.assertEqual([k for k, _ in self.c.items(low=9, high="a")], [9, 10, "10"])
        self.assertEqual([k for k, _ in self.c.items(reverse=True, limit=2)], ["b", "a"])
        self.assertEqual((self.c.get(10), self.c.get("10"), self.c.get(11, 0)), ({"n": 10}, {"n": "10"}, 0))
        for key in (None, True, [1], {"a": 1}):
            self.assertRaises(TypeError, self.c.put, key, 1)

    def test_indexes(self):
        self.c.put(1, {"email": "ann@x", "address": {"city": "Bern"}})
        self.c.put(2, {"email": "bob@x", "address": {"city": "Bern"}})
        self.c.put(3, {"address": {"city": "Zug"}})
        self.c.put(4, "a text")
        self.assertRaises(sqlite3.IntegrityError, self.c.put, 5, {"email": "ann@x"})
        self.assertEqual(len(self.c), 4)
        self.c.put(2, {"email": "bob@x"})
        self.assertEqual([k for k, _ in self.c.find("address.city", "Bern")], [1])
        self.assertEqual([k for k, _ in self.c.find("email", None)], [3, 4])
        plan = self.storage.query("EXPLAIN QUERY PLAN SELECT key FROM data_customers WHERE json_extract(value, '$.email') IS ?", "x")
        self.assertIn("data_customers_u_email", plan[0]["detail"])
        # Other indexes of the same collection: what is not named is gone.
        c = Collection(self.storage, "customers", index=["email"])
        c.put(5, {"email": "ann@x"})
        self.assertEqual([k for k, _ in c.find("email", "ann@x")], [1, 5])
        names = {r["name"] for r in self.storage.query("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")}
        self.assertEqual(names, {"data_customers_i_email"})
        for field in ("a'b", "", "a..b", "$.a", "a b"):
            self.assertRaises(ValueError, self.c.find, field, 1)
        for name in ("a b", "A", "", "a;b", "1a"):
            self.assertRaises(ValueError, Collection, self.storage, name)

    def test_subscribers_are_in_the_transaction(self):
        log = Collection(self.storage, "log")
        end = self.c.subscribe(lambda change: log.put(len(log), [change.kind, change.key, change.before, change.after]))
        self.c.put("k", 1)
        self.c.put("k", 2)
        self.assertTrue(self.c.remove("k"))
        self.assertFalse(self.c.remove("k"))
        self.assertEqual([v for _, v in log.items()], [["add", "k", None, 1], ["update", "k", 1, 2], ["remove", "k", 2, None]])

        def refuse(change):
            raise RuntimeError("no")

        self.c.subscribe(refuse)
        self.assertRaises(RuntimeError, self.c.put, "k", 3)
        self.assertEqual((self.c.get("k"), len(log)), (None, 3))
        end()

    def test_transactions(self):
        with self.assertRaises(KeyError):
            with transaction(self.storage):
                self.c.put(1, 1)
                with transaction(self.storage):
                    self.c.put(2, 2)
                raise KeyError
        self.assertEqual(len(self.c), 0)
        with transaction(self.storage):
            self.c.put(1, 1)
            try:
                with transaction(self.storage):
                    self.c.put(2, 2)
                    raise KeyError
            except KeyError:
                pass
        self.assertEqual(self.c.items(), [(1, 1)])

    def test_singletons(self):
        s = Singleton(self.storage, "settings", {"tone": "short"})
        self.assertEqual(s.get(), {"tone": "short"})
        s.set(None)
        self.assertIsNone(s.get())
        s.set({"tone": "long"})
        self.assertEqual(Singleton(self.storage, "settings").get(), {"tone": "long"})
        self.assertEqual(Singleton(self.storage, "others", 7).get(), 7)
        s.reset()
        self.assertEqual(s.get(), {"tone": "short"})


if __name__ == "__main__":
    unittest.main()

// Typed storage over the agent's database: collections, indexes and single values.
//
//	const customers = new Collection("customers", { unique: ["email"], index: ["address.city"] });
//	customers.put(7, { email: "ann@example.com", address: { city: "Bern" } });
//	customers.find("address.city", "Bern");    // [[7, {...}]]
//	customers.subscribe(({ kind, key, before, after }) => ...);    // in the transaction of the change
//	const settings = new Singleton("settings", { tone: "short" });
//
// Keys are numbers or texts; numbers order as numbers, and come before texts. Values are anything that JSON can say. Libraries of the other languages use the
// same tables. Everything goes with the transaction of the event; transaction(f) is one within it.

import { storage } from "./jail_agent.js";

// transaction calls f. What f writes is there as a whole when it returns, or not at all if it throws.
export function transaction(f) {
  storage.exec("SAVEPOINT data");
  let result;
  try {
    result = f();
  } catch (e) {
    storage.exec("ROLLBACK TO data");
    storage.exec("RELEASE data");
    throw e;
  }
  storage.exec("RELEASE data");
  return result;
}

const checked = (what, name, form) => {
  if (typeof name !== "string" || !form.test(name)) throw new TypeError(name + " is no name of a " + what);
  return name;
};

const named = (name) => "data_" + checked("collection", name, /^[a-z][a-z0-9_]{0,47}$/);
const path = (field) =>
  "json_extract(value, '$." + checked("field", field, /^[A-Za-z_][A-Za-z0-9_]{0,47}(\.[A-Za-z_][A-Za-z0-9_]{0,47})*$/) + "')";

const checkKey = (key) => {
  if (typeof key !== "string" && !Number.isFinite(key)) throw new TypeError("a key is a number or a text");
  return key;
};

// A Collection holds values by keys, with indexes of their fields. A field is a name of a value that is an object, or several with dots between them. A unique
// index refuses a second value with the same field; values without the field are not in it. Indexes that are not named any more are removed.
export class Collection {
  constructor(name, { unique = [], index = [] } = {}) {
    this.table = named(name);
    this.subscribers = [];
    storage.exec("CREATE TABLE IF NOT EXISTS " + this.table + " (key PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID");
    const wanted = {};
    const want = (kind, letter, field) => {
      const made = this.table + "_" + letter + "_" + field.replaceAll(".", "__");
      wanted[made] = "CREATE " + kind + ' INDEX "' + made + '" ON ' + this.table + " (" + path(field) + ")";
    };
    for (const field of unique) want("UNIQUE", "u", field);
    for (const field of index) want("", "i", field);
    const there = storage.query("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", this.table).map((row) => row.name);
    for (const old of there) if (!wanted[old]) storage.exec('DROP INDEX "' + old + '"');
    for (const made in wanted) if (!there.includes(made)) storage.exec(wanted[made]);
  }

  rows(where, params, { reverse = false, limit = -1 } = {}) {
    const sql = "SELECT key, value FROM " + this.table + where + " ORDER BY key" + (reverse ? " DESC" : "") + " LIMIT ?";
    return storage.query(sql, ...params, limit).map((row) => [row.key, JSON.parse(row.value)]);
  }

  // get returns the value of a key, or otherwise.
  get(key, otherwise) {
    const row = storage.get("SELECT value FROM " + this.table + " WHERE key = ?", checkKey(key));
    return row ? JSON.parse(row.value) : otherwise;
  }

  // put adds a value, or replaces that of the key. Subscribers run in the same transaction: if one throws, nothing is written.
  put(key, value) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError("JSON has no such value");
    transaction(() => {
      const row = storage.get("SELECT value FROM " + this.table + " WHERE key = ?", checkKey(key));
      storage.run("INSERT INTO " + this.table + " VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, text);
      this.tell({ kind: row ? "update" : "add", key, before: row ? JSON.parse(row.value) : undefined, after: value });
    });
  }

  // remove removes a key, and returns whether there was one.
  remove(key) {
    return transaction(() => {
      const row = storage.get("SELECT value FROM " + this.table + " WHERE key = ?", checkKey(key));
      if (!row) return false;
      storage.run("DELETE FROM " + this.table + " WHERE key = ?", key);
      this.tell({ kind: "remove", key, before: JSON.parse(row.value), after: undefined });
      return true;
    });
  }

  // items returns [key, value] in the order of the keys. options are low (from it on), high (before it), reverse and limit.
  items(options = {}) {
    const where = [], params = [];
    for (const [bound, op] of [["low", ">="], ["high", "<"]]) {
      if (options[bound] === undefined) continue;
      where.push("key " + op + " ?");
      params.push(checkKey(options[bound]));
    }
    return this.rows(where.length ? " WHERE " + where.join(" AND ") : "", params, options);
  }

  // find returns [key, value] of the values whose field is that text, number or null, by an index if there is one.
  find(field, value, options) {
    return this.rows(" WHERE " + path(field) + " IS ?", [value], options);
  }

  // count returns how many values there are.
  count() {
    return storage.get("SELECT count(*) AS n FROM " + this.table).n;
  }

  // subscribe has f called for each change, in its transaction, and returns what ends that.
  subscribe(f) {
    this.subscribers.push(f);
    return () => void (this.subscribers = this.subscribers.filter((other) => other !== f));
  }

  tell(change) {
    for (const f of [...this.subscribers]) f(change);
  }
}

// A Singleton is one value by a name, with a default.
export class Singleton {
  constructor(name, otherwise) {
    named(name);
    this.all = new Collection("singletons");
    this.name = name;
    this.otherwise = otherwise;
  }

  get() {
    return this.all.get(this.name, this.otherwise);
  }

  set(value) {
    this.all.put(this.name, value);
  }

  // reset goes back to the default.
  reset() {
    this.all.remove(this.name);
  }

  subscribe(f) {
    return this.all.subscribe(f);
  }
}

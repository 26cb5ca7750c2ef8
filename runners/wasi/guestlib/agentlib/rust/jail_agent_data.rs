//! Typed storage over the agent's database: collections, indexes and single values.
//!
//! ```no_run
//! let mut customers: Collection<i64, Json> = Collection::open("customers", &["email"], &["address.city"])?;
//! customers.subscribe(|change| log("info", change.kind())); // in the transaction of the change
//! customers.put(7, customer)?;
//! customers.find("address.city", "Bern".into())?;
//! ```
//!
//! Keys are `i64`, `f64` or `String`; numbers order as numbers. Values are of a type that is a `Value`: `Json` is one, and yours can be. Libraries of the other
//! languages use the same tables. Everything goes with the transaction of the event; `transaction` is one within it.

#![allow(dead_code)]

use crate::jail_agent::{storage, Json, Result};

/// Calls f. What f writes is there as a whole when it returns `Ok`, or else not at all.
pub fn transaction<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    storage::exec("SAVEPOINT data")?;
    let done = f();
    let undone = if done.is_err() { storage::exec("ROLLBACK TO data") } else { Ok(()) };
    let released = storage::exec("RELEASE data");
    let value = done?;
    undone.and(released)?;
    Ok(value)
}

/// A type whose values order as they are: numbers as numbers. Numbers beyond 2^53 are not exact.
pub trait Key: Clone {
    fn json(&self) -> Json;
    fn read(json: &Json) -> Self;
}

impl Key for i64 {
    fn json(&self) -> Json {
        (*self).into()
    }
    fn read(json: &Json) -> Self {
        json.number() as i64
    }
}

impl Key for f64 {
    fn json(&self) -> Json {
        Json::Number(*self)
    }
    fn read(json: &Json) -> Self {
        json.number()
    }
}

impl Key for String {
    fn json(&self) -> Json {
        self.as_str().into()
    }
    fn read(json: &Json) -> Self {
        json.text().into()
    }
}

/// A type that is kept as JSON.
pub trait Value: Sized {
    fn json(&self) -> Json;
    fn read(json: &Json) -> Result<Self>;
}

impl Value for Json {
    fn json(&self) -> Json {
        self.clone()
    }
    fn read(json: &Json) -> Result<Self> {
        Ok(json.clone())
    }
}

impl Value for i64 {
    fn json(&self) -> Json {
        (*self).into()
    }
    fn read(json: &Json) -> Result<Self> {
        Ok(json.number() as i64)
    }
}

impl Value for String {
    fn json(&self) -> Json {
        self.as_str().into()
    }
    fn read(json: &Json) -> Result<Self> {
        Ok(json.text().into())
    }
}

/// What subscribers are told: before and after are None where there is no value.
pub struct Change<'a, K, V> {
    pub key: &'a K,
    pub before: Option<&'a V>,
    pub after: Option<&'a V>,
}

impl<K, V> Change<'_, K, V> {
    /// add, update or remove.
    pub fn kind(&self) -> &'static str {
        match (self.before, self.after) {
            (None, _) => "add",
            (_, None) => "remove",
            _ => "update",
        }
    }
}

type Subscriber<K, V> = Box<dyn Fn(&Change<K, V>) -> Result<()>>;

/// Values by keys, with indexes of their fields.
pub struct Collection<K, V> {
    table: String,
    subscribers: Vec<Subscriber<K, V>>,
}

fn is_name(text: &str, upper: bool) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || upper && (c.is_ascii_uppercase() || c == '_');
    text.len() <= 48 && text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit() || c == '_')
}

fn path(field: &str) -> Result<String> {
    if !field.split('.').all(|part| is_name(part, true)) {
        return Err(format!("{:?} is no name of a field", field).into());
    }
    Ok(format!("json_extract(value, '$.{}')", field))
}

impl<K: Key, V: Value> Collection<K, V> {
    /// Opens the collection of that name, or makes it. unique and index name fields of the values' JSON, with dots between the names of fields in fields. A
    /// unique index refuses a second value with the same field; values without the field are not in it. Indexes that are not named any more are removed.
    pub fn open(name: &str, unique: &[&str], index: &[&str]) -> Result<Self> {
        if !is_name(name, false) {
            return Err(format!("{:?} is no name of a collection: lower-case letters, digits and _", name).into());
        }
        let table = format!("data_{}", name);
        storage::exec(&format!("CREATE TABLE IF NOT EXISTS {} (key PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID", table))?;
        let mut wanted = Vec::new();
        for (mark, kind, fields) in [("u", "UNIQUE ", unique), ("i", "", index)] {
            for field in fields {
                let made = format!("{}_{}_{}", table, mark, field.replace('.', "__"));
                let text = format!("CREATE {}INDEX \"{}\" ON {} ({})", kind, made, table, path(field)?);
                wanted.push((made, text));
            }
        }
        let there = storage::query("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", vec![table.as_str().into()])?;
        for old in there.items() {
            let old = old["name"].text();
            match wanted.iter().position(|(made, _)| made == old) {
                Some(i) => drop(wanted.remove(i)),
                None => storage::exec(&format!("DROP INDEX \"{}\"", old))?,
            }
        }
        for (_, text) in wanted {
            storage::exec(&text)?;
        }
        Ok(Collection { table, subscribers: Vec::new() })
    }

    fn items(&self, rest: &str, params: Vec<Json>) -> Result<Vec<(K, V)>> {
        let rows = storage::query(&format!("SELECT key, value FROM {}{}", self.table, rest), params)?;
        rows.items().iter().map(|row| Ok((K::read(&row["key"]), V::read(&Json::parse(row["value"].text())?)?))).collect()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        Ok(self.items(" WHERE key = ?", vec![key.json()])?.pop().map(|(_, value)| value))
    }

    /// Adds a value, or replaces that of the key. Subscribers run in the same transaction: if one returns an error, nothing is written.
    pub fn put(&self, key: K, value: V) -> Result<()> {
        transaction(|| {
            let before = self.get(&key)?;
            let text = format!("INSERT INTO {} VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", self.table);
            storage::run(&text, vec![key.json(), value.json().to_string().as_str().into()])?;
            self.tell(&Change { key: &key, before: before.as_ref(), after: Some(&value) })
        })
    }

    /// Removes a key, and reports whether there was one.
    pub fn remove(&self, key: &K) -> Result<bool> {
        transaction(|| {
            let before = match self.get(key)? {
                None => return Ok(false),
                Some(value) => value,
            };
            storage::run(&format!("DELETE FROM {} WHERE key = ?", self.table), vec![key.json()])?;
            self.tell(&Change { key, before: Some(&before), after: None })?;
            Ok(true)
        })
    }

    /// Returns the values in the order of their keys.
    pub fn all(&self) -> Result<Vec<(K, V)>> {
        self.items(" ORDER BY key", vec![])
    }

    /// Returns the values in the order of their keys, from low on and before high.
    pub fn range(&self, low: &K, high: &K) -> Result<Vec<(K, V)>> {
        self.items(" WHERE key >= ? AND key < ? ORDER BY key", vec![low.json(), high.json()])
    }

    /// Returns the values whose field is that text, number or Null, by an index if there is one.
    pub fn find(&self, field: &str, value: Json) -> Result<Vec<(K, V)>> {
        self.items(&format!(" WHERE {} IS ? ORDER BY key", path(field)?), vec![value])
    }

    /// Returns how many values there are.
    pub fn count(&self) -> Result<i64> {
        Ok(storage::get(&format!("SELECT count(*) AS n FROM {}", self.table), vec![])?["n"].number() as i64)
    }

    /// Has f called for each change, in its transaction.
    pub fn subscribe(&mut self, f: impl Fn(&Change<K, V>) -> Result<()> + 'static) {
        self.subscribers.push(Box::new(f));
    }

    fn tell(&self, change: &Change<K, V>) -> Result<()> {
        self.subscribers.iter().try_for_each(|f| f(change))
    }
}

/// One value by a name, with a default.
pub struct Singleton<V> {
    all: Collection<String, V>,
    name: String,
    otherwise: V,
}

impl<V: Value + Clone> Singleton<V> {
    /// Opens the value of that name.
    pub fn open(name: &str, otherwise: V) -> Result<Self> {
        Ok(Singleton { all: Collection::open("singletons", &[], &[])?, name: name.into(), otherwise })
    }

    /// Returns the value, the default if it was never set.
    pub fn get(&self) -> Result<V> {
        Ok(self.all.get(&self.name)?.unwrap_or_else(|| self.otherwise.clone()))
    }

    pub fn set(&self, value: V) -> Result<()> {
        self.all.put(self.name.clone(), value)
    }

    /// Goes back to the default.
    pub fn reset(&self) -> Result<()> {
        self.all.remove(&self.name).map(drop)
    }
}

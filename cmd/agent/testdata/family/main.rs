mod jail_agent;
mod jail_agent_data;

use jail_agent::{abort_facet, call_all, call_facet, class, delete_facet, delete_sub_agent, facet, facets, load, send, Agent, Event, Json, Result};
use jail_agent_data::{Collection, Singleton, Value};

struct Parent;

fn count(names: &[&str]) -> Result<String> {
    for name in names {
        facet(name, vec![("class", "worker".into()), ("bindings", Json::List(vec!["STORAGE".into()]))])?;
    }
    let calls = names.iter().map(|name| (*name, "count", Json::object(vec![("by", 1.into())]))).collect();
    let mut said = Vec::new();
    for result in call_all(calls)? {
        said.push(result?.to_string());
    }
    Ok(said.join(" "))
}

impl Agent for Parent {
    fn on_event(&mut self, _: &Event) -> Result<()> {
        let first = count(&["a", "b", "c"])?;
        abort_facet("a", "a test")?;
        delete_facet("b")?;
        let left = facets()?.items().len();
        let second = count(&["a", "b", "c"])?;
        let code = match call_facet("a", "fail", Json::Null) {
            Err(e) => e.code,
            Ok(_) => "none".into(),
        };
        delete_sub_agent("a")?;
        let done = load("x", "x.js", Json::object(vec![("x.js", "print(6 * 7)".into())]), Json::object(vec![]))?;
        send(&format!("{}, {} left, {}, {}, {}", first, left, second, code, done["stdout"].text().trim()), None).map(drop)
    }
}

struct Worker;

fn work(method: &str, args: &Json) -> Result<Json> {
    if method == "fail" {
        return Err("as it was asked to".into());
    }
    match send("x", None) {
        Err(e) if e.code == "no_binding" => {}
        _ => return Err("a message was sent".into()),
    }
    counted(args["by"].number() as i64).map(Json::from)
}

struct Counting {
    by: i64,
    n: i64,
}

impl Value for Counting {
    fn json(&self) -> Json {
        Json::object(vec![("by", self.by.into()), ("n", self.n.into())])
    }

    fn read(json: &Json) -> Result<Self> {
        Ok(Counting { by: json["by"].number() as i64, n: json["n"].number() as i64 })
    }
}

/// Keeps a call in a collection, and returns how many there are as a subscriber has counted.
fn counted(by: i64) -> Result<i64> {
    let mut calls: Collection<i64, Counting> = Collection::open("calls", &["n"], &["by"])?;
    let total = Singleton::open("total", 0)?;
    calls.subscribe(|change| match change.kind() {
        "add" => {
            let total = Singleton::open("total", 0)?;
            total.set(total.get()? + 1)
        }
        kind => Err(format!("a change {}", kind).into()),
    });
    let n = calls.count()?;
    calls.put(n + 1, Counting { by, n: n + 1 })?;
    if calls.put(n + 2, Counting { by, n: n + 1 }).is_ok() {
        return Err("two values have the same n".into());
    }
    let found = calls.find("by", by.into())?;
    if found.len() as i64 != n + 1 || found[n as usize].0 != n + 1 || found[n as usize].1.n != n + 1 {
        return Err(format!("found {} values", found.len()).into());
    }
    if !calls.remove(&1).is_err() || calls.get(&1)?.is_none() || Collection::<i64, Json>::open("a b", &[], &[]).is_ok() {
        return Err("a change that a subscriber refuses is there".into());
    }
    total.get()
}

impl Agent for Worker {
    fn on_call(&mut self, method: &str, args: &Json) -> Option<Result<Json>> {
        Some(work(method, args))
    }
}

fn main() {
    match class().as_str() {
        "worker" => jail_agent::run(&mut Worker),
        _ => jail_agent::run(&mut Parent),
    }
}

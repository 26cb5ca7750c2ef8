mod jail_agent;

use jail_agent::{abort_facet, call_all, call_facet, class, delete_facet, delete_sub_agent, facet, facets, load, send, storage, Agent, Event, Json, Result};

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
    storage::exec("CREATE TABLE IF NOT EXISTS n (n INTEGER)")?;
    storage::run("INSERT INTO n VALUES (?)", vec![args["by"].clone()])?;
    Ok(storage::get("SELECT count(*) AS n FROM n", vec![])?["n"].clone())
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

mod jail_agent;
mod jail_agent_data;

use jail_agent::{send, Agent, Event, Json, Result};
use jail_agent_data::{transaction, Collection, Singleton};

struct Keeper;

fn customer(email: &str, city: &str) -> Json {
    Json::object(vec![("address", Json::object(vec![("city", city.into())])), ("email", email.into())])
}

fn keys<K: std::fmt::Display, V>(items: Vec<(K, V)>) -> String {
    items.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(" ")
}

fn refused<T>(done: Result<T>) -> &'static str {
    match done {
        Ok(_) => "done",
        Err(_) => "refused",
    }
}

impl Agent for Keeper {
    fn on_event(&mut self, event: &Event) -> Result<()> {
        let mut customers: Collection<i64, Json> = Collection::open("customers", &["email"], &["address.city"])?;
        let log: Collection<i64, Json> = Collection::open("log", &[], &[])?;
        customers.subscribe(|change| {
            let log: Collection<i64, Json> = Collection::open("log", &[], &[])?;
            log.put(log.count()? + 1, Json::List(vec![change.kind().into(), (*change.key).into()]))
        });
        customers.subscribe(|change| if *change.key == 13 { Err("as it was asked to".into()) } else { Ok(()) });
        if event.text() == "fail" {
            customers.put(5, customer("eve", "Bern"))?;
            return Err("as it was asked to".into());
        }
        let numbers: Collection<f64, i64> = Collection::open("numbers", &[], &["n"])?;
        for key in [10.0, 9.0, 2.5, -1.0] {
            numbers.put(key, 1)?;
        }
        let numbers: Collection<f64, i64> = Collection::open("numbers", &[], &[])?;
        let texts: Collection<String, i64> = Collection::open("texts", &[], &[])?;
        for key in ["9", "10"] {
            texts.put(key.into(), 1)?;
        }
        let mut said = vec![format!("{}, {}, {}", keys(numbers.all()?), keys(numbers.range(&9.0, &10.0)?), keys(texts.all()?))];
        customers.put(1, customer("ann", "Bern"))?;
        customers.put(2, customer("bob", "Bern"))?;
        let same = refused(customers.put(3, customer("ann", "Zug")));
        let (city, email) = (customers.find("address.city", "Bern".into())?, customers.find("email", "bob".into())?);
        said.push(format!("{}, {}, {}, {}", same, customers.count()?, keys(city), keys(email)));
        customers.put(2, customer("bob", "Zug"))?;
        customers.remove(&2)?;
        let told: Vec<_> = log.all()?.iter().map(|(_, change)| format!("{} {}", change.items()[0].text(), change.items()[1])).collect();
        let no = refused(customers.put(13, customer("dan", "Bern")));
        said.push(format!("{}, {}, {}", told.join(" "), no, log.count()?));
        let half: Result<()> = transaction(|| {
            customers.put(4, customer("cleo", "Bern"))?;
            Err("as it was asked to".into())
        });
        let left = if customers.get(&4)?.is_some() { "half" } else { "none" };
        said.push(format!("{}, {}", refused(half), left));
        let tone = Singleton::open("tone", "short".to_string())?;
        let mut tones = vec![tone.get()?];
        tone.set("long".into())?;
        tones.push(tone.get()?);
        tone.reset()?;
        tones.push(tone.get()?);
        tone.set("long".into())?;
        said.push(tones.join(" "));
        send(&said.join("; "), None).map(drop)
    }
}

fn main() {
    jail_agent::run(&mut Keeper)
}

//! An agent that answers: it counts messages, and reminds.

mod jail_agent;

use jail_agent::{log, send, set_alarm, storage, Agent, Event, Result};

struct Responder;

impl Agent for Responder {
    fn on_wake(&mut self, _reason: &str) -> Result<()> {
        storage::exec("CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, text TEXT)")
    }

    fn on_event(&mut self, event: &Event) -> Result<()> {
        let text = event.text();
        if event.event_type == "alarm" {
            send(&format!("reminder: {}", event.data["data"].text()), None)?;
        } else if event.from_agent() {
            // Two that answer each other would never end.
        } else if let Some(what) = text.strip_prefix("remind ") {
            set_alarm("remind", 1000, what.into())?;
            send("I will remind you", Some(&event.id))?;
        } else if !text.is_empty() {
            let row = storage::run("INSERT INTO seen (text) VALUES (?)", vec![text.into()])?;
            send(&format!("echo: {} ({})", text, row["lastRowId"].number()), Some(&event.id))?;
        }
        Ok(())
    }

    fn on_sleep(&mut self) -> Result<()> {
        log("info", "good night")
    }
}

fn main() {
    jail_agent::run(&mut Responder)
}

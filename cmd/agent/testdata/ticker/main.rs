mod jail_agent;

use jail_agent::{send_json, storage, tick, Agent, Event, Json, Result};

struct Ticker;

impl Agent for Ticker {
    fn on_event(&mut self, event: &Event) -> Result<()> {
        if event.event_type == "tick" {
            tick(&event.id, Some("fast"), "Be brief.").map(drop)
        } else if event.text().starts_with("SELECT") {
            send_json(storage::query(event.text(), vec![])?, Json::object(vec![])).map(drop)
        } else {
            storage::exec(event.text())
        }
    }
}

fn main() {
    jail_agent::run(&mut Ticker)
}

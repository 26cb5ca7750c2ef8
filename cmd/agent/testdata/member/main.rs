mod jail_agent;

use jail_agent::{call_method, discover, roster, send_json, settings, update_settings, Agent, Event, Json, Result};

struct Member;

impl Agent for Member {
    fn on_event(&mut self, event: &Event) -> Result<()> {
        let handle = std::env::var("HANDLE").unwrap_or_default();
        if event.event_type == "roster" {
            send_json(event.data.clone(), Json::object(vec![("type", "seen".into())]))?;
        } else if event.event_type == "call" {
            let result = Json::object(vec![("by", handle.as_str().into()), ("got", event.data.clone())]);
            send_json(result, Json::object(vec![("type", "result".into()), ("reply_to", event.id.as_str().into())]))?;
        } else if !event.from_agent() && !event.text().is_empty() {
            let plain = || Json::object(vec![]);
            send_json(roster()?, plain())?;
            send_json(discover()?, plain())?;
            send_json(call_method(event.text(), "echo", Json::object(vec![("n", 1.into())]))?, plain())?;
            update_settings(Json::object(vec![(handle.as_str(), Json::Bool(true))]))?;
            send_json(settings()?, plain())?;
        }
        Ok(())
    }
}

fn main() {
    jail_agent::run(&mut Member)
}

mod jail_agent;

use jail_agent::{ai, clear_alarm, command, complete, log, propose, send, send_json, set_alarm_at, set_state, update, update_settings};
use jail_agent::{Agent, Event, Json, Result};

struct Asker;

impl Agent for Asker {
    fn on_event(&mut self, event: &Event) -> Result<()> {
        if event.text() == "fail" {
            return Err("as it was asked to".into());
        }
        if event.text() == "tool" {
            let limits = Json::List(vec!["wall=5s".into()]);
            let more = Json::object(vec![("stdin", "a\"b\n".into()), ("limits", limits)]);
            let said = match command(&["wc", "-l"], more) {
                Ok(done) => done["exitCode"].clone(),
                Err(e) => e.code.as_str().into(),
            };
            return send_json(said, Json::Null).map(drop);
        }
        if event.text() == "later" {
            set_alarm_at("tea", "2040-01-02T03:04:05Z", "green".into())?;
            let id = propose(Json::object(vec![("type", "brew".into())]))?;
            return send(&id, None).map(drop);
        }
        let answer = send("…", Some(&event.id))?;
        let mut all = String::new();
        let params = Json::object(vec![("prompt", event.text().into()), ("role", "fast".into())]);
        let asked = ai::stream(params, &mut |part| {
            all.push_str(part);
            let options = Json::object(vec![("to", "other".into()), ("type", "part".into())]);
            send_json(format!("part {}", part).as_str().into(), options).map(drop)
        });
        if let Err(e) = asked {
            all = format!("{}: {}", e.code, e.message);
        }
        update(&answer, all.as_str().into())?;
        complete(&answer)?;
        set_state(Json::object(vec![("asked", event.seq.into())]))?;
        update_settings(Json::object(vec![("roles", ai::roles()?)]))?;
        clear_alarm("none")?;
        log("warn", "asked")
    }
}

fn main() {
    jail_agent::run(&mut Asker)
}

import { ai, clearAlarm, command, log, propose, pubsub, run, setAlarm, setState } from "./jail_agent.js";

run({
  async onEvent(event) {
    await null;
    if (event.text === "fail") throw new Error("as it was asked to");
    if (event.text === "tool") {
      let said;
      try {
        said = command(["wc", "-l"], { stdin: 'a"b\n', limits: ["wall=5s"] }).exitCode;
      } catch (e) {
        said = e.code;
      }
      return void pubsub.send(said);
    }
    if (event.text === "later") {
      setAlarm("tea", new Date("2040-01-02T03:04:05Z"), "green");
      return void pubsub.send(propose({ type: "brew" }));
    }
    const answer = pubsub.send("…", { reply_to: event.id });
    let all = "";
    try {
      for (const part of ai.streamText({ prompt: event.text, role: "fast" })) {
        all += part;
        pubsub.send("part " + part, { to: "other", type: "part" });
      }
    } catch (e) {
      all = e.code + ": " + e.message;
    }
    pubsub.update(answer, all);
    pubsub.complete(answer);
    setState({ asked: event.seq });
    pubsub.updateSettings({ roles: ai.listRoles() });
    clearAlarm("none");
    log("asked", "warn");
  },
});

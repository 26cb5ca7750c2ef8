// An approval gate for agents that use tools. It depends on nothing.
//
//	const gate = new ApprovalGate(new Singleton("approvals", {}), [["read_*", "allow"], ["rm", "deny"]]);
//	if (gate.check("write", conversation) === "ask") ...    // the answer comes with a later event:
//	gate.answer("write", true, conversation);

// The place of an answer among all.
const entry = (tool, conversation) => JSON.stringify([conversation, tool]);

// An ApprovalGate decides whether a tool may be used: by rule, else it asks once per tool and conversation. store is an object with get() and set(value), such
// as a Singleton of jail_agent_data.js whose default is {}. rules are pairs of a pattern and a mode (allow, ask or deny), of which the first that matches
// counts; a pattern is a name, or ends in *.
export class ApprovalGate {
  constructor(store, rules = [], otherwise = "ask") {
    for (const mode of [...rules.map(([, mode]) => mode), otherwise]) {
      if (!["allow", "ask", "deny"].includes(mode)) throw new TypeError(mode + " is no mode: want allow, ask or deny");
    }
    Object.assign(this, { store, rules, otherwise });
  }

  // check returns allow, ask or deny.
  check(tool, conversation = "") {
    const matches = ([pattern]) => pattern === tool || (pattern.endsWith("*") && tool.startsWith(pattern.slice(0, -1)));
    const [, mode] = this.rules.find(matches) || ["*", this.otherwise];
    if (mode !== "ask") return mode;
    const said = this.store.get()[entry(tool, conversation)];
    return said === undefined ? "ask" : said ? "allow" : "deny";
  }

  answer(tool, yes, conversation = "") {
    this.store.set({ ...this.store.get(), [entry(tool, conversation)]: Boolean(yes) });
  }

  // revoke takes an answer back.
  revoke(tool, conversation = "") {
    const { [entry(tool, conversation)]: _, ...rest } = this.store.get();
    this.store.set(rest);
  }

  // reset takes back all answers, or those of one conversation.
  reset(conversation) {
    const others = Object.entries(this.store.get()).filter(([at]) => conversation !== undefined && JSON.parse(at)[0] !== conversation);
    this.store.set(Object.fromEntries(others));
  }
}

"""The helpers of jail_agent_more, and a store in a database of Python's own."""

import json
import os
import re
import sqlite3
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from jail_agent import Event
from jail_agent_more import (ALLOW, ASK, DENY, ApprovalGate, DictStore, MissedContext, Queue, Settings, State, TokenTracker, Tool, Tools, to_anthropic,
                             tick, to_json_schema, to_mcp, to_openai, tool_calls)


class Storage:
    """The binding STORAGE over the sqlite3 of Python."""

    def __init__(self):
        self.db = sqlite3.connect(":memory:")
        self.db.row_factory = sqlite3.Row

    def exec(self, sql):
        self.db.execute(sql)

    def run(self, sql, *params):
        self.db.execute(sql, params)

    def get(self, sql, *params):
        row = self.db.execute(sql, params).fetchone()
        return dict(row) if row else None

    def query(self, sql, *params):
        return [dict(row) for row in self.db.execute(sql, params)]


class Helpers(unittest.TestCase):
    def stores(self):
        yield DictStore()
        yield State(Storage())

    def test_queue(self):
        for store in self.stores():
            q = Queue(store, limit=3)
            self.assertIsNone(q.begin())
            self.assertEqual([q.add("a"), q.add({"b": 1})], [0, 1])
            self.assertEqual(q.begin(), "a")
            self.assertIsNone(q.begin())  # one at a time
            q.replace("a, half done")
            self.assertEqual(Queue(store).current, "a, half done")  # after the next wake
            q.done()
            self.assertEqual(q.begin(), {"b": 1})
            self.assertEqual(q.add("c"), 1)
            self.assertEqual(q.interrupt(), [{"b": 1}, "c"])
            self.assertEqual((len(q), q.current), (0, None))
            for item in "xyz":
                q.add(item)
            self.assertRaises(OverflowError, q.add, "too many")
            q.interrupt()
            self.assertRaises(LookupError, q.replace, "nothing")

    def test_settings(self):
        kept = {}
        s = Settings({"n": 1, "f": 0.5, "on": False, "name": "x"}, lambda: kept, kept.update)
        self.assertEqual(s.all(), {"n": 1, "f": 0.5, "on": False, "name": "x"})
        self.assertEqual([s.set("n", "7"), s.set("f", 2), s.set("on", "yes"), s.set("name", "y")], [7, 2, True, "y"])
        kept["n"] = "what another member wrote"
        self.assertEqual((s["n"], s["on"]), (1, True))
        for name, value in (("n", "x"), ("n", True), ("on", "maybe"), ("on", 1), ("name", 3)):
            self.assertRaises(ValueError, s.set, name, value)
        self.assertRaises(KeyError, s.set, "none", 1)

    def test_missed(self):
        for store in self.stores():
            m = MissedContext(store, keep=3, chars=20)
            self.assertEqual(m.take(), "")
            m.note("ann", "hi")
            m.note("bob", "ho")
            self.assertEqual(m.take(), "ann: hi\nbob: ho")
            self.assertEqual(m.take(), "")
            for i in range(5):
                m.note("ann", "line %d" % i)
            self.assertEqual(m.take(), "(4 earlier messages are left out)\nann: line 4")

    def test_tokens(self):
        for store in self.stores():
            now = [0]
            t = TokenTracker(store, now=lambda: now[0], days=2)
            t.take("fast", {"type": "message_start", "message": {"usage": {"input_tokens": 5}}})
            t.take("fast", {"type": "message_delta", "usage": {"output_tokens": 2}})
            t.take("smart", {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 20}})
            t.take("smart", {"type": "response.completed", "response": {"usage": {"input_tokens": 100, "output_tokens": 200}}})
            t.take("smart", {"choices": []})
            self.assertEqual([t.today("fast"), t.today("smart"), t.today("none"), t.today()], [(5, 2), (110, 220), (0, 0), (115, 222)])
            for day in (1, 2, 3):
                now[0] = day * 86400
                t.add("fast", 1, 1)
            self.assertEqual((t.today(), len(store.get("tokens"))), ((1, 1), 2))

    def test_gate(self):
        for store in self.stores():
            g = ApprovalGate(store, [("read*", ALLOW), ("rm", DENY)])
            self.assertEqual([g.check("read_file"), g.check("rm"), g.check("write", "a")], [ALLOW, DENY, ASK])
            g.answer("write", True, "a")
            g.answer("send", False, "a")
            self.assertEqual([g.check("write", "a"), g.check("send", "a"), g.check("write", "b")], [ALLOW, DENY, ASK])
            g.answer("rm", True)
            self.assertEqual(g.check("rm"), DENY)  # a rule comes first
            g.revoke("write", "a")
            self.assertEqual(g.check("write", "a"), ASK)
            g.reset("a")
            self.assertEqual(g.check("send", "a"), ASK)
        self.assertRaises(ValueError, ApprovalGate, DictStore(), [("x", "maybe")])

    def test_tools(self):
        called = []
        offered = [{"providerId": "clock", "methodName": "now", "description": "The time.", "schema": {"type": "object"}},
                   {"providerId": "clock", "methodName": "now", "description": "Twice."},
                   {"providerId": "é", "methodName": "x y"}]
        own = [Tool("edit", "Edits.", None, called.append, modes=["code"])]
        t = Tools(own, lambda: offered, lambda *call: called.append(call) or "noon")
        self.assertEqual([x.full_name for x in t.list()], ["clock__now", "___x_y"])
        self.assertEqual([x.full_name for x in t.list("code")], ["edit", "clock__now", "___x_y"])
        self.assertEqual(t.find("clock__now").call({"a": 1}), "noon")
        self.assertEqual(called, [("clock", "now", {"a": 1})])
        self.assertRaises(LookupError, t.find, "edit", "chat")
        one = t.list()[:1]
        self.assertEqual(to_mcp(one), [{"name": "clock__now", "description": "The time.", "inputSchema": {"type": "object"}}])
        self.assertEqual(to_openai(one), [{"type": "function", "function": {"name": "clock__now", "description": "The time.", "parameters": {"type": "object"}}}])
        self.assertEqual(to_anthropic(one), [{"name": "clock__now", "description": "The time.", "input_schema": {"type": "object"}}])
        schema = to_json_schema(t.list())
        self.assertEqual([s["properties"]["tool"]["const"] for s in schema["oneOf"]], ["clock__now", "___x_y"])
        json.dumps(schema)

    def test_tool_calls(self):
        messages = [{"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "i", "name": "n"}},
                    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a\""}},
                    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}}]
        chat = [{"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "i", "function": {"name": "n", "arguments": ""}}]}}]},
                {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\": 1}"}}]}}]}]
        responses = [{"type": "response.output_item.done", "item": {"type": "function_call", "call_id": "i", "name": "n", "arguments": "{\"a\": 1}"}}]
        for events in (messages, chat, responses):
            self.assertEqual(tool_calls(events), [("i", "n", {"a": 1})])
        self.assertEqual(tool_calls([{"choices": [{"delta": {"content": "x"}}]}]), [])

    def test_tick(self):
        storage, asked, published = Storage(), [], []
        # The tables of every agent, as its database makes them.
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../agent/store/tables.go")) as f:
            for table in re.findall("`(CREATE TABLE [^`]*)`", f.read()):
                storage.exec(table)

        def step(id, answer):
            def ask(messages, system):
                asked.append((json.loads(messages[0]["content"]), system))
                return answer
            return tick(id, storage, ask, lambda content, type: published.append((type, content)), "Be brief.", memories=2, now=lambda: 7)

        self.assertIsNone(step("e0", "nobody is asked"))
        storage.run("INSERT INTO goals VALUES ('g1', 'build', 2, 'open', 0.1), ('g2', 'rest', 9, 'open', 0), ('g3', 'sleep', 10, 'done', 1)")
        storage.run("INSERT INTO conversations VALUES ('c1', 1, 'old', 0), ('c2', 2, 'newer', 0), ('c3', 3, 'new', 0), ('c4', 4, '', 0)")
        answer = {"summary": "built", "goals": [{"id": "g1", "progress": 4, "status": "done"}, {"id": "none", "progress": 1}, 3],
                  "patterns": [{"id": "p1", "pattern_type": "x", "description": "tests help", "confidence": float("nan")}, {"id": "p2"}]}
        want = {"text": "built", "goals": ["g1"], "patterns": ["p1"]}
        self.assertEqual(step("e1", "Here it is: %s." % json.dumps(answer)), want)
        self.assertEqual(published, [("tick_result", want)])
        context, system = asked[0]
        self.assertEqual([g["id"] for g in context["goals"]], ["g2", "g1"])
        self.assertEqual([m["summary"] for m in context["memories"]], ["new", "newer"])
        self.assertTrue(system.endswith("Be brief."))
        self.assertEqual(storage.get("SELECT status, progress FROM goals WHERE id = 'g1'"), {"status": "done", "progress": 1})
        self.assertEqual(storage.get("SELECT confidence FROM learned_patterns"), {"confidence": 0.5})
        self.assertEqual(storage.get("SELECT * FROM conversations WHERE id = 'e1'"), {"id": "e1", "started_at": 7, "summary": "built", "tokens_used": 0})
        self.assertEqual([m["role"] for m in storage.query("SELECT role FROM messages WHERE conversation_id = 'e1' ORDER BY id")], ["user", "assistant"])
        # The next one knows of it, and words alone change nothing else.
        self.assertEqual(step("e2", " I rested. "), {"text": "I rested.", "goals": [], "patterns": []})
        context, _ = asked[1]
        self.assertEqual(([g["id"] for g in context["goals"]], [m["summary"] for m in context["memories"]], context["patterns"][0]["description"]),
                         (["g2"], ["built", "new"], "tests help"))
        for odd in ('{"goals": {}, "patterns": 3, "summary": 1}', "{", '{"goals": [{"id": []}], "patterns": [{"id": 1, "description": 2}]}', "[1]"):
            self.assertEqual(step("odd" + odd, odd), {"text": odd, "goals": [], "patterns": []})

    def test_key(self):
        os.environ["AGENT_ID"] = "agent:ann:a"
        self.assertEqual(Event({"seq": 7, "kind": "new"}).key(2), Event({"seq": 7, "kind": "replay", "attempt": 2}).key(2))
        self.assertEqual(Event({"seq": 7}).key(2), "agent:ann:a/7/2")

    def test_state(self):
        self.assertRaises(ValueError, State, Storage(), "x; DROP TABLE y")


if __name__ == "__main__":
    unittest.main(verbosity=0)

import jail_agent
from jail_agent_data import Collection, Singleton, transaction


def customer(email, city):
    return {"address": {"city": city}, "email": email}


def keys(items):
    return " ".join(str(key) for key, _ in items)


def refused(f):
    try:
        f()
    except (jail_agent.Error, ValueError):
        return "refused"
    return "done"


def fail(*_):
    raise ValueError("as it was asked to")


class Keeper(jail_agent.Agent):
    def on_event(self, event):
        customers = Collection(self.storage, "customers", unique=["email"], index=["address.city"])
        log = Collection(self.storage, "log")
        customers.subscribe(lambda change: log.put(len(log) + 1, [change.kind, change.key]))
        customers.subscribe(lambda change: fail() if change.key == 13 else None)
        if event.text == "fail":
            customers.put(5, customer("eve", "Bern"))
            fail()
        numbers = Collection(self.storage, "numbers", index=["n"])
        for key in (10, 9, 2.5, -1):
            numbers.put(key, 1)
        numbers, texts = Collection(self.storage, "numbers"), Collection(self.storage, "texts")
        for key in ("9", "10"):
            texts.put(key, 1)
        said = ["%s, %s, %s" % (keys(numbers.items()), keys(numbers.items(9, 10)), keys(texts.items()))]
        customers.put(1, customer("ann", "Bern"))
        customers.put(2, customer("bob", "Bern"))
        same = refused(lambda: customers.put(3, customer("ann", "Zug")))
        found = keys(customers.find("address.city", "Bern")), keys(customers.find("email", "bob"))
        said.append("%s, %d, %s, %s" % (same, len(customers), *found))
        customers.put(2, customer("bob", "Zug"))
        customers.remove(2)
        told = " ".join("%s %s" % (kind, key) for _, (kind, key) in log.items())
        said.append("%s, %s, %d" % (told, refused(lambda: customers.put(13, customer("dan", "Bern"))), len(log)))

        def half():
            with transaction(self.storage):
                customers.put(4, customer("cleo", "Bern"))
                fail()

        said.append("%s, %s" % (refused(half), customers.get(4, "none")))
        tone = Singleton(self.storage, "tone", "short")
        tones = [tone.get()]
        tone.set("long")
        tones.append(tone.get())
        tone.reset()
        tones.append(tone.get())
        tone.set("long")
        said.append(" ".join(tones))
        self.send("; ".join(said))


jail_agent.run(Keeper())

-- A database of format 1, as the first jail-agentd made it, with an agent for whom an event and an
-- alarm wait.
CREATE TABLE agent (
	name TEXT PRIMARY KEY,
	dir TEXT NOT NULL,
	stamp TEXT NOT NULL,
	digest TEXT NOT NULL,
	next INTEGER NOT NULL,
	added INTEGER NOT NULL,
	removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE instance (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL UNIQUE,
	agent TEXT NOT NULL,
	channel TEXT NOT NULL,
	handle TEXT NOT NULL,
	state TEXT NOT NULL,
	paused INTEGER NOT NULL DEFAULT 0,
	failures INTEGER NOT NULL DEFAULT 0,
	not_before INTEGER NOT NULL DEFAULT 0,
	delivered INTEGER NOT NULL DEFAULT 0,
	settled INTEGER NOT NULL DEFAULT 0,
	waiting INTEGER NOT NULL DEFAULT 0,
	bytes INTEGER NOT NULL DEFAULT 0,
	note TEXT NOT NULL DEFAULT '',
	error TEXT NOT NULL DEFAULT '',
	changed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX instance_channel ON instance (channel);
CREATE INDEX instance_agent ON instance (agent);
CREATE INDEX instance_waiting ON instance (id) WHERE waiting > 0;
CREATE TABLE inbox (
	instance INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	id TEXT NOT NULL,
	time INTEGER NOT NULL,
	source TEXT NOT NULL,
	channel TEXT NOT NULL,
	type TEXT NOT NULL,
	kind TEXT NOT NULL,
	reply_to TEXT NOT NULL,
	attempt INTEGER NOT NULL DEFAULT 0,
	failed INTEGER NOT NULL DEFAULT 0,
	data BLOB,
	PRIMARY KEY (instance, seq)
) WITHOUT ROWID;
CREATE TABLE dead (
	instance INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	id TEXT NOT NULL,
	time INTEGER NOT NULL,
	source TEXT NOT NULL,
	channel TEXT NOT NULL,
	type TEXT NOT NULL,
	kind TEXT NOT NULL,
	reply_to TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	data BLOB,
	died INTEGER NOT NULL,
	reason TEXT NOT NULL,
	PRIMARY KEY (instance, seq)
) WITHOUT ROWID;
CREATE TABLE seen (
	instance INTEGER NOT NULL,
	source TEXT NOT NULL,
	id TEXT NOT NULL,
	seq INTEGER NOT NULL,
	time INTEGER NOT NULL,
	PRIMARY KEY (instance, source, id)
) WITHOUT ROWID;
CREATE INDEX seen_time ON seen (time);
CREATE TABLE alarm (
	instance INTEGER NOT NULL,
	name TEXT NOT NULL,
	at INTEGER NOT NULL,
	every INTEGER NOT NULL,
	pending INTEGER NOT NULL,
	data BLOB,
	PRIMARY KEY (instance, name)
) WITHOUT ROWID;
CREATE INDEX alarm_due ON alarm (at) WHERE at > 0 AND pending = 0;
CREATE INDEX alarm_pending ON alarm (instance, pending) WHERE pending > 0;
CREATE TABLE publication (
	n INTEGER PRIMARY KEY AUTOINCREMENT,
	instance INTEGER NOT NULL,
	time INTEGER NOT NULL,
	channel TEXT NOT NULL,
	receiver TEXT NOT NULL,
	kind TEXT NOT NULL,
	id TEXT NOT NULL,
	type TEXT NOT NULL,
	reply_to TEXT NOT NULL,
	data BLOB
);
CREATE INDEX publication_instance ON publication (instance, n);
CREATE INDEX publication_answer ON publication (reply_to, instance) WHERE reply_to <> '';
CREATE TABLE proposal (
	id TEXT PRIMARY KEY,
	instance INTEGER NOT NULL,
	time INTEGER NOT NULL,
	data BLOB,
	decision TEXT NOT NULL DEFAULT '',
	decided INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX proposal_instance ON proposal (instance, time);
CREATE TABLE settings (channel TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
	agent TEXT NOT NULL,
	day TEXT NOT NULL,
	input INTEGER NOT NULL,
	output INTEGER NOT NULL,
	PRIMARY KEY (agent, day)
) WITHOUT ROWID;
PRAGMA user_version = 1;
INSERT INTO agent (name, dir, stamp, digest, next, added)
	VALUES ('old', '/old', 'stamp', 'sha256:old', 8, 1000);
INSERT INTO instance (name, agent, channel, handle, state, delivered, settled, waiting, bytes, note)
	VALUES ('agent-old-team', 'old', 'team', 'old', 'dormant', 6, 6, 1, 2, 'kept');
INSERT INTO inbox (instance, seq, id, time, source, channel, type, kind, reply_to, data)
	VALUES (1, 7, 'e7', 1000, 'user', 'team', 'message', 'new', '', '42');
INSERT INTO alarm VALUES (1, 'later', 2000, 0, 0, NULL);
INSERT INTO proposal VALUES ('agent:ann:old/5/1', 1, 1000, '"deploy"', '', 0);
INSERT INTO proposal VALUES ('agent:ann:old/6/1', 1, 1000, '"remove"', 'rejected', 2000);

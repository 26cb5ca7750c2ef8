package store

import "fmt"

// format is the version of the tables, stored as user_version. 1 and 2 were never released.
const format = 3

// tables create the tables of a new database. Times are milliseconds since 1970, 0 for none. Ids of
// instances are never reused, so that data of a deleted instance is not taken for a new one's.
var tables = []string{
	// next is the next event number of all the agent's instances. Message ids contain the agent's
	// name and such a number, so the row stays when the agent is deleted.
	`CREATE TABLE agent (
		name TEXT PRIMARY KEY,
		dir TEXT NOT NULL,
		stamp TEXT NOT NULL,
		digest TEXT NOT NULL,
		next INTEGER NOT NULL,
		added INTEGER NOT NULL,
		removed INTEGER NOT NULL DEFAULT 0
	) WITHOUT ROWID`,
	// A facet has the id of its parent, its path in facet, and its parent's request in ask.
	// deleting: the instance is gone, except for its files.
	`CREATE TABLE instance (
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
		changed INTEGER NOT NULL DEFAULT 0,
		roster INTEGER NOT NULL DEFAULT 0,
		parent INTEGER NOT NULL DEFAULT 0,
		facet TEXT NOT NULL DEFAULT '',
		ask BLOB,
		deleting INTEGER NOT NULL DEFAULT 0
	)`,
	`CREATE UNIQUE INDEX instance_facet ON instance (parent, facet) WHERE parent > 0`,
	`CREATE INDEX instance_channel ON instance (channel)`,
	`CREATE INDEX instance_agent ON instance (agent)`,
	`CREATE INDEX instance_waiting ON instance (id) WHERE waiting > 0`,
	`CREATE TABLE inbox (
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
	) WITHOUT ROWID`,
	`CREATE TABLE dead (
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
	) WITHOUT ROWID`,
	`CREATE INDEX dead_id ON dead (instance, id)`,
	// The ids of events that came in by Append, to detect duplicates.
	`CREATE TABLE seen (
		instance INTEGER NOT NULL,
		source TEXT NOT NULL,
		id TEXT NOT NULL,
		seq INTEGER NOT NULL,
		time INTEGER NOT NULL,
		PRIMARY KEY (instance, source, id)
	) WITHOUT ROWID`,
	`CREATE INDEX seen_time ON seen (time)`,
	// at is when the alarm is due, 0 for never; every is the interval of a heartbeat; pending is
	// the number of the alarm's event while it waits in the inbox.
	`CREATE TABLE alarm (
		instance INTEGER NOT NULL,
		name TEXT NOT NULL,
		at INTEGER NOT NULL,
		every INTEGER NOT NULL,
		pending INTEGER NOT NULL,
		data BLOB,
		PRIMARY KEY (instance, name)
	) WITHOUT ROWID`,
	`CREATE INDEX alarm_due ON alarm (at) WHERE at > 0 AND pending = 0`,
	`CREATE INDEX alarm_pending ON alarm (instance, pending) WHERE pending > 0`,
	`CREATE TABLE publication (
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
	)`,
	`CREATE INDEX publication_instance ON publication (instance, n)`,
	`CREATE INDEX publication_answer ON publication (reply_to, instance) WHERE reply_to <> ''`,
	`CREATE TABLE proposal (
		id TEXT PRIMARY KEY,
		instance INTEGER NOT NULL,
		time INTEGER NOT NULL,
		data BLOB,
		key TEXT NOT NULL,
		action TEXT NOT NULL DEFAULT '',
		told INTEGER NOT NULL DEFAULT 0
	) WITHOUT ROWID`,
	`CREATE INDEX proposal_instance ON proposal (instance)`,
	`CREATE TABLE settings (channel TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE tokens (
		agent TEXT NOT NULL,
		day TEXT NOT NULL,
		input INTEGER NOT NULL,
		output INTEGER NOT NULL,
		PRIMARY KEY (agent, day)
	) WITHOUT ROWID`,
}

// makeTables creates the tables of a new database. It returns an error if the format differs.
func (w *writer) makeTables() error {
	var version int
	if err := w.row(`PRAGMA user_version`, nil, &version); err != nil || version == format {
		return err
	}
	if version != 0 {
		return fmt.Errorf("it has format %d, and this jail-agentd knows format %d: "+
			"use the jail-agentd that wrote it", version, format)
	}
	if err := w.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	for _, t := range append(tables, fmt.Sprintf(`PRAGMA user_version = %d`, format)) {
		if err := w.exec(t); err != nil {
			_ = w.exec(`ROLLBACK`)
			return err
		}
	}
	return w.exec(`COMMIT`)
}

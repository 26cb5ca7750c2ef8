package store

// tables creates the tables of every agent; the first two are for jail only. WITHOUT ROWID halves
// the size of an empty database. Ids and texts are TEXT, times are INTEGER seconds since 1970.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS _jail_checkpoint (id INTEGER PRIMARY KEY NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS _jail_outbox (seq INTEGER NOT NULL, n INTEGER NOT NULL, effect TEXT NOT NULL, PRIMARY KEY (seq, n)) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS agent_config (key TEXT PRIMARY KEY NOT NULL, value TEXT, updated_at INTEGER) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS conversations (id TEXT PRIMARY KEY NOT NULL, started_at INTEGER, summary TEXT, tokens_used INTEGER) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS messages (id TEXT PRIMARY KEY NOT NULL, conversation_id TEXT, role TEXT, content TEXT, created_at INTEGER) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS file_context (path TEXT PRIMARY KEY NOT NULL, content_hash TEXT, last_read_at INTEGER, summary TEXT) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS learned_patterns (id TEXT PRIMARY KEY NOT NULL, pattern_type TEXT, description TEXT, confidence REAL) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS nostr_events (id TEXT PRIMARY KEY NOT NULL, pubkey TEXT, kind INTEGER, created_at INTEGER, content TEXT) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS goals (id TEXT PRIMARY KEY NOT NULL, description TEXT, priority INTEGER, status TEXT, progress REAL) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS agent_peers (npub TEXT PRIMARY KEY NOT NULL, name TEXT, relationship TEXT, trust_score REAL) WITHOUT ROWID`,
}

// Package audit writes and reads the audit log: the host's record of what every run did and was
// refused. Anybody with the public key can verify, without a daemon, that it was not altered.
//
// # On disk
//
// A log is a directory:
//
//	000000000001.jsonl   records 1 and on, one JSON object a line
//	000000048211.jsonl   the next segment, named after its first record
//	….jsonl.gz           a packed segment: hashes and signatures cover its lines, see [Log.Compress]
//	head                 the signed head: number of records, tree over them, hash of the last one
//	tree                 the hashes of the tree (a cache: rebuilt from the records if wrong)
//	cut                  if old segments were pruned: the signed head after the last pruned record
//	audit.pub            the public keys, the oldest first, one a line (trust your own copy instead)
//	index.sqlite         for searches, see package index; verification never reads it
//	lock                 held by a writer during one batch
//	torn-000000000201    bytes that a crash left after record 200, unchanged
//
// A second directory, which only the writer reads, has audit.key (mode 0600), audit.pub and
// audit.head, a copy of the head at the last checkpoint.
//
// # Zeros behind the last line
//
// A writer that writes many batches without a pause fills the last segment with zeros ahead of
// its lines, so that a flush writes no metadata. The zeros reach to the end of the file and are
// at most 1 MiB, and the size of the file is then a multiple of 1 MiB. They are not part of the
// log. The writer overwrites them. It removes the rest after a pause, when it starts another
// segment, and when it is closed. Zeros anywhere else are damage.
//
// # A record
//
//	{"seq":2,"time":"2026-01-02T03:04:05.000000006Z","type":"denied","run":"r1","session":"",
//	 "actor":{"uid":1000,"pid":42,"exe":"/usr/bin/jail"},"policy":"sha256:…","layer":"wasi",
//	 "what":"open /etc/shadow","rule":"no grant","prev":"sha256:…"}
//
// on one line. "seq", "time" and "type" come first, then the fields of the type, and "prev" last.
// "prev" is the SHA-256 of the previous line without its newline. In record 1 it is the hash of no
// bytes (sha256:e3b0c442…b855). The chain continues from one segment to the next.
//
// The JSON is strict, so that all readers read a line alike: no duplicate keys, keys of a-z 0-9 _
// only, integers only, no null, no white space, at most 8 levels deep and 1 MiB long, and only the
// escapes \" \\ \n and \uXXXX in strings.
//
// # Text from tools
//
// A string can hold any bytes. A byte that is not part of valid UTF-8 is written as U+FFFD and two
// hexadecimal digits, and a genuine U+FFFD as two of them; [Original] reverses this. Control and
// invisible characters (C0, C1, DEL, bidi and zero-width marks, and the like) are \uXXXX escapes in
// the file, so even "cat" of a segment is harmless. A string of more than 4 KiB is cut, and "cut"
// then has the field's name, and the length in bytes and the SHA-256 of the whole string.
//
// # Signatures
//
// The head is a C2SP tlog-checkpoint, a signed note (golang.org/x/mod/sumdb/note) over origin, size
// and root:
//
//	jail-audit/3f9a51c07d2e
//	200
//	hZ5mGgJ2pzXgTgLPOW0o5pIHTrYvUXdRZuHkkdeRq44=
//	latest 2026-01-02T03:04:05.000000006Z ..................
//	chain sha256:2f1d…
//
//	— jail-audit/3f9a51c07d2e hcGDxq…
//
// The root is the root of the Merkle tree (RFC 6962) whose leaves are the lines without their
// newlines. It allows proving that one record is in the log without the others: [Prove],
// [CheckProof], and any other reader of C2SP tlog-proofs. The last line is the hash of the last
// record's line, which is the next record's "prev". The dots make the length of the file constant,
// so that it can be overwritten in place. A "checkpoint" record has such a note about the records
// before it, with the word "checkpoint" instead of "latest", so that a checkpoint copied from the
// log is not accepted as its head.
//
// A checkpoint with a further line "next KEY" announces another key and is signed by both: after it
// only the new key is valid ([Rotate]). Pruning ([Prune]) removes whole segments from the
// beginning; "cut" is then a note with the word "cut" and the right edge of the tree, from which
// chain and tree continue.
//
// # What is detected, and what is not
//
// A batch is written, flushed, then covered by a new signed head, and only then acknowledged. The
// head is itself flushed at checkpoints, right after the end of a run and at close.
//
//   - A record is altered, removed, inserted, repeated or moved: detected by the chain and the
//     head.
//   - Records at the end, or a segment, are missing: detected by the head at any time, even after
//     kill -9, since the head file is never older than the last acknowledged record.
//   - The head is missing or replaced by an older one: detected if it does not match the log. A
//     head and a log that are both put back to an older state match. Verify alone does not detect
//     that; a writer does at its next Open, if they are older than audit.head in the key directory.
//   - Records after the head, which a crash left (flushed but never acknowledged) or someone
//     without the key added: Verify reports them as unsigned, until the next writer keeps them and
//     adds a "gap" record. Torn bytes are moved to a file of their own, also with a "gap" record.
//     More of them than one writer could have left are damage, and the log is not opened.
//   - A segment or head is moved, cut or replaced under a running writer: detected at its next
//     record, which is refused.
//   - After a power failure the head on disk may be the head of the last checkpoint, or of the last
//     run that ended at least 20 ms before, because the head is flushed after the answer to the
//     run. No flushed record is lost (the next writer finds the records after the head). But an
//     attacker with access to the disk could remove the records after that head meanwhile, which is
//     not detected.
//   - An owner of the private key (root on this host) can write another history. Only a head that
//     was sent off the host before detects that: package anchor sends heads, [Verify] compares
//     them. A witness on another host cosigns only heads that extend the last one, so its signature
//     proves that it has seen only one history.
package audit

// Package audit is the host-side record of what every run did and was refused, so that a stranger
// can check afterwards, with a public key and no daemon, that nothing was altered or taken out.
//
// # On disk
//
// A log is a directory:
//
//	000000000001.jsonl   records 1 and on, one JSON object a line
//	000000048211.jsonl   the next segment, named after its first record
//	….jsonl.gz           one that was packed: what is hashed and signed is its lines, see [Log.Compress]
//	head                 the signed head: how many records there are, the tree over them, the hash of the last
//	tree                 the hashes of the tree (a convenience: made anew from the records where it does not fit)
//	cut                  where old segments were pruned: the head as it was there, signed
//	audit.pub            the public keys, the eldest first, one a line (a convenience: trust the copy that you kept)
//	index.sqlite         for searches, see package index: what reads the log for a verdict never asks it
//	lock                 held by a writer for the length of one batch
//	torn-000000000201    bytes that a crash left behind record 200, kept as found
//
// and, in a second directory that only the writer reads, audit.key (mode 0600), audit.pub and
// audit.head, the head as it was at the last checkpoint.
//
// # Zeros behind the last line
//
// A writer that writes many batches without a pause fills the last segment with zeros ahead of
// its lines, so that a flush writes no metadata. The zeros reach to the end of the file and are
// at most 1 MiB, and the size of the file is then a multiple of 1 MiB. They are no part of the
// log. The writer overwrites them. It removes the rest after a pause, when it begins another
// segment, and when it is closed. Zeros anywhere else are damage.
//
// # A record
//
//	{"seq":2,"time":"2026-01-02T03:04:05.000000006Z","type":"denied","run":"r1","session":"",
//	 "actor":{"uid":1000,"pid":42,"exe":"/usr/bin/jail"},"policy":"sha256:…","layer":"wasi",
//	 "what":"open /etc/shadow","rule":"no grant","prev":"sha256:…"}
//
// on one line. "seq", "time" and "type" come first and "prev" last; the type's own fields stand
// between. "prev" is the SHA-256 of the bytes of the line before, without its newline; record 1 has
// no line before it, so its "prev" is the hash of no bytes (sha256:e3b0c442…b855). The chain goes
// on from one segment to the next.
//
// The JSON is strict, so that two readers cannot read one line two ways: no duplicate keys, keys of
// a-z 0-9 _ only, integers only, no null, no white space, at most 8 levels deep and 1 MiB long, and
// in strings no escapes but \" \\ \n and \uXXXX.
//
// # Text from tools
//
// A string can hold any bytes. A byte that is not part of valid UTF-8 is written as U+FFFD and two
// hexadecimal digits, and a genuine U+FFFD as two of them; [Original] turns this back. Every
// character that a terminal obeys or does not show (C0, C1, DEL, bidi and zero-width marks, and the
// like) is a \uXXXX escape in the file, so even "cat" of a segment is harmless. A string of more
// than 4 KiB is cut, and "cut" then holds the field's name, the length in bytes and the SHA-256 of
// the whole.
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
// The root is that of the Merkle tree (RFC 6962) whose leaves are the lines without their newlines,
// so that one record can be shown to be in the log without the others: [Prove], [CheckProof], and
// any other reader of C2SP tlog-proofs. The last line is the hash of the last record's line, as the
// next record's "prev" has it. The dots keep the file's length the same for every size, so that it
// can be overwritten in place. A "checkpoint" record carries the same kind of note about the
// records before it, with the word "checkpoint" in place of "latest": a checkpoint cut out of the
// log does not pass for its head.
//
// A checkpoint with a further line "next KEY" hands over to another key and is signed by both:
// behind it only the new key counts ([Rotate]). Pruning ([Prune]) takes whole segments from the
// beginning; "cut" is then a note with the word "cut" and the right edge of the tree, from which
// chain and tree go on.
//
// # What is found, and what is not
//
// A batch is written, flushed, then covered by a new signed head, and only then acknowledged. The
// head is itself flushed at checkpoints, right after the end of a run and at close.
//
//   - Any record altered, removed, inserted, repeated or moved: found by the chain and the head.
//   - Any number of records missing at the end, or a segment: found by the head, at every moment, also
//     after kill -9, for the head on file is never older than the last acknowledged record.
//   - The head missing or put back to an older one: found where it no longer fits the log. A head and
//     a log that are both put back to an older state fit each other. Verify alone does not see that; a
//     writer does at its next Open, if they are older than audit.head in the key directory.
//   - Records that a crash left behind the head (flushed but never acknowledged) or that someone without
//     the key put there: named unsigned by Verify, until the next writer keeps them and says so in a "gap"
//     record. Torn bytes are moved to a file of their own, also with a "gap" record. More of them than one
//     writer could have left are damage, and the log is not opened.
//   - A segment or head that is moved, cut or replaced under a running writer: found at its next record,
//     which is refused.
//   - After a power cut the head on disk may be that of the last checkpoint, or of the last run
//     that ended at least 20 ms before, because the head is flushed after the answer to the run.
//     No flushed record is lost (the next writer finds the records after the head). But an
//     attacker with the disk could remove the records after that head meanwhile, and this is not
//     found.
//   - A holder of the private key (root on this host) can write another history. Only a head that was sent
//     off the host in time detects that: package anchor sends heads, [Verify] takes them. A [Witness] on
//     another host cosigns only heads that extend the last one, so its signature proves that it was shown no
//     second history.
package audit

#!/usr/bin/env python3
"""Verify an audit log of jail without jail: verify.py DIR audit.pub, or verify.py --proof FILE audit.pub.

A second reading of docs/audit-format.md, with the standard library alone. Slow (a few seconds for each hundred thousand records) and short on purpose.
Exits with 0, or with 1 and the first record that is wrong. It does not wait for a writer: verify a copy, or a log that is not in use.
"""
import base64, glob, gzip, hashlib, json, os, sys

# Ed25519 (RFC 8032, section 5.1.7 and appendix A).
P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a, b):
    x, y, z, w = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P, 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = y - x, w - z, w + z, y + x
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, point):
    out = (0, 1, 1, 0)
    while n:
        if n & 1:
            out = add(out, point)
        point, n = add(point, point), n >> 1
    return out


def point(text):
    y = int.from_bytes(text, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= P:
        raise ValueError("no point")
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P or x == 0 and sign:
        raise ValueError("no point")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed(key, message, signature):
    r, s = point(signature[:32]), int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= Q:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % Q
    a, b = times(s, BASE), add(r, times(h, point(key)))
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


# Signed notes (C2SP signed-note) and what they say here.
def keys(text):
    found = {}
    for line in text.split():
        name, key_hash, key = line.split("+", 2)
        raw = base64.b64decode(key, validate=True)
        if raw[0] != 1 or hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4].hex() != key_hash:
            raise ValueError("not an Ed25519 key of a note: " + line)
        found[name, key_hash] = raw[1:]
    return found


def note(text, known, purpose):
    body, signatures = text.rsplit("\n\n", 1)
    body += "\n"
    good = False
    for line in signatures.splitlines():
        dash, name, sig = line.split(" ")
        raw = base64.b64decode(sig, validate=True)
        key = known.get((name, raw[:4].hex()))
        good = good or dash == "—" and key and name == body.split("\n")[0] and signed(key, body.encode(), raw[4:])
    lines = body.split("\n")[:-1]
    if not good or not lines[3].startswith(purpose + " ") or not lines[4].startswith("chain sha256:"):
        raise ValueError("not a note of this log that a known key has signed")
    return int(lines[1]), base64.b64decode(lines[2], validate=True), lines[4][6:], lines[5:]


# The Merkle tree (RFC 6962): its right edge is a list of (height, hash).
def leaf(line):
    return hashlib.sha256(b"\0" + line).digest()


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def grow(edge, hash_):
    height = 0
    while edge and edge[-1][0] == height:
        hash_, height = node(edge.pop()[1], hash_), height + 1
    edge.append((height, hash_))


def root(edge):
    if not edge:
        return hashlib.sha256().digest()
    hash_ = edge[-1][1]
    for _, left in reversed(edge[:-1]):
        hash_ = node(left, hash_)
    return hash_


def chain(line):
    return "sha256:" + hashlib.sha256(line).hexdigest()


def zeros(path):
    """The number of zeros that a writer put after the lines of the last segment, for later lines."""
    step, length = 1 << 20, os.path.getsize(path)
    if path.endswith(".gz") or length == 0 or length % step:
        return 0
    with open(path, "rb") as file:
        file.seek(length - step)
        end = file.read()
    return len(end) - len(end.rstrip(b"\0"))


def verify(directory, known):
    size, prev, edge, checkpoints = 0, chain(b""), [], 0
    if os.path.exists(directory + "/cut"):
        size, want, prev, more = note(open(directory + "/cut").read(), known, "cut")
        heights = [h for h in reversed(range(64)) if size >> h & 1]
        edge = list(zip(heights, [base64.b64decode(word) for word in more[0].split(" ")[1:]]))
        if root(edge) != want:
            raise SystemExit("the cut does not fit its own tree")
    pruned = size
    segments = {os.path.basename(path).split(".")[0]: path for ext in (".jsonl.gz", ".jsonl") for path in glob.glob(directory + "/[0-9]*" + ext)}
    for first, path in sorted(segments.items()):
        if int(first) <= pruned:
            continue
        ahead = zeros(path) if first == max(segments) else 0
        for line in (gzip.open if path.endswith(".gz") else open)(path, "rb"):
            seq = size + 1
            if ahead and len(line) == ahead and not line.strip(b"\0"):
                break
            if not line.endswith(b"\n"):
                raise SystemExit(f"record {seq} is torn")
            line = line[:-1]
            try:
                record = json.loads(line)
            except ValueError:
                raise SystemExit(f"record {seq} is altered: it is no JSON")
            if record.get("seq") != seq or record.get("prev") != prev:
                raise SystemExit(f"record {seq} is altered, missing or out of order")
            if record["type"] == "checkpoint":
                try:
                    n, want, last, more = note(record["note"], known, "checkpoint")
                except ValueError as why:
                    raise SystemExit(f"record {seq} is unsigned: {why}")
                if (n, want, last) != (size, root(edge), prev):
                    raise SystemExit(f"a record before checkpoint {seq} is altered")
                checkpoints += 1
                if more:
                    known = keys(more[0].removeprefix("next "))
                    note(record["note"], known, "checkpoint")
            grow(edge, leaf(line))
            size, prev = seq, chain(line)
    try:
        n, want, last, _ = note(open(directory + "/head").read(), known, "latest")
    except (ValueError, OSError) as why:
        raise SystemExit(f"the head is unsigned or missing: {why}")
    if n > size:
        raise SystemExit(f"record {size + 1} is missing: the signed head has {n}")
    if n < size:
        raise SystemExit(f"record {n + 1} is unsigned: it is behind the signed head")
    if (want, last) != (root(edge), prev):
        raise SystemExit(f"record {size} is altered: the head signs another")
    print(f"verified {size - pruned} records, {checkpoints} checkpoints")


def verify_proof(path, known):
    line, header, rest = open(path, "rb").read().split(b"\n", 2)
    top, signed_head = rest.decode().split("\n\n", 1)
    index, *hashes = top.split("\n")
    n, want, _, _ = note(signed_head, known, "latest")
    i, last, hash_ = int(index.removeprefix("index ")), n - 1, leaf(line)
    if header != b"c2sp.org/tlog-proof@v1" or i >= n or json.loads(line)["seq"] != i + 1:
        raise SystemExit("it is not a proof of this record")
    for other in map(base64.b64decode, hashes):  # RFC 9162, section 2.1.3.2
        if last == 0:
            raise SystemExit("the proof is too long")
        if i & 1 or i == last:
            hash_ = node(other, hash_)
            while not i & 1 and i:
                i, last = i >> 1, last >> 1
        else:
            hash_ = node(hash_, other)
        i, last = i >> 1, last >> 1
    if last or hash_ != want:
        raise SystemExit("the record is not in the log")
    print("verified: the record is in the log")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--proof":
        verify_proof(sys.argv[2], keys(open(sys.argv[3]).read()))
    elif len(sys.argv) == 3:
        verify(sys.argv[1], keys(open(sys.argv[2]).read()))
    else:
        sys.exit(__doc__)

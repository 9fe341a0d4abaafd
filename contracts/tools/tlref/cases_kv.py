"""Vectors of the KV block: hashes, checksum, envelopes, reader rules, sizes."""

import hashlib
import struct

from . import bits, envelope, fake_model
from .envelope import Shape
from .pcg32 import Pcg32

WORKED = {
    "name": "worked-example",
    "input": {
        "B": 2, "L": 1, "H": 1, "D": 2,
        "tokens": [1, 2],
        "values": [0x3C00, 0x4000, 0x3800, 0xBC00, 0x4200, 0x4400, 0x0000, 0x3400],
    },
}
WORKED_V1 = (
    "544c4b5601000100010000000200000001000000010000000200000066937b02c1b01aa902000000"
    "003c004000420044003800bc000000341c540b4f"
)
WORKED_V2 = (
    "544c4b5602000300010000000200000001000000010000000200000066937b02c1b01aa902000000"
    "6e767a7e76fe006e2549123c2549123bdd13892e"
)
ZERO_SLAB_V2 = (
    "544c4b56020003000100000002000000010000000100000002000000000000000000000001000000"
    "00000000000000000000803f0000803fb2e6ee50"
)
RANDOM_0 = (
    "544c4b5601000100030000000200000001000000010000000200000043ad59fbb357685202000000"
    "3742ccb80e231fa2e79270a63d651faf8b076dade93a448f02000000f30901a501e3e85ff8458a64"
    "2c5b890e000000000000000001000000f5ce09f10000000080bc03d000000000e015a754"
)
# name, (B, L, H, D), tokens, bytes, CRC as it lies in the file, sha256 of the envelope
WIRE_V1 = [
    ("worked-example", (2, 1, 1, 2), 2, 60, "1c540b4f",
     "dd5a2d9371695b7c8c04b6222179e2dff6dd080409485e844853268ddef1a2fe"),
    ("random-0", (2, 1, 1, 2), 5, 116, "e015a754",
     "f64baf5cb8ea3dbc5dd74d6acf6d594df954ecfec11c6d9b06b26e5c6866d53d"),
    ("random-1", (4, 2, 2, 3), 9, 644, "8262f005",
     "ac7f845d5576748de343e1713b93c322a7382bcda23752576055354edd87a3e5"),
    ("random-2", (16, 2, 1, 4), 33, 1604, "b1f6642e",
     "d45bd5c2c27f4b48b06334bce9d8e1e2a56d699090fe24b8d04f1ed64704a499"),
    ("random-3", (3, 3, 2, 2), 6, 344, "c9ca885e",
     "416b7fd9ee220796aa49c376048187cee05390f6b2ab20f321abf523f1e4b33c"),
    ("random-4", (8, 1, 4, 8), 7, 1068, "367da2fa",
     "c1d74980895daaa34377f47f78cb22a09f38d741abbeec58f324bbed2b8140dc"),
]
# block tokens, prompt, hashes of its full blocks
CHAINS = [
    (2, [1, 2], [0xA91AB0C1027B9366]),
    (2, [1, 2, 3, 4, 5], [0xA91AB0C1027B9366, 0x03DF829571605C60]),
    (4, range(1, 9), [0x7E75BA253EFD3FC1, 0x6CDB6EFF59291782]),
    (4, range(1, 10), [0x7E75BA253EFD3FC1, 0x6CDB6EFF59291782]),
    (4, range(10, 19), [0xA9D389CF014E98C5, 0x3C04F8FB5C37C8CD]),
    (4, range(50, 54), [0x4F6BAC14CBF509E5]),
    (4, range(0, 9), [0x2A899E406516C205, 0x79F0896F71EF9CAE]),
    (4, range(0, 10), [0x2A899E406516C205, 0x79F0896F71EF9CAE]),
    (4, range(100, 112), [0x2C57CB2C161B9E45, 0x1CF7FB29A2C16F3D, 0x6C4F0A21E6C1796D]),
    (4, range(3, 14), [0xD6C82218D9825FC1, 0x8215B5B5AF51AAD8]),
    (4, [5, 5, 5, 9, 2], [0xC6178E2E3810F3A9]),
    (4, [1, 2, 3], []),
    (4, [], []),
]
# A parent whose eight bytes bring FNV-1a to zero; zero tokens keep it there.
ZERO_PARENT = 0x3608874253B96BD5


def hashes():
    assert bits.fnv1a64(b"a") == 0xAF63DC4C8601EC8C
    assert bits.fnv1a64(struct.pack("<Q", ZERO_PARENT)) == 0
    chains = []
    for block_tokens, prompt, want in CHAINS:
        prompt = list(prompt)
        assert bits.prompt_hashes(prompt, block_tokens) == want, prompt
        chains.append(
            {"block_tokens": block_tokens, "tokens": prompt, "hashes": [str(h) for h in want]}
        )
    single = [(0, [1, 2]), (ZERO_PARENT, []), (ZERO_PARENT, [0, 0]), (bits.M64, [bits.M32, 0])]
    texts = ["", "a", "foobar", "engine-0#0"]
    return {
        "fnv1a64": [{"text": t, "hash": str(bits.fnv1a64(t.encode()))} for t in texts],
        "block_hash": [
            {"parent": str(p), "tokens": t, "hash": str(bits.block_hash(p, t))} for p, t in single
        ],
        "prompt_hashes": chains,
    }


def checksum():
    # The first is the usual check value; the next four are RFC 3720's examples.
    known = [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ]
    for data, crc in known:
        assert bits.crc32c(data) == crc
    for data in (b"", b"x", bytes(100)):
        assert bits.crc32c(envelope.seal(data)) == bits.CRC_RESIDUE
    rng = Pcg32(32)
    lengths = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 172, 255, 256, 257, 1000]
    drawn = [bytes(rng.next_u32() & 255 for _ in range(n)) for n in lengths]
    data = [d for d, _ in known] + drawn
    return {
        "residue": bits.CRC_RESIDUE,
        "cases": [{"hex": d.hex(), "crc32c": bits.crc32c(d)} for d in data],
    }


def wire_inputs():
    """The six inputs; all random ones come from one generator."""
    rng = Pcg32(4096, 6)
    cases = [WORKED]
    for name, (B, L, H, D), n, *_ in WIRE_V1[1:]:
        tokens = [rng.next_u32() % 50000 for _ in range(n)]
        values = []
        for _ in range(n * L * 2 * H * D):
            v = rng.next_u32() & 0xFFFF
            # No infinities and NaNs: the top exponent loses all bits but its highest.
            values.append(v & 0x83FF if (v >> 10) & 31 == 31 else v)
        shape = {"B": B, "L": L, "H": H, "D": D}
        cases.append({"name": name, "input": {**shape, "tokens": tokens, "values": values}})
    assert cases[1]["input"]["tokens"] == [49232, 34081, 5763, 48918, 5176]
    assert cases[1]["input"]["values"][:4] == [16951, 47308, 37607, 42608]
    return cases


def written(version, case):
    i = case["input"]
    shape = Shape(i["B"], i["L"], i["H"], i["D"])
    rows = envelope.rows_of(shape, i["tokens"], i["values"])
    out = envelope.write(version, shape, i["tokens"], rows)
    assert len(out) == shape.envelope_bytes(version, -(-len(i["tokens"]) // shape.B))
    assert bits.crc32c(out) == bits.CRC_RESIDUE
    return out


def wire(version):
    cases = []
    for case, (name, shape, n, size, crc, sha) in zip(wire_inputs(), WIRE_V1, strict=True):
        out = written(version, case)
        if version == 1:
            assert (case["name"], len(case["input"]["tokens"])) == (name, n)
            assert tuple(case["input"][k] for k in "BLHD") == shape
            assert (len(out), out[-4:].hex()) == (size, crc), name
            assert hashlib.sha256(out).hexdigest() == sha, name
        cases.append({**case, "output": {"hex": out.hex()}})
    want = WORKED_V1 if version == 1 else WORKED_V2
    assert cases[0]["output"]["hex"] == want
    if version == 1:
        assert cases[1]["output"]["hex"] == RANDOM_0
        assert struct.unpack("<I", bytes.fromhex(want)[-4:])[0] == 0x4F0B541C
    else:
        sha = "7d9cabe8284e48cbbcb78f03512c696ec1077e299b250b1f65c11ad061bf73c3"
        assert hashlib.sha256(bytes.fromhex(want)).hexdigest() == sha
        cases.append(zero_slab())
    return {"generator": "contracts/tools/make_vectors.py", "cases": cases}


def zero_slab():
    inputs = {"B": 2, "L": 1, "H": 1, "D": 2, "tokens": [9], "values": [0, 0, 0, 0]}
    case = {"name": "zero-slab", "input": inputs}
    out = written(2, case)
    assert out.hex() == ZERO_SLAB_V2
    return {**case, "output": {"hex": out.hex()}}


def e4m3():
    k_scale, v_scale = bits.f32(4 / 448), bits.f32(1 / 448)
    assert k_scale == 0.008928571827709675 and v_scale == 0.0022321429569274187
    assert [bits.f32(bits.e4m3_value(b) * k_scale) for b in (0x6E, 0x76, 0x7A, 0x7E)] == [
        1.0, 2.0, bits.f32(2.857142985), 4.0,
    ]
    # Ties of neighbours, the ends of the range, and both signs.
    numbers = [0.0, -0.0, 1.0, 336.0, 368.0, 448.0, -448.0, 447.0, 2.0**-9, 2.0**-10, 3 * 2.0**-10]
    numbers += [2.0**-6, 2.0**-6 - 2.0**-10, -17.0, 17.0, 19.0, 0.3, -0.3, 1.0625, 1.1875]
    return {
        "values": [str(bits.e4m3_value(b)) for b in range(128)],
        "rounded": [{"value": str(x), "byte": bits.e4m3_bits(x)} for x in numbers],
    }


def reader():
    """Envelopes a reader takes or refuses, each with the kind of the refusal."""
    shape = Shape(4, 2, 1, 4)
    pool = {"B": 4, "L": 2, "H": 1, "D": 4}
    payload = b"\x07" * shape.payload_bytes(1)
    tail = envelope.record

    def env(block_hash=5, fill=4, version=1, dtype=None, shape=shape, payload=payload, blocks=1):
        body = envelope.header(version, shape, blocks, dtype)
        return envelope.seal(body + tail(block_hash, fill, payload))

    good = env()
    v2 = env(version=2, payload=bytes(shape.payload_bytes(2)))
    wide = Shape(4, 2, 1, 8)
    huge = Shape(bits.M32, bits.M32, bits.M32, bits.M32)
    two = envelope.seal(envelope.header(1, shape, 2) + tail(5, 4, payload) + tail(0, 1, payload))

    def changed(data, at, mask):
        data = bytearray(data)
        data[at] ^= mask
        return bytes(data)

    def resealed(data, at, new):
        body = bytearray(data[:-4])
        body[at : at + len(new)] = new
        return envelope.seal(bytes(body))

    cases = [
        ("full block with a hash", good, "ok"),
        ("full block without a hash", env(0), "ok"),
        ("partial block without a hash", env(0, 3), "ok"),
        ("two blocks", two, "ok"),
        ("no block at all", envelope.seal(envelope.header(1, shape, 0)), "ok"),
        ("empty", b"", "format"),
        ("twenty bytes", good[:20], "format"),
        ("one byte short of a header and its checksum", good[:31], "format"),
        ("another magic", b"X" + good[1:], "format"),
        ("another magic, sealed", resealed(good, 0, b"X"), "format"),
        ("a bit flipped in the payload", changed(good, 40, 0x04), "format"),
        ("a bit flipped in the checksum", changed(good, len(good) - 1, 0x80), "format"),
        ("a bit flipped in the version", changed(good, 4, 0x03), "format"),
        ("truncated by six", good[:-6], "format"),
        ("one byte too many, sealed", envelope.seal(good[:-4] + b"\0"), "format"),
        ("one byte too few, sealed", envelope.seal(good[:-5]), "format"),
        ("more blocks than bytes, sealed", env(blocks=2), "format"),
        ("sizes beyond 64 bits, sealed", env(shape=huge, blocks=bits.M32), "format"),
        ("version 2 with a payload of version 2's size", v2, "version"),
        ("version 2 with a payload of version 1's size", env(version=2), "version"),
        ("version 9", resealed(good, 4, struct.pack("<H", 9)), "version"),
        ("version 0", resealed(good, 4, bytes(2)), "version"),
        ("version 1 with the dtype of version 2", env(dtype=3), "version"),
        ("another head dimension", env(shape=wide, payload=bytes(wide.payload_bytes(1))), "shape"),
        ("K and V heads for layers", env(shape=Shape(4, 1, 2, 4)), "shape"),
        ("fill 0", env(0, 0), "format"),
        ("fill 0 with a hash", env(5, 0), "format"),
        ("fill 5 of 4", env(5, 5), "format"),
        ("fill 5 of 4 without a hash", env(0, 5), "format"),
        ("hash on a partial block", env(9, 3), "format"),
    ]
    return {
        "pool": pool,
        "reads": [1],
        "cases": [{"name": name, "hex": d.hex(), "expect": want} for name, d, want in cases],
    }


def sizes():
    known = {
        "smollm2-135m": (16, 30, 3, 64),
        "llama-3-8b": (16, 32, 8, 128),
        "llama-3-70b": (16, 80, 8, 128),
        "test": (4, 2, 1, 4),
        "worked": (2, 1, 1, 2),
    }
    shapes = []
    for name, (B, L, H, D) in known.items():
        s = Shape(B, L, H, D)
        shapes.append({
            "name": name, "B": B, "L": L, "H": H, "D": D,
            "payload_v1": s.payload_bytes(1), "envelope_v1": s.envelope_bytes(1, 1),
            "payload_v2": s.payload_bytes(2), "envelope_v2": s.envelope_bytes(2, 1),
        })
    by = {s["name"]: s for s in shapes}
    assert by["smollm2-135m"]["payload_v1"] == 368640
    assert by["smollm2-135m"]["envelope_v1"] == 368684
    assert 368640 // 16 == 23040 and 368640 * 2048 == 754974720
    assert by["llama-3-8b"]["payload_v1"] == 2097152
    assert by["llama-3-70b"]["payload_v1"] == 5242880 > 4 << 20
    assert (by["test"]["payload_v1"], by["test"]["envelope_v1"]) == (128, 172)
    assert (by["worked"]["payload_v1"], by["worked"]["envelope_v1"]) == (16, 60)
    head = Shape(16, 1, 1, 64)
    assert (head.payload_bytes(1), head.payload_bytes(2)) == (4096, 2056)
    pushes = []
    for tokens, present in [(9, 1), (17, 3), (13, 3), (8, 2), (9, 0), (64, 0), (3, 0), (4, 0)]:
        full, t = tokens // 4, 1 if tokens % 4 else 0
        moved = (full - present + t) * 172
        pushes.append({
            "prompt_tokens": tokens, "present": present, "sent": full - present + t,
            "deduped": present, "payload_bytes": moved,
        })
    assert [p["payload_bytes"] for p in pushes[:4]] == [344, 344, 172, 0]
    assert pushes[5]["payload_bytes"] == 2752
    return {"shapes": shapes, "push_test_shape": pushes}


def fake_envelopes():
    """The three one-block envelopes of the prompt 10..18 under the fake model."""
    prompt = list(range(10, 19))
    rows, shape = fake_model.kv_rows(prompt), fake_model.SHAPE
    hashes, out = bits.prompt_hashes(prompt, shape.B), []
    for index in range(3):
        part = rows[index * 4 : index * 4 + 4]
        block_hash = hashes[index] if index < 2 else 0
        payload = envelope.payload_v1(shape, part)
        data = envelope.seal(
            envelope.header(1, shape, 1) + envelope.record(block_hash, len(part), payload)
        )
        assert bits.crc32c(data) == bits.CRC_RESIDUE
        out.append({"hash": str(block_hash), "fill": len(part), "hex": data.hex()})
    inner = [struct.unpack("<I", bytes.fromhex(e["hex"])[-4:])[0] for e in out]
    assert inner == [0x3CD65DE0, 0xB710A8DD, 0xC95CCCD4]
    return {"B": 4, "L": 2, "H": 1, "D": 4, "prompt": prompt, "blocks": out}


def files():
    return {
        "hashes.json": hashes(),
        "crc32c.json": checksum(),
        "kv.wire.v1.json": wire(1),
        "kv.wire.v2.json": wire(2),
        "kv.e4m3.json": e4m3(),
        "kv.reader.v1.json": reader(),
        "kv.sizes.json": sizes(),
        "kv.fake-prompt.json": fake_envelopes(),
        "kv-worked-v1.hex": WORKED_V1 + "\n",
        "kv-worked-v2.hex": WORKED_V2 + "\n",
    }

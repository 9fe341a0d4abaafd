"""KV block envelopes, versions 1 and 2."""

import struct

from . import bits

MAGIC = b"TLKV"
DTYPE = {1: 1, 2: 3}


class Shape:
    def __init__(self, B, L, H, D):
        self.B, self.L, self.H, self.D = B, L, H, D

    def payload_bytes(self, version):
        slabs = self.L * 2 * self.H
        return slabs * self.B * self.D * 2 if version == 1 else slabs * (self.B * self.D + 4)

    def envelope_bytes(self, version, blocks):
        return 28 + blocks * (12 + self.payload_bytes(version)) + 4

    def values_per_token(self):
        return self.L * 2 * self.H * self.D


def header(version, shape, blocks, dtype=None):
    return MAGIC + struct.pack(
        "<HHIIIII", version, DTYPE[version] if dtype is None else dtype, blocks,
        shape.B, shape.L, shape.H, shape.D,
    )


def seal(body):
    return body + struct.pack("<I", bits.crc32c(body))


def record(block_hash, fill, payload):
    return struct.pack("<QI", block_hash, fill) + payload


def slabs(shape, rows):
    """The f16 patterns of each [layer][K|V][head] slab, filled positions only.

    `rows` holds one list per position, in the order [layer][K|V][head][dim].
    """
    for slab in range(shape.L * 2 * shape.H):
        at = slab * shape.D
        yield [row[at : at + shape.D] for row in rows]


def payload_v1(shape, rows):
    out = bytearray()
    for slab in slabs(shape, rows):
        for row in slab:
            out += struct.pack("<%dH" % shape.D, *row)
        out += bytes(2 * shape.D * (shape.B - len(slab)))
    return bytes(out)


def payload_v2(shape, rows):
    out, scales = bytearray(), bytearray()
    for slab in slabs(shape, rows):
        values = [[bits.f16_value(v) for v in row] for row in slab]
        amax = max((abs(v) for row in values for v in row), default=0.0)
        scale = bits.f32(amax / 448.0) if amax else 1.0
        for row in values:
            out += bytes(bits.e4m3_bits(bits.f32(v / scale)) for v in row)
        out += bytes(shape.D * (shape.B - len(slab)))
        scales += struct.pack("<f", scale)
    return bytes(out + scales)


def write(version, shape, tokens, rows):
    """The envelope of a whole prompt: every full block hashed, the tail not."""
    payload = payload_v1 if version == 1 else payload_v2
    hashes = bits.prompt_hashes(tokens, shape.B)
    records = []
    for index, start in enumerate(range(0, len(tokens), shape.B)):
        part = rows[start : start + shape.B]
        block_hash = hashes[index] if index < len(hashes) else 0
        records.append(record(block_hash, len(part), payload(shape, part)))
    return seal(header(version, shape, len(records)) + b"".join(records))


def rows_of(shape, tokens, values):
    n = shape.values_per_token()
    assert len(values) == n * len(tokens)
    return [values[i * n : (i + 1) * n] for i in range(len(tokens))]

"""Integers, checksums and small floats, each from its definition."""

import struct

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF
FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
CRC_RESIDUE = 0x48674BC7


def rotl64(x, n):
    n &= 63
    return ((x << n) | (x >> (64 - n))) & M64


def mix64(z):
    """The finalizer of SplitMix64: a bijection on 64-bit numbers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def fnv1a64(data):
    h = FNV_OFFSET
    for b in data:
        h = ((h ^ b) * FNV_PRIME) & M64
    return h


def hash64(text):
    """The gateway's placement hash of a text."""
    return mix64(fnv1a64(text.encode()))


def block_hash(parent, tokens):
    data = struct.pack("<Q", parent) + b"".join(struct.pack("<I", t) for t in tokens)
    return fnv1a64(data) or 1


def prompt_hashes(tokens, block_tokens):
    hashes, parent = [], 0
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = block_hash(parent, tokens[start : start + block_tokens])
        hashes.append(parent)
    return hashes


def crc32c(data):
    """CRC-32C, one bit at a time."""
    crc = M32
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ M32


def f32(x):
    """The nearest 32-bit float, ties to even, as a Python float."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16_value(bits):
    """The number a 16-bit float stands for."""
    sign = -1.0 if bits & 0x8000 else 1.0
    exponent, mantissa = (bits >> 10) & 31, bits & 0x3FF
    if exponent == 31:
        return sign * float("inf") if mantissa == 0 else float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0**-24
    return sign * (1024 + mantissa) * 2.0 ** (exponent - 25)


def f16_bits(x):
    """The nearest 16-bit float of a finite number, ties to even; overflow is infinity."""
    sign = 0x8000 if struct.pack(">d", x)[0] & 0x80 else 0
    return sign | nearest(abs(x), f16_value, 0x7C00)


def e4m3_value(byte):
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    if byte & 0x7F == 0x7F:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (8 + mantissa) * 2.0 ** (exponent - 10)


def e4m3_bits(x):
    """The nearest e4m3 byte of a finite number, ties to even; beyond 448 is 448."""
    sign = 0x80 if struct.pack(">d", x)[0] & 0x80 else 0
    return sign | (0x7E if abs(x) >= 448.0 else nearest(abs(x), e4m3_value, 0x7E))


def nearest(x, value, limit):
    """The code in 0..=limit, whose values rise with the code, that is nearest to x."""
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) <= x else (low, middle)
    above = value(high)
    if above == float("inf"):
        above = 2.0 * value(low) - value(low - 1)
    # Exact: neighbours differ by a power of two and have few digits.
    down, up = x - value(low), above - x
    if down == up:
        return low if low % 2 == 0 else high
    return low if down < up else high

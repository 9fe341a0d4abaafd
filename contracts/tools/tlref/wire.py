"""As much of the protobuf encoding as the vectors need."""

import struct


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def key(number, wire_type):
    return varint(number << 3 | wire_type)


def uint(number, n):
    return key(number, 0) + varint(n) if n else b""


def blob(number, data):
    data = data.encode() if isinstance(data, str) else data
    return key(number, 2) + varint(len(data)) + data if data else b""


def packed(number, values):
    return blob(number, b"".join(varint(int(v)) for v in values))


def fixed64(number, n):
    return key(number, 1) + struct.pack("<Q", n) if n else b""


def double(number, x):
    return key(number, 1) + struct.pack("<d", x) if x else b""


def single(number, x):
    return key(number, 5) + struct.pack("<f", x) if x else b""

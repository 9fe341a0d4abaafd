"""Vectors of the protobuf messages and of the gateway's placement hash."""

from . import bits, wire
from .wire import blob, double, fixed64, key, packed, single, uint, varint


def messages():
    """(message, its fields as JSON, its bytes) for the contract's and our own fields."""
    chunk = blob(1, "h") + uint(3, 2)
    assert chunk == bytes.fromhex("0a01681802")
    assert key(99, 0) + varint(7) == bytes.fromhex("980607")
    assert varint(300) == bytes.fromhex("ac02")
    sampling = (
        single(1, 0.5) + single(2, 1.0) + uint(3, 8) + single(5, 1.0) + uint(8, 1 << 40)
        + uint(9, 12) + blob(10, "END") + uint(11, 5)
    )
    yield "tl.kv.v1.KvChunk", {"handle_id": "h", "block_index": 2}, chunk
    yield (
        "tl.kv.v1.KvChunk",
        {"handle_id": "h", "block_hash": "1", "block_index": 2, "n_blocks_total": 3,
         "kv_format": 1, "payload": "abcd", "crc32c": 300},
        chunk[:3] + uint(2, 1) + chunk[3:] + uint(4, 3) + uint(5, 1)
        + blob(6, b"\xab\xcd") + uint(7, 300),
    )
    yield "tl.kv.v1.KvAck", {"blocks_received": 300}, uint(2, 300)
    yield (
        "tl.kv.v1.HasBlocksRequest", {"block_hashes": ["1", "300"], "kv_format": 1},
        packed(1, [1, 300]) + uint(2, 1),
    )
    yield "tl.kv.v1.HasBlocksResponse", {"present": [True, False, True]}, packed(1, [1, 0, 1])
    yield (
        "tl.engine.v1.PrefillRequest",
        {"prompt_ids": [5, 300], "decode_target": "127.0.0.1:1", "sampling": {
            "temperature": 0.5, "top_p": 1.0, "top_k": 8, "repetition_penalty": 1.0,
            "seed": str(1 << 40), "max_new_tokens": 12, "stop": ["END"], "logprobs": 5}},
        packed(3, [5, 300]) + blob(4, sampling) + blob(5, "127.0.0.1:1"),
    )
    yield (
        "tl.engine.v1.PrefillResponse",
        {"first_text": "a", "finish_reason": "stop",
         "first_top_logprobs": [{"id": 7, "logprob": -0.5, "token_bytes": "c3a9"}],
         "first_logprob_f64": -1.0, "first_token_bytes": "61", "kv_blocks_sent": 2,
         "kv_blocks_deduped": 1, "kv_payload_bytes": "344"},
        blob(100, "a") + blob(101, "stop")
        + blob(102, uint(1, 7) + double(2, -0.5) + blob(3, b"\xc3\xa9"))
        + double(103, -1.0) + blob(104, b"a") + uint(105, 2) + uint(106, 1) + uint(107, 344),
    )
    extension = {
        "incarnation": str(0x0102030405060708), "model_fingerprint": "9", "block_size": 16,
        "layers": 30, "kv_heads": 3, "head_dim": 64, "kv_formats_read": [1, 2],
    }
    yield (
        "tl.control.v1.WorkerStatus", extension,
        fixed64(100, 0x0102030405060708) + fixed64(101, 9) + uint(102, 16) + uint(103, 30)
        + uint(104, 3) + uint(105, 64) + packed(106, [1, 2]),
    )


def encoded():
    return {
        "messages": [
            {"message": name, "fields": fields, "hex": data.hex()}
            for name, fields, data in messages()
        ],
        "unknown_field": {
            "message": "tl.kv.v1.KvChunk", "fields": {"handle_id": "h", "block_index": 2},
            "hex": (blob(1, "h") + uint(3, 2) + key(99, 0) + varint(7)).hex(),
        },
        "varint": [{"value": str(n), "hex": wire.varint(n).hex()} for n in
                   (0, 1, 127, 128, 300, bits.M32, bits.M64)],
        "paths": [
            "/tl.engine.v1.EngineControl/Prefill", "/tl.engine.v1.EngineControl/Info",
            "/tl.engine.v1.EngineControl/Cancel", "/tl.engine.v1.EngineControl/Drain",
            "/tl.kv.v1.KvTransferService/HasBlocks", "/tl.kv.v1.KvTransferService/PushKv",
            "/tl.kv.v1.KvTransferService/Release", "/tl.control.v1.WorkerRegistry/Heartbeat",
        ],
    }


def placement():
    known = {
        "": 0xF52A15E9A9B5E89B, "a": 0x02C0BDBF481420F8, "engine-0#0": 0xC6C14AE68B51F3BE,
        "engine-a#0": 0x4F53E64F1893D550, "req-0": 0xAA072E09CA773097,
    }
    for text, want in known.items():
        assert bits.hash64(text) == want, text

    def unit(text):
        return (bits.hash64(text) >> 11) / 2.0**53

    second = sum(unit(f"req-{i}") >= 0.9 for i in range(10000))
    assert second == 974
    assert smooth([3, 1], 4) == [0, 0, 1, 0]
    nodes = ["engine-0", "engine-1", "engine-2", "engine-3"]
    points = sorted(
        (bits.hash64(f"{node}#{i}"), node, i) for node in nodes for i in range(160)
    )
    keys = ["", "a", "hello", "user\nhi\n", "req-0", "req-1", "req-2", "req-3"]
    owners = [
        {"key": k, "owner": next((p for p in points if p[0] >= bits.hash64(k)), points[0])[1]}
        for k in keys
    ]
    texts = list(known) + ["engine-3#159", "user\nhi\n", "ü"]
    return {
        "hash64": [{"text": t, "hash": str(bits.hash64(t))} for t in texts],
        "unit": [{"text": f"req-{i}", "u": repr(unit(f"req-{i}"))} for i in range(4)],
        "canary": {"weights": [0.9, 0.1], "requests": 10000, "second": second},
        "ring": {"nodes": nodes, "virtual": 160, "first_points": [
            {"position": str(p), "node": n, "index": i} for p, n, i in points[:4]],
            "owners": owners},
        "smooth_weighted": [{"weights": [3, 1], "picks": smooth([3, 1], 8)},
                            {"weights": [5, 1, 1], "picks": smooth([5, 1, 1], 7)}],
    }


def smooth(weights, n):
    """Smooth weighted round robin: the heaviest credit goes, ties to the first."""
    credit, picks = [0] * len(weights), []
    for _ in range(n):
        credit = [c + w for c, w in zip(credit, weights)]
        best = max(range(len(weights)), key=lambda i: (credit[i], -i))
        credit[best] -= sum(weights)
        picks.append(best)
    return picks


def files():
    return {"wire.json": encoded(), "placement.json": placement()}

"""A model without weights whose logits depend on every cached KV value."""

from . import bits, pcg32, sampler
from .envelope import Shape

SHAPE = Shape(4, 2, 1, 4)
VOCAB = 32


def kv_rows(tokens, first=0):
    """The f16 patterns each position stores, in the order [layer][K|V][head][dim]."""
    s = SHAPE
    return [
        [
            0x3C00 + ((31 * token + 7 * pos + 3 * layer + 5 * v + 11 * head + dim) % 0x400)
            for layer in range(s.L)
            for v in range(2)
            for head in range(s.H)
            for dim in range(s.D)
        ]
        for pos, token in enumerate(tokens, first)
    ]


def logits(rows):
    acc = bits.FNV_OFFSET
    for row in rows:
        for value in row:
            acc = ((acc ^ value) * bits.FNV_PRIME) & bits.M64
    return [
        bits.f32(((bits.rotl64(acc, 7 * i) ^ (i * 0x9E37)) % 1000) / 250.0) for i in range(VOCAB)
    ]


def generate(prompt, params, seed, n):
    """The first n tokens of one engine that does everything, and their logprobs."""
    rng = pcg32.stream(seed, pcg32.PURPOSES["sample"])
    rows, output, logprobs = kv_rows(prompt), [], []
    for _ in range(n):
        token, logprob = sampler.sample(logits(rows), params, prompt, output, rng)
        rows += kv_rows([token], len(rows))
        output.append(token)
        logprobs.append(logprob)
    return output, logprobs

"""PCG32 and the streams of a request."""

import math

from . import exact
from .bits import M32, M64, mix64

PURPOSES = {"init": 1, "dropout": 2, "shuffle": 3, "sample": 4, "mutation": 5}


class Pcg32:
    def __init__(self, seed, seq=54):
        self.inc = ((seq << 1) | 1) & M64
        self.state = 0
        self.spare = None
        self.next_u32()
        self.state = (self.state + seed) & M64
        self.next_u32()

    def next_u32(self):
        old = self.state
        self.state = (old * 6364136223846793005 + self.inc) & M64
        xs = (((old >> 18) ^ old) >> 27) & M32
        rot = old >> 59
        return ((xs >> rot) | (xs << ((32 - rot) & 31))) & M32

    def uniform(self):
        a, b = self.next_u32(), self.next_u32()
        return float(((a >> 5) << 26) + (b >> 6)) * 2.0**-53

    def below(self, n):
        threshold = ((1 << 32) - n) % n
        while True:
            r = self.next_u32()
            if r >= threshold:
                return r % n

    def shuffle(self, items):
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items

    def normal(self):
        if self.spare is not None:
            z, self.spare = self.spare, None
            return z
        u1, u2 = self.uniform(), self.uniform()
        r = math.sqrt(-2.0 * exact.ln(1.0 - u1))
        self.spare = r * exact.sin(2.0 * math.pi * u2)
        return r * exact.cos(2.0 * math.pi * u2)


def child_seed(seed, purpose):
    return mix64((seed + purpose * 0x9E3779B97F4A7C15) & M64)


def stream(seed, purpose):
    return Pcg32(child_seed(seed, purpose), purpose)

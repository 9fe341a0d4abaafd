"""Vectors of PCG32, the sampler, the elementary functions and the hand-off."""

import math
import struct

from . import bits, exact, fake_model, pcg32, sampler
from .pcg32 import Pcg32, child_seed, stream

SAMPLE = pcg32.PURPOSES["sample"]
SEEDS = [0, 1, 1 << 63]

U32 = {
    0: [1203932051, 3113183783, 2101201694, 4034269462, 2630041435, 3188618317, 1465042262,
        1127649586],
    1: [2607537577, 204602440, 3466066159, 2183922644, 2487127282, 460709347, 2950590256,
        3379858297],
    1 << 63: [2341717954, 1780988301, 3407770941, 286718070],
    42: [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E],
}
UNIFORM = {
    0: [0.2803122753265841, 0.4892241428740438, 0.6123542393923406, 0.34110672967546707,
        0.09078100588415128, 0.8199132693505836, 0.8387367903381998, 0.4436384044812697],
    1: [0.6071146506640145, 0.8070064150429078, 0.579079442525411, 0.6869878306011451,
        0.13930748004392746, 0.35622445744041753, 0.5158205587442009, 0.7761260189212426],
    1 << 63: [0.5452237011095036, 0.7934334953632708, 0.2474840168231074, 0.7708485932437568],
}
BELOW_10 = {
    0: [1, 3, 4, 2, 5, 7, 2, 6, 7, 9, 2, 8, 0, 7, 4, 3],
    1: [7, 0, 9, 4, 2, 7, 6, 7, 6, 5, 8, 0, 8, 2, 6, 2],
    1 << 63: [4, 1, 1, 0, 7, 0, 0, 0, 9, 2, 5, 2, 9, 0, 8, 7],
}
SHUFFLE_10 = {
    0: [0, 3, 5, 4, 8, 9, 7, 6, 2, 1],
    1: [5, 3, 6, 0, 2, 8, 1, 9, 4, 7],
    1 << 63: [9, 1, 3, 6, 8, 7, 2, 5, 0, 4],
}
NORMAL_0 = [-0.809237002555057, 0.05487465048869301, -0.7457425176448607, 1.1572358387116342]
# seed: child seed, first u32s, first uniforms of the sampling stream
STREAMS = {
    0: (17909611376780542444, [3444971639, 4260714914, 2470929150, 1051028940],
        [0.8020949661137535, 0.5753080192559342]),
    1: (8196980753821780235, [3376753372, 3462355821, 1445319583, 3239269940],
        [0.7862116605501065, 0.33651468719692]),
    1 << 63: (6426116064599561977, [3049651521, 2189754526, 922169935, 2648089264],
              [0.7100523301202204, 0.21470942062554]),
    7: (10753165928301472203, [1193044016, 2565010737, 1643816134, 3414430930],
        [0.2777772068769715, 0.3827307730539452]),
    11: (9308485889748266480, [3932823977, 4033499358, 4056828101, 1560758218],
         [0.9156819428438115, 0.9445538994922663]),
    77: (3633191138996939195, [278572757, 3693534948, 184815294, 1893730178],
         [0.06486027583456122, 0.043030660159278034]),
    1 << 40: (17212978437853178388, [4271908183, 2305629358, 1658642192, 2570513242],
              [0.9946311305226472, 0.38618272988866453]),
}
CHILD_SEEDS_0 = {
    "init": 16294208416658607535, "dropout": 7960286522194355700,
    "shuffle": 487617019471545679, "mutation": 1961750202426094747,
}
# overrides, prompt, ids, first and last logprob
GOLDEN = [
    ("plain", {}, "40 34 47 45 6 44", "18 36 24 20 0 9 45 45 47 18 18 0",
     -3.0901819879198946, -2.993270319142429),
    ("temperature low", {"temperature": 0.7}, "32 20 46 28 22 13",
     "35 38 8 26 38 38 10 8 35 15 8 38", -2.5954433114339963, -1.743649306993689),
    ("temperature high", {"temperature": 1.8}, "31 2 3 15 21 42",
     "37 20 2 0 42 9 20 22 37 38 39 38", -1.7971017441350061, -2.8381037792759973),
    ("top_k", {"top_k": 5}, "7 13 26 1 37 30", "21 0 0 6 0 0 6 0 6 23 21 21",
     -1.9380189258753395, -1.9380189258753395),
    ("top_p", {"top_p": 0.9}, "10 38 7 39 6 44", "0 1 30 45 47 47 13 45 9 1 47 13",
     -2.1963338959245275, -2.795123111012418),
    ("min_p", {"min_p": 0.1}, "40 7 41 46 25 28", "43 1 0 38 13 13 4 30 4 0 10 30",
     -2.9806353229214437, -1.9745027202297931),
    ("all filters", {"temperature": 0.8, "top_k": 12, "top_p": 0.85, "min_p": 0.05},
     "44 37 17 26 47 18", "11 43 11 19 2 19 11 28 2 43 11 11",
     -2.0319696162702927, -2.0319696162702927),
    ("repetition", {"repetition_penalty": 1.3}, "19 46 47 14 43 1",
     "24 31 43 34 36 47 4 31 26 4 4 23", -2.614078220111693, -1.9035573246716526),
    ("presence and frequency", {"presence_penalty": 0.6, "frequency_penalty": 0.4},
     "43 1 37 38 13 14", "32 30 1 30 1 19 9 19 6 40 8 35",
     -2.2284066009863297, -2.899239292885168),
    ("mixed", {"temperature": 0.9, "top_p": 0.95, "repetition_penalty": 1.15,
               "frequency_penalty": 0.3}, "30 3 11 21 41 17",
     "16 31 44 3 44 9 32 2 9 3 40 43", -2.336634235610596, -2.352644323240224),
    ("greedy", {"temperature": 0.0, "repetition_penalty": 1.5, "presence_penalty": 0.5},
     "6 36 45 30 17 14", "25 33 16 3 13 34 31 40 23 19 41 25",
     -1.907681867955413, -2.464211810425212),
    ("masked", {"top_k": 40}, "17 22 25 45 38 17", "17 14 19 17 19 14 2 19 17 20 19 20",
     -2.2986655234688396, -2.195570945679533),
]
# prompt, then per (temperature, seed) the twelve tokens and the first logprob as f32 prints it
CHAPTER_SETTINGS = [(0.0, 0), (0.9, 11), (1.3, 1 << 40)]
CHAPTER = [
    (list(range(1, 9)), [
        ("3 0 0 17 30 17 21 2 28 24 8 31", -2.305737257),
        ("29 28 13 23 15 30 15 26 25 24 8 7", -2.5377373695),
        ("29 15 3 16 5 17 15 5 16 31 21 18", -2.5377373695),
    ]),
    (list(range(3, 14)), [
        ("20 27 22 24 27 7 21 19 12 9 27 21", -2.2839579582),
        ("31 21 18 28 20 29 9 27 22 23 5 3", -2.7839579582),
        ("31 14 1 15 1 12 22 3 19 24 27 18", -2.7839579582),
    ]),
    ([5, 5, 5, 9, 2], [
        ("5 17 1 29 3 5 12 12 10 2 13 23", -2.5192620754),
        ("31 29 7 20 18 31 18 26 25 25 3 5", -2.8112618923),
        ("31 22 8 17 4 7 22 10 19 29 28 22", -2.8112618923),
    ]),
]


def first(n, draw):
    return [draw() for _ in range(n)]


def begins(long, short):
    return long[: len(short)] == short


def ints(text):
    return [int(word) for word in text.split()]


def pcg():
    seeded = Pcg32(0)
    assert (seeded.inc, seeded.state) == (109, 0x9AE4F7499BA72696)
    for seed, want in U32.items():
        assert first(len(want), Pcg32(seed).next_u32) == want, seed
    for seed, want in UNIFORM.items():
        assert first(len(want), Pcg32(seed).uniform) == want, seed
    generators = []
    for seed in SEEDS:
        rng = Pcg32(seed)
        start = {"state": str(rng.state), "inc": str(rng.inc)}
        tens = Pcg32(seed)
        below = first(16, lambda: tens.below(10))
        assert below == BELOW_10[seed]
        assert Pcg32(seed).shuffle(list(range(10))) == SHUFFLE_10[seed]
        normal = first(8, Pcg32(seed).normal)
        assert seed != 0 or all(close(a, b, 4) for a, b in zip(normal, NORMAL_0))
        wide = Pcg32(seed)
        generators.append({
            "seed": str(seed), "seq": "54", **start,
            "u32": first(1024, rng.next_u32),
            "uniform": [repr(u) for u in first(64, Pcg32(seed).uniform)],
            "below_10": below,
            # More than half of the range, so that numbers are drawn again.
            "below_2863311531": first(16, lambda: wide.below(2863311531)),
            "shuffle_10": SHUFFLE_10[seed],
            "normal": [repr(z) for z in normal],
        })
    other = Pcg32(42, 7)
    streams = []
    for seed, (child, u32, uniform) in STREAMS.items():
        assert child_seed(seed, SAMPLE) == child
        assert first(4, stream(seed, SAMPLE).next_u32) == u32
        assert first(2, stream(seed, SAMPLE).uniform) == uniform
    for seed in list(STREAMS) + [bits.M64]:
        for purpose, number in pcg32.PURPOSES.items():
            s = stream(seed, number)
            streams.append({
                "seed": str(seed), "purpose": number, "name": purpose,
                "child_seed": str(child_seed(seed, number)),
                "u32": first(4, s.next_u32),
                "uniform": [repr(u) for u in first(4, stream(seed, number).uniform)],
            })
    for purpose, want in CHILD_SEEDS_0.items():
        assert child_seed(0, pcg32.PURPOSES[purpose]) == want
    choices = [str(child_seed(11, 16 + i)) for i in range(4)]
    return {
        "seed_42_u32": U32[42],
        "seed_42_seq_7": {"inc": str(other.inc), "u32": first(4, other.next_u32)},
        "generators": generators,
        "streams": streams,
        "choice_seeds_of_11": choices,
        "mix64": [{"in": str(z), "out": str(bits.mix64(z))} for z in (0, 1, 2, bits.M64)],
    }


def close(a, b, ulps):
    return abs(a - b) <= ulps * math.ulp(b)


def resume():
    cases = []
    for seed in (77, 0, 1 << 63):
        for draws in (0, 1, 2, 3, 100):
            rng = stream(seed, SAMPLE)
            first(draws, rng.uniform)
            cases.append({
                "seed": str(seed), "draws": draws, "state": str(rng.state), "inc": str(rng.inc),
                "next_uniform": repr(rng.uniform()),
            })
    assert cases[0]["next_uniform"] == repr(STREAMS[77][2][0])
    assert cases[1]["next_uniform"] == repr(STREAMS[77][2][1])
    return {"cases": cases}


def sampling():
    worked = dict(sampler.OFF, top_k=3, top_p=0.8)
    logits = [1.0, 3.0, 2.0, 3.0, -1.0]
    assert sampler.kept_set(logits, worked)[1] == [1, 3]
    token, logprob = sampler.sample(logits, worked, [], [], stream(0, SAMPLE))
    assert (token, logprob) == (3, -0.9248660042217248)
    rng, cases = Pcg32(424242, 7), []
    for n, (name, overrides, prompt_text, ids, lp_first, lp_last) in enumerate(GOLDEN):
        params = dict(sampler.OFF, **overrides)
        logits = [bits.f32((rng.uniform() * 2 - 1) * 4.0) for _ in range(48)]
        logits[n % 48] = logits[(n + 7) % 48]
        if name == "masked":
            logits[0::3] = [float("-inf")] * 16
        prompt = [math.floor(rng.uniform() * 48) for _ in range(6)]
        assert prompt == ints(prompt_text), name
        seed, output, logprobs = 1000 * n + 17, [], []
        draws = stream(seed, SAMPLE)
        for _ in range(12):
            token, logprob = sampler.sample(logits, params, prompt, output, draws)
            output.append(token)
            logprobs.append(logprob)
        assert output == ints(ids), name
        assert (logprobs[0], logprobs[-1]) == (lp_first, lp_last), name
        cases.append({
            "name": name, "params": params, "seed": str(seed), "prompt": prompt,
            "logits_f32_le": struct.pack("<48f", *logits).hex(),
            "ids": output, "logprobs": [repr(x) for x in logprobs],
            "state_after": str(draws.state),
        })
    one = {
        "params": worked, "seed": "0", "logits": [1.0, 3.0, 2.0, 3.0, -1.0], "kept": [1, 3],
        "uniform": repr(STREAMS[0][2][0]), "id": 3, "logprob": repr(-0.9248660042217248),
    }
    return {"worked": one, "cases": cases}


def elementary():
    rng = Pcg32(2718)
    xs = [0.0, -0.0, -1.0, -0.5, -(2.0**-60), -708.0, -745.0, -746.0, -math.log(2.0), -0.25]
    xs += [-rng.uniform() * scale for scale in (1e-9, 0.01, 1.0, 8.0, 40.0, 745.0) for _ in range(60)]
    zs = [1.0, 1.0 + 2.0**-52, 2.0, math.e, 49152.0, 2.52153]
    zs += [1.0 + rng.uniform() * scale for scale in (1e-9, 0.1, 1.0, 100.0, 5e4) for _ in range(60)]
    return {
        "exp": [[repr(x), repr(exact.exp(x))] for x in xs],
        "ln": [[repr(z), repr(exact.ln(z))] for z in zs],
    }


def handoff():
    cases = []
    for prompt, outputs in CHAPTER:
        for (temperature, seed), (tokens, logprob) in zip(CHAPTER_SETTINGS, outputs, strict=True):
            params = dict(sampler.OFF, temperature=bits.f32(temperature))
            params["top_k"] = 8 if temperature else 0
            output, logprobs = fake_model.generate(prompt, params, seed, 12)
            assert output == ints(tokens), (prompt, temperature)
            assert abs(bits.f32(logprobs[0]) - logprob) < 5e-10, (prompt, temperature)
            cases.append({
                "prompt": prompt, "temperature": repr(params["temperature"]),
                "top_k": params["top_k"], "seed": str(seed),
                "draws_per_token": 1 if temperature else 0,
                "tokens": output, "logprobs": [repr(x) for x in logprobs],
            })
    return {
        "shape": {"B": 4, "L": 2, "H": 1, "D": 4, "vocab": fake_model.VOCAB},
        "kv_row": {"token": 9, "position": 3, "values": fake_model.kv_rows([9], 3)[0]},
        "logits_after_1_to_8": fake_model.logits(fake_model.kv_rows(list(range(1, 9)))),
        "cases": cases,
    }


def files():
    return {
        "pcg32.json": pcg(),
        "resume-rng.json": resume(),
        "sampler.json": sampling(),
        "elementary.json": elementary(),
        "handoff.json": handoff(),
    }

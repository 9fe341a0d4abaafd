#!/usr/bin/env python3
"""Random scenarios for pd_oracle.py: shared prefixes, small pools, mixed read times.

usage: fuzz.py KIND SEED [COUNT] -o DIR [--async] [--settings] [--faults]

KIND is co (one engine), pd (pull) or push. Seeds SEED to SEED + COUNT - 1 make one scenario
each; the same seed makes the same scenario. --settings also varies what the plain ones leave
at its default: watermark, long-prefill threshold, the whole-prompt gate, policy, aborts.
--faults (two engines) adds short leases, late messages, reads that fail, decode legs that are
dropped, and now and then a decode engine that dies.
"""

import argparse
import json
import os
import random

BLOCK = 4


def engine(rng, longest):
    """Settings of one engine whose pool holds the longest request, and little more."""
    need = -(-longest // BLOCK) + 2
    return {
        "num_blocks": need + rng.randrange(0, 14),
        "max_num_seqs": rng.choice([2, 3, 4, 8]),
        "max_num_batched_tokens": rng.choice([8, 12, 16, 32, 64]),
    }


def scenario(kind, seed, asynchronous, settings, faults):
    marks = f"{kind} {seed} {asynchronous} {settings}" + (" faults" if faults else "")
    rng = random.Random(marks)
    requests, t = [], 0
    for i in range(rng.randrange(6, 15)):
        parts = []
        if rng.random() < 0.5:  # one of a few prefixes, cut at a block or not
            parts.append([60 + rng.randrange(3), rng.choice([4, 8, 12, 16, rng.randrange(1, 16)])])
        if not parts or rng.random() < 0.9:
            parts.append([1 + rng.randrange(14), rng.randrange(1, 22)])
        t += rng.choice([0, 0, 1, 1, 2, 4])
        request = {"id": f"r{i}", "arrive": t, "prompt_parts": parts, "out": rng.randrange(1, 10)}
        if kind != "co":
            if rng.random() < 0.2:
                request["local"] = True
            if rng.random() < 0.4:
                request["transfer_steps"] = rng.randrange(0, 8)
        if settings and rng.random() < 0.1:
            side = "C" if kind == "co" else rng.choice("PD")
            request["abort"] = {side: t + rng.randrange(0, 12)}
        if faults:
            if kind == "pd" and rng.random() < 0.15:
                request["transfer_fail"] = True
            if rng.random() < 0.08:
                request["drop_decode_leg"] = True
            if rng.random() < 0.2:
                request["transfer_steps"] = rng.randrange(5, 15)
        requests.append(request)
    longest = max(sum(n for _, n in r["prompt_parts"]) + r["out"] for r in requests)
    sides = ["C"] if kind == "co" else ["P", "D"]
    doc = {
        "requests": requests,
        "mode": {"co": "colocated", "pd": "pull", "push": "push"}[kind],
        "transfer_steps": rng.randrange(0, 5),
        "prefix_caching": rng.random() < 0.85,
        "max_ticks": 600,
        **{side: engine(rng, longest) for side in sides},
    }
    if kind == "push" and rng.random() < 0.5:
        doc["dispatch"] = "concurrent"
    if asynchronous:
        doc["async_scheduling"] = True
    if settings:
        for side in sides:
            if rng.random() < 0.3:
                doc[side]["watermark"] = rng.choice([0.1, 0.2, 0.3])
            if rng.random() < 0.3:
                doc[side]["long_prefill_token_threshold"] = rng.choice([4, 6, 8])
            if rng.random() < 0.3:
                doc[side]["reserve_full_isl"] = False
        if kind == "co" and rng.random() < 0.3:
            doc["policy"] = "priority"
            for request in requests:
                request["priority"] = rng.randrange(0, 4)
    if faults:
        lease = rng.choice([2, 4, 6, 9, 13, 30])
        doc["lease"] = lease
        doc["tick_seconds"] = rng.choice([0.5, 1, 1, 1, 2])
        doc["router_delay"] = rng.choice([1, 1, 2, 4])
        if kind == "pd":
            doc["notif_delay"] = rng.choice([0, 0, 1, 2, 3])
            doc["kv_load_failure_policy"] = rng.choice(["fail", "recompute", "recompute"])
        if rng.random() < 0.1:
            doc["crash_D_at"] = rng.randrange(3, t + 8)
    return doc


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["co", "pd", "push"])
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("-o", "--outdir", required=True)
    parser.add_argument("--async", dest="asynchronous", action="store_true")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--faults", action="store_true")
    args = parser.parse_args()
    if args.faults and args.kind == "co":
        parser.error("--faults is about two engines")
    os.makedirs(args.outdir, exist_ok=True)
    for seed in range(args.seed, args.seed + args.count):
        marks = ("a" if args.asynchronous else "") + ("s" if args.settings else "")
        marks += "f" if args.faults else ""
        name = f"fuzz_{args.kind}{marks}_{seed}"
        doc = {
            "name": name,
            "about": f"random, seed {seed}",
            "scenario": scenario(args.kind, seed, args.asynchronous, args.settings, args.faults),
        }
        with open(os.path.join(args.outdir, name + ".json"), "w") as f:
            json.dump(doc, f, separators=(",", ":"))


if __name__ == "__main__":
    main()

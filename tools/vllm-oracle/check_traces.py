#!/usr/bin/env python3
"""Properties that every trace must have, whatever the scenario.

usage: check_traces.py DIR

A parked request has its whole prompt's blocks and at least one token to load; a
step that preempts admits and parks nobody; a step stays within its budget; a
finished request produced what was asked; nobody runs before its read is reported.
"""

import glob
import json
import sys


def prompt_tokens(request):
    if "prompt" in request:
        return len(request["prompt"])
    return sum(n for _, n in request["prompt_parts"])


def setting(scenario, side, name, default):
    return scenario.get(side, {}).get(name, scenario.get(name, default))


def violations(scenario, trace):
    prompt = {r["id"]: prompt_tokens(r) for r in scenario["requests"]}
    out = {r["id"]: r["out"] for r in scenario["requests"]}
    delivered = {}
    for step in trace["steps"]:
        side, t = step["side"], step["t"]
        block = setting(scenario, side, "block_size", 4)
        for park in step.get("park", []):
            n = prompt[park["id"]]
            whole = park["local"] + park["remote"] == n
            if not whole or park["remote"] < 1 or park["blocks"] != -(-n // block):
                yield t, side, "parked with other blocks than its prompt's", park
        if step.get("preempt") and (step.get("park") or step.get("admit")):
            yield t, side, "admission in a step that preempts", step["preempt"]
        scheduled = sum(n for _, n, _ in step.get("sched", []))
        if scheduled > setting(scenario, side, "max_num_batched_tokens", 64):
            yield t, side, "more tokens than the budget", scheduled
        for rid, n in step.get("tokens", []):
            delivered[rid, side] = delivered.get((rid, side), 0) + n
    for rid, info in trace["requests"].items():
        for side in "DC":
            if info.get(side + "_reason") == "length" and delivered.get((rid, side)) != out[rid]:
                yield info[side + "_finish"], side, "output tokens", rid
        if info.get("D_admit", 1 << 62) <= info.get("D_recv_done", -1):
            yield info["D_admit"], "D", "admitted before its read was reported", rid


def main():
    traces = bad = 0
    for path in sorted(glob.glob(sys.argv[1] + "/**/*.json", recursive=True)):
        with open(path) as f:
            doc = json.load(f)
        if "trace" not in doc:
            continue
        traces += 1
        for violation in violations(doc["scenario"], doc["trace"]):
            bad += 1
            print(doc["name"], *violation)
    print(traces, "traces,", bad, "violations")
    return 1 if bad or not traces else 0


if __name__ == "__main__":
    sys.exit(main())

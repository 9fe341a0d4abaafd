#!/usr/bin/env python3
"""Runs recorded scenarios on the installed vLLM and compares with what was recorded.

usage: verify.py DIR_OR_TRACE...

Prints one line for each trace that differs, with the first step that does, and exits 1
if any does. The version of vLLM is not compared: that is the question.
"""

import glob
import json
import os
import sys

from pd_oracle import Sim, vllm


def traces(args):
    for arg in args:
        if os.path.isdir(arg):
            yield from sorted(glob.glob(arg + "/**/*.json", recursive=True))
        else:
            yield arg


def difference(old, new):
    """The first step, request or total that is not the same, or None."""
    for i in range(max(len(old["steps"]), len(new["steps"]))):
        a = old["steps"][i] if i < len(old["steps"]) else None
        b = new["steps"][i] if i < len(new["steps"]) else None
        if a != b:
            return "step", a, b
    for key in ("requests", "end", "ticks"):
        if old[key] != new[key]:
            return key, old[key], new[key]
    return None


def main():
    total = differ = 0
    for path in traces(sys.argv[1:]):
        with open(path) as f:
            doc = json.load(f)
        if "trace" not in doc:
            continue
        total += 1
        # Through JSON, so that tuples and lists are the same thing.
        new = json.loads(json.dumps(Sim(doc["scenario"]).run()))
        found = difference(doc["trace"], new)
        if found:
            differ += 1
            what, a, b = found
            print(f"{doc['name']}: {what}\n  recorded {json.dumps(a)}\n  now      {json.dumps(b)}")
    print(f"vLLM {vllm.__version__}: {total} traces, {differ} differ")
    return 1 if differ or not total else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""A trace as a listing: settings, requests, one line a step, what became of each request.

usage: show.py TRACE.json
"""

import json
import sys


def main():
    with open(sys.argv[1]) as f:
        doc = json.load(f)
    scenario, trace = doc["scenario"], doc["trace"]
    print(doc["name"], "|", doc["about"])
    print({k: v for k, v in scenario.items() if k != "requests"})
    for request in scenario["requests"]:
        print("  ", request)
    for step in trace["steps"]:
        rest = {k: v for k, v in step.items() if k not in ("t", "side") and v not in ([], {})}
        line = " ".join(f"{k}={v}" for k, v in rest.items()).replace("'", "")
        print(step["t"], step["side"], line)
    for rid, info in trace["requests"].items():
        print(rid, info)


if __name__ == "__main__":
    main()

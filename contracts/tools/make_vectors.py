#!/usr/bin/env python3
"""Writes the golden vectors in contracts/vectors, or compares them.

    make_vectors.py           write every file
    make_vectors.py --check   exit 1 when a file on disk differs from what would be written

Every figure the contract states is asserted while the vectors are made, so that
a wrong implementation in `tlref` cannot write plausible files. Only the Python
standard library is needed, and the output is the same on every machine.
"""

import sys
from pathlib import Path

from tlref import cases_kv, cases_sampling, cases_wire
from tlref.render import render

VECTORS = Path(__file__).resolve().parent.parent / "vectors"


def files():
    made = {}
    for module in (cases_kv, cases_sampling, cases_wire):
        for name, content in module.files().items():
            assert name not in made, name
            made[name] = content if isinstance(content, str) else render(content)
    return made


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    made = files()
    if not arguments:
        VECTORS.mkdir(exist_ok=True)
        for name, text in made.items():
            (VECTORS / name).write_text(text)
        print(f"{len(made)} files in {VECTORS}")
        return 0
    present = {path.name for path in VECTORS.iterdir()} if VECTORS.is_dir() else set()
    bad = [f"{name}: missing" for name in sorted(made.keys() - present)]
    bad += [f"{name}: not made by this script" for name in sorted(present - made.keys())]
    bad += [
        f"{name}: differs"
        for name in sorted(made.keys() & present)
        if (VECTORS / name).read_text() != made[name]
    ]
    print("\n".join(bad) or f"{len(made)} files agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

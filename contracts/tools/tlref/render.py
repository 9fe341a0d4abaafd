"""JSON that reads well in a diff: short values on one line, lists of numbers wrapped."""

import json
import textwrap

WIDTH = 100


def render(value):
    return lines(value, 0) + "\n"


def lines(value, indent):
    flat = json.dumps(value)
    if indent + len(flat) <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    pad, inner = " " * indent, " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {lines(v, indent + 2)}" for k, v in value.items()]
        return "{\n" + ",\n".join(inner + item for item in items) + "\n" + pad + "}"
    if any(isinstance(item, (dict, list)) for item in value):
        items = [lines(item, indent + 2) for item in value]
        return "[\n" + ",\n".join(inner + item for item in items) + "\n" + pad + "]"
    body = textwrap.wrap(flat[1:-1], WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False)
    return "[\n" + "\n".join(inner + line for line in body) + "\n" + pad + "]"

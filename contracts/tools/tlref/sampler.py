"""The sampler, step by step as contracts/spec/sampling.md numbers them."""

from .exact import exp, ln

OFF = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
NEG_INF = float("-inf")


def ordered_sum(values):
    total = 0.0
    for v in values:
        total += v
    return total


def softmax(l, kept):
    """Probabilities of the ids in `kept`, which ascend."""
    top = max(l[i] for i in kept)
    e = {i: exp(l[i] - top) for i in kept}
    z = ordered_sum(e[i] for i in kept)
    return {i: e[i] / z for i in kept}


def by_rank(l, kept):
    return sorted(kept, key=lambda i: (-l[i], i))


def penalized(logits, params, prompt, output):
    """Steps 1 to 3."""
    l = [float(x) for x in logits]
    r = params["repetition_penalty"]
    if r != 1.0:
        for i in set(prompt) | set(output):
            l[i] = l[i] / r if l[i] > 0.0 else l[i] * r
    for i in set(output):
        l[i] -= params["frequency_penalty"] * output.count(i)
        l[i] -= params["presence_penalty"]
    return l


def log_softmax(l):
    top = max(l)
    z = ordered_sum(exp(x - top) for x in l)
    return [(x - top) - ln(z) for x in l]


def kept_set(l, params):
    """Steps 5 to 8: the ids that stay, ascending, and the scaled logits."""
    l = [x / params["temperature"] for x in l]
    kept = [i for i, x in enumerate(l) if x != NEG_INF]
    k = params["top_k"]
    if 0 < k < len(l):
        kept = sorted(by_rank(l, kept)[:k])
    if params["top_p"] < 1.0:
        q, total, few = softmax(l, kept), 0.0, []
        for i in by_rank(l, kept):
            few.append(i)
            total += q[i]
            if total >= params["top_p"]:
                break
        kept = sorted(few)
    if params["min_p"] > 0.0:
        q = softmax(l, kept)
        least = params["min_p"] * max(q.values())
        kept = [i for i in kept if q[i] >= least]
    return l, kept


def sample(logits, params, prompt, output, rng):
    """One token: (id, reported logprob)."""
    l = penalized(logits, params, prompt, output)
    reported = log_softmax(l)
    if params["temperature"] == 0.0:
        token = max(range(len(l)), key=lambda i: (l[i], -i))
        return token, reported[token]
    l, kept = kept_set(l, params)
    q = softmax(l, kept)
    u, c = rng.uniform(), 0.0
    for i in kept:
        c += q[i]
        if u < c:
            return i, reported[i]
    token = max(i for i in kept if q[i] > 0.0)
    return token, reported[token]

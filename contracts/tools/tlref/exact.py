"""Elementary functions, correctly rounded on every machine.

`math.exp` and its like are the platform's: their last bit differs between C
libraries and processors. Here each is computed to 45 digits and rounded once.
"""

from decimal import Decimal, localcontext

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def exp(x):
    return 0.0 if x == float("-inf") else rounded(lambda: Decimal(x).exp())


def ln(x):
    return rounded(lambda: Decimal(x).ln())


def cos(x):
    return rounded(lambda: series(Decimal(x), 0))


def sin(x):
    return rounded(lambda: series(Decimal(x), 1))


def rounded(compute):
    with localcontext() as context:
        context.prec = 45
        return float(compute())


def series(x, first):
    """The Taylor series of cos (first = 0) or sin (first = 1) at x reduced to [-pi, pi]."""
    x -= 2 * PI * (x / (2 * PI)).to_integral_value()
    term, total, n = (Decimal(1), Decimal(0), 0) if first == 0 else (x, Decimal(0), 1)
    while abs(term) > Decimal("1e-50"):
        total += term
        term *= -x * x / ((n + 1) * (n + 2))
        n += 2
    return total

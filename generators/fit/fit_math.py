#!/usr/bin/env python3
"""Fits the polynomials and rationals of generators/math.h and says whether their coefficients stand there.

    python generators/fit/fit_math.py            (needs numpy and mpmath; takes some seconds)

For each approximation it prints the weighted minimax error with real coefficients and with the f32 coefficients, in
units of 2^-24 (half an ULP at 1), and the coefficients from the constant term up.

Method. A rational N/D minimising max |w (N/D - f)| over Chebyshev nodes: N - f D is linear in the coefficients, so each
step is a least-squares problem with rows divided by the D of the step before (Sanathanan & Koerner 1963) and weighted
by the error of the step before (Lawson 1961). Then the coefficients are rounded to f32 one at a time, the remaining
ones being fitted again after each, so that they make up for the rounding.
"""

import pathlib
import re

import mpmath as mp
import numpy as np

mp.mp.dps = 40
LN2 = float(mp.log(2))
HEADER = pathlib.Path(__file__).resolve().parent.parent / "math.h"


def chebyshev(low, high, count=600):
    k = np.arange(count)
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (k + 0.5) / count)


def evaluate(function, x):
    return np.array([float(function(mp.mpf(float(t)))) for t in x])


def fit(x, f, w, numerator, denominator, fixed, steps):
    """Coefficients {('n' or 'd', power): value} of N/D and their largest weighted error.

    numerator, denominator: powers of x; the constant of D is 1. fixed: coefficients that are given.
    """
    scale = np.max(np.abs(x))
    free = [("n", p) for p in numerator if ("n", p) not in fixed]
    free += [("d", p) for p in denominator if ("d", p) not in fixed]
    given_n = sum((v * x**p for (k, p), v in fixed.items() if k == "n"), 0 * x)
    given_d = sum((v * x**p for (k, p), v in fixed.items() if k == "d"), 1 + 0 * x)
    columns = np.array([(x / scale) ** p * (1 if k == "n" else -f) for k, p in free]).T.reshape(len(x), len(free))
    target = f * given_d - given_n
    lawson = np.full(len(x), 1 / len(x))
    d = np.ones(len(x))
    best = (np.inf, None)
    for step in range(steps):
        row = np.sqrt(lawson) * w / np.abs(d)
        a = columns * row[:, None]
        norm = np.linalg.norm(a, axis=0)
        norm[norm == 0] = 1
        c = np.linalg.lstsq(a / norm, target * row, rcond=1e-16)[0] / norm
        n = given_n + sum((v * (x / scale) ** p for (k, p), v in zip(free, c) if k == "n"), 0 * x)
        d = given_d + sum((v * (x / scale) ** p for (k, p), v in zip(free, c) if k == "d"), 0 * x)
        error = np.abs(w * (n / d - f))
        if error.max() < best[0] and d.min() > 0:
            best = (error.max(), c.copy())
        if step > 8:
            lawson = lawson * (error / error.max()) + 1e-14
            lawson /= lawson.sum()
    values = dict(fixed)
    values.update({(k, p): v / scale**p for (k, p), v in zip(free, best[1])})
    return values, best[0]


def largest_error(x, f, w, values):
    n = sum(v * x**p for (k, p), v in values.items() if k == "n")
    d = 1 + sum((v * x**p for (k, p), v in values.items() if k == "d"), 0 * x)
    return np.max(np.abs(w * (n / d - f)))


def show(name, x, f, w, degree, fixed=None, denominator=(), common=1.0, order=None, steps=150):
    """Fits, rounds, prints. degree: the highest power of N, or all its powers.

    common: a factor that N and D are multiplied with before they are rounded. order: in which the coefficients are
    rounded, by default from the lowest power up.
    """
    numerator = range(degree + 1) if isinstance(degree, int) else degree
    values = {("n", p): v for p, v in (fixed or {}).items()}
    if order is None:
        order = sorted([(p, k) for k, ps in (("n", numerator), ("d", denominator)) for p in ps if (k, p) not in values])
    ideal = None
    for power, kind in order:
        fitted, error = fit(x, f, w, numerator, denominator, values, steps)
        ideal = error if ideal is None else ideal
        values[kind, power] = float(np.float32(fitted[kind, power] * common)) / common
    lists = [[np.float32(values[k, p] * common) for p in ps] for k, ps in (("n", numerator), ("d", denominator)) if ps]
    if denominator:
        lists[1].insert(0, np.float32(common))
    report(name, ideal, largest_error(x, f, w, values), lists)


def report(name, ideal, rounded, lists):
    written = {np.float32(t) for t in re.findall(r"(?<![\w.])(\d+\.\d+(?:e-?\d+)?)f\b", HEADER.read_text())}
    found = all(np.float32(abs(v)) in written for part in lists for v in part)
    unit = 2.0**24
    print(f"{name}: {ideal * unit:.3f}, in f32 {rounded * unit:.3f}; {'in' if found else 'NOT in'} math.h")
    for part in lists:
        print("    " + ", ".join(f"{v:.9g}" for v in part))


def exponentials():
    wide = 1.0005  # how far rounding may carry the reduced argument beyond its range
    x = chebyshev(-LN2 * wide, LN2 * wide)
    show("e^r, |r| <= ln 2 (exp)", x, np.exp(x), np.exp(-x), 7, {0: 1.0})
    show("e^(-r/2) - 1 over r, |r| <= ln 2 (Gauss), fitted as e^(-r/2)", x, np.exp(-x / 2), np.exp(x / 2), 6, {0: 1.0})
    x = chebyshev(-LN2 / 2 * wide, LN2 / 2 * wide)
    show("e^-r, |r| <= ln 2 / 2 (silu)", x, np.exp(-x), np.exp(x), 5, {0: 1.0})
    show("e^-r, |r| <= ln 2 / 2 (sigmoid, softmax)", x, np.exp(-x), np.exp(x), 6, {0: 1.0})
    x = chebyshev(-LN2 / 4 * wide, LN2 / 4 * wide)
    show("(e^2r - 1)/r, |r| <= ln 2 / 4 (tanh)", x, np.expm1(2 * x) / x, x / np.expm1(2 * x), 5, {0: 2.0})
    x = chebyshev(-0.5005, 0.5005)
    show("2^f, |f| <= 1/2 (GELUs, derivatives)", x, 2**x, 2**-x, 5, {0: 1.0})
    show("4^f, |f| <= 1/2 (swish)", x, 4**x, 4**-x, 7, {0: 1.0})


def logarithm():
    x = chebyshev(np.sqrt(0.5) - 1, np.sqrt(2) - 1)
    f = evaluate(lambda t: (mp.log1p(t) - t + t * t / 2) / t**3, x)
    show("(log(1 + f) - f + f^2/2)/f^3 (log)", x, f, np.abs(x**3 / np.log1p(x)), 7)


def gaussians():
    x = np.concatenate([chebyshev(0, 2.06, 150), chebyshev(2.06, 14.65, 250)])

    def mills(z):
        return mp.ncdf(-z) * mp.exp(z * z / 2)

    # Below -2 GELU need not be as accurate as above.
    f = evaluate(mills, x)
    w = np.where(x < 2.061, 1, 0.3) / f
    show("R(z), z <= 14.6, rounded by this script", x, f, w, 4, {0: 0.5}, range(1, 6), 1.203125, steps=60)
    # The coefficients in use are, of many such roundings (other factors, other orders, last places moved at random),
    # those with the smallest error of GELU and of Φ, as they are computed in f32, over the floats in [-2, 0].
    n = [0.6015625, 0.520253599, 0.215084329, 0.0470406935, 0.00466933148]
    d = [1.203125, 2.00046229, 1.42474139, 0.550628781, 0.117922954, 0.0117041012]
    n, d = [[np.float32(v) for v in part] for part in (n, d)]
    values = {("n", p): float(v) / 1.203125 for p, v in enumerate(n)}
    values.update({("d", p): float(v) / 1.203125 for p, v in enumerate(d) if p})
    ideal = fit(x, f, w, range(5), range(1, 6), {("n", 0): 0.5}, 60)[1]
    report("R(z), z <= 14.6, in use", ideal, largest_error(x, f, w, values), [n, d])

    f = evaluate(lambda z: mills(z) - z / mp.sqrt(2 * mp.pi), x)
    order = [(4, "n"), (3, "n"), (1, "d"), (2, "n"), (1, "n"), (5, "n"), (3, "d"), (2, "d"), (4, "d")]
    w = 1 / np.maximum(np.abs(f), 0.3)
    show("R(z) - z/sqrt(2 pi) (gelu_derivative)", x, f, w, 5, {0: 0.5}, range(1, 5), 1.125, order, steps=60)


def for_16_bits():
    """Polynomials of functions that are rounded to f16 (first) or bf16: errors small beside 2^-12 and 2^-9."""
    x = chebyshev(-0.5005, 0.5005)
    for degree in 4, 3:
        show(f"2^f, |f| <= 1/2, degree {degree}", x, 2**x, 2**-x, degree)
    for degree in 5, 4:
        show(f"4^f, |f| <= 1/2, degree {degree}", x, 4**x, 4**-x, degree)
    for top in 7.0, 14.65:  # beyond 7 even 65504 gelu(x) is denormal in f16
        x = np.concatenate([chebyshev(0, 2.06, 150), chebyshev(2.06, top, 250)])
        f = evaluate(lambda z: mp.ncdf(-z) * mp.exp(z * z / 2), x)
        show(f"R(z), z <= {top}, degree 2/3", x, f, 1 / f, 2, None, range(1, 4), steps=60)
    for top, n, d in (5.0, 2, 3), (4.0, 2, 2):
        x = chebyshev(1e-3, top)
        f = np.tanh(x) / x
        show(f"tanh(x)/x over x^2, |x| <= {top}, degree {n}/{d}", x * x, f, 1 / f, n, None, range(1, d + 1), steps=60)


def constants():
    a = 2 * mp.sqrt(2 / mp.pi)
    for name, value in (
        ("log2 e", 1 / mp.log(2)),
        ("1.702 log2 e", mp.mpf("1.702") / mp.log(2)),
        ("2 sqrt(2/pi) log2 e", a / mp.log(2)),
        ("2 sqrt(2/pi) 0.044715 log2 e", a * mp.mpf("0.044715") / mp.log(2)),
        ("2 sqrt(2/pi)", a),
        ("6 sqrt(2/pi) 0.044715", 3 * a * mp.mpf("0.044715")),
        ("ln 2", mp.log(2)),
    ):
        high = np.float32(float(value))
        print(f"{name} = {high:.9g} + {float(value - mp.mpf(float(high))):.9g}")


if __name__ == "__main__":
    constants()
    exponentials()
    logarithm()
    gaussians()
    for_16_bits()

"""Every function in float64, with the error that its f32 result may have before it is stored: from the table of bounds of the
project for what a table has, else from the number of roundings. u is half the spacing of f32 at 1."""
import math
import re
from pathlib import Path

import numpy as np

BOUNDS = Path(__file__).resolve().parents[2] / "operations/accuracy_bounds.h"
U = 2.0**-24
TINY = 2.0**-148  # what lies below the normal numbers
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _table():
    number = r"(-?[\w.]+)"
    rows = re.findall(rf'\{{"(\w+)", {number}, {number}, {number}(?:, {number})?\}}', BOUNDS.read_text())
    return [(name, *(float(each.replace("infinity", "inf") or 0) for each in rest)) for name, *rest in rows]


TABLE = _table()


def ulp(values):
    """The spacing of f32 numbers."""
    _, exponent = np.frexp(np.maximum(np.abs(values), 2.0**-126))
    return np.ldexp(1.0, exponent - 24)


def table_error(function, argument, exact):
    """The bound of the table: of the first row whose region holds the argument."""
    result = np.full(exact.shape, np.nan)
    for name, low, high, most, floor in TABLE:
        if name == function:
            here = np.isnan(result) & (argument >= low) & (argument <= high)
            result = np.where(here, most * ulp(np.maximum(np.abs(exact), floor)), result)
    assert not np.isnan(result).any(), function
    return result


# ---- activations, with their derivatives ----

def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gelu_tanh(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    # (1 + tanh) / 2 is a sigmoid, which does not cancel.
    s = _sigmoid(2 * inner)
    return x * s, s + x * s * _sigmoid(-2 * inner) * 2 * slope


def _swish(x, beta):
    s = _sigmoid(beta * x)
    return x * s, s + beta * x * s * _sigmoid(-beta * x)


def _gelu(x):
    phi = 0.5 * _erfc(-x / math.sqrt(2))
    return x * phi, phi + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


ACTIVATIONS = {
    "relu": lambda x: (np.maximum(x, 0), np.where(x > 0, 1.0, 0.0)),
    "relu2": lambda x: (np.maximum(x, 0)**2, 2 * np.maximum(x, 0)),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "gelu_sigmoid": lambda x: _swish(x, 1.702),
    "silu": lambda x: _swish(x, 1.0),
    "sigmoid": lambda x: (_sigmoid(x), _sigmoid(x) * _sigmoid(-x)),
    "tanh": lambda x: (np.tanh(x), 1 / np.cosh(x)**2),
    "exp": lambda x: (np.exp(x), np.exp(x)),
}
GATES = {"glu": "sigmoid", "bilinear": None, "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "swish"}


def activation(name, x, beta=1.0, with_derivative=False):
    """(f(x), its error, f'(x), its error). None is the identity."""
    if name is None:
        return x, 0 * x, np.ones(x.shape), 0 * x
    value, slope = _swish(x, beta) if name == "swish" else ACTIVATIONS[name](x)
    argument = beta * x if name == "swish" else x
    shared = f"{name}_with_derivative" if with_derivative and name in ("sigmoid", "gelu_tanh", "swish") else name
    return (value, table_error(shared, argument, value), slope, table_error(f"{name}_derivative", argument, slope))


def product(a, error_of_a, b):
    """a b and its error, where b is exact and the product is rounded."""
    exact = a * b
    error = np.abs(b) * error_of_a
    return exact, error + U * (np.abs(exact) + error) + TINY


def gated(name, gate, up, beta=1.0):
    value, error, _, _ = activation(GATES[name], gate, beta)
    return product(value, error, up)


def gated_backward(name, gate, up, dy, beta=1.0):
    """((dgate, its error), (dup, its error))"""
    value, error, slope, slope_error = activation(GATES[name], gate, beta, with_derivative=True)
    bracket = product(slope, slope_error, up)
    return product(*bracket, dy), product(value, error, dy)


# ---- rows ----

def softmax(x, scale):
    t = (scale * x).max(-1, keepdims=True) - scale * x
    weights = np.exp(-t)
    exact = weights / weights.sum(-1, keepdims=True)
    d = x.shape[-1]
    return exact, exact * (2 * t + 2 * math.log(d) + d / 64 + 18) * U + 2 * TINY


def softmax_backward(y, dy, scale):
    total, size = (y * dy).sum(-1, keepdims=True), np.abs(y * dy).sum(-1, keepdims=True)
    # The sum errs by d/64 + 7 roundings of its terms; then there are a difference and two products.
    error = np.abs(scale * y) * ((y.shape[-1] / 64 + 7) * U * size + 4 * U * (np.abs(dy) + size))
    return scale * y * (dy - total), error + TINY


def _rms_scale(x, eps, eps_outside_root, p):
    """The mean square of the first features of each row, and what divides it."""
    part = x[..., :math.ceil(float(np.float32(p)) * x.shape[-1])]
    mean = (part * part).mean(-1, keepdims=True)
    return mean, np.sqrt(mean) + eps if eps_outside_root else np.sqrt(mean + eps)


def rms_norm(x, weight=None, eps=1e-6, eps_outside_root=False, unit_offset=False, p=1.0):
    eps, d = float(np.float32(eps)), x.shape[-1]
    _, root = _rms_scale(x, eps, eps_outside_root, p)
    factor = 1.0 if weight is None else 1 + weight if unit_offset else weight
    exact = factor * x / root
    # The mean errs by d/64 + 8 roundings, its root by half of that; root, reciprocal, 1 + weight and two products round once.
    return exact, np.abs(exact) * (d / 128 + 10) * U + TINY


def rms_norm_backward(x, weight, dy, eps=1e-6, eps_outside_root=False, unit_offset=False, p=1.0, dresidual_out=None):
    """((dx, its error), (dweight, its error))"""
    eps, d = float(np.float32(eps)), x.shape[-1]
    mean, root = _rms_scale(x, eps, eps_outside_root, p)
    count = math.ceil(float(np.float32(p)) * d)
    g = dy * (1.0 if weight is None else 1 + weight if unit_offset else weight)
    slope = root * np.sqrt(mean) if eps_outside_root else root**2
    is_counted = np.arange(d) < count
    middle, size = (each.sum(-1, keepdims=True) / count for each in (g * x, np.abs(g * x)))
    first, second = g / root, np.where(is_counted, x * middle / slope / root, 0)
    exact = first - second + (0 if dresidual_out is None else dresidual_out)
    # The reciprocal root errs by d/128 + 8 roundings, a sum by d/64 + 8; the second term has three of the one and one of the other.
    largest = np.where(is_counted, np.abs(x) * size / slope / root, 0)
    error = (d / 128 + 12) * np.abs(first) + (5 * d / 128 + 44) * largest + np.abs(exact) + np.abs(first - second)
    return (exact, U * error + TINY), sum_of_rows(dy * x / root, (d / 128 + 10) * U)


def sum_of_rows(terms, relative):
    """The sum over tokens, by blocks of 32, of terms that have a relative error."""
    rows = terms.reshape(-1, terms.shape[-1])
    count, size = rows.shape[0], np.abs(rows).sum(0)
    return rows.sum(0), (relative + (min(count, 32) + -(-count // 32) + 1) * U) * size + TINY


def _moments(x, eps):
    """The deviations of a row, 1/sqrt(variance + eps), the error of the first, and the relative one of the second."""
    d = x.shape[-1]
    mean = x.mean(-1, keepdims=True)
    deviation = x - mean
    variance = (deviation**2).mean(-1, keepdims=True)
    scale = 1 / np.sqrt(variance + eps)
    # Sums are taken over distances from a pivot, the mean of the first 64 features: each errs by d/64 + 9 roundings.
    pivot = x[..., :64].mean(-1, keepdims=True)
    shift = np.abs(mean - pivot) + 8 * U * np.abs(x).mean(-1, keepdims=True)
    mean_error = (d / 64 + 9) * U * (np.abs(deviation).mean(-1, keepdims=True) + shift)
    variance_error = (d / 64 + 12) * U * (variance + shift**2) + 2 * shift * mean_error
    # Then a feature is centred, in two steps.
    return deviation, scale, mean_error + U * (2 * np.abs(deviation) + 3 * shift), variance_error * scale**2 / 2


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    deviation, scale, centred_error, scale_error = _moments(x, float(np.float32(eps)))
    factor = 1.0 if weight is None else np.abs(weight)
    normal = deviation * scale * (1.0 if weight is None else weight)
    exact = normal + (0.0 if bias is None else bias)
    # It is scaled, weighted and shifted.
    error = factor * scale * centred_error + np.abs(normal) * (scale_error + 6 * U)
    return exact, error + U * np.abs(exact) + TINY


def layer_norm_backward(x, weight, dy, eps=1e-5, dresidual_out=None):
    """((dx, its error), (dweight, its error), (dbias, its error))"""
    d = x.shape[-1]
    deviation, scale, centred_error, scale_error = _moments(x, float(np.float32(eps)))
    g = dy * (1.0 if weight is None else weight)
    normal = deviation * scale
    normal_error = scale * centred_error + np.abs(normal) * (scale_error + 3 * U)
    roundings = (d / 32 + 8) * U  # of a sum over 32 lanes
    mean, size = (each.mean(-1, keepdims=True) for each in (g, np.abs(g)))
    along, along_size = (each.mean(-1, keepdims=True) for each in (g * normal, np.abs(g * normal)))
    along_error = roundings * along_size + (np.abs(g) * normal_error).mean(-1, keepdims=True)
    inner = g - mean - normal * along
    inner_error = roundings * size + normal_error * np.abs(along) + (np.abs(normal) + normal_error) * along_error
    inner_error = inner_error + 4 * U * (np.abs(g) + size + np.abs(normal) * along_size)
    exact = scale * inner + (0 if dresidual_out is None else dresidual_out)
    error = scale * (inner_error + (scale_error + 4 * U) * np.abs(inner)) + 2 * U * np.abs(exact) + TINY
    of_weight, its_error = sum_of_rows(dy * normal, 0)
    errors_in_terms = (np.abs(dy) * normal_error).reshape(-1, d).sum(0)
    return (exact, error), (of_weight, its_error + errors_in_terms), sum_of_rows(dy, 0)

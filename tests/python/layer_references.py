"""Linear layers and feed-forward networks in float64, each value with the error that its f32 result may have before it is stored, and
quantization as the C header has it, in f32. A pair is (value, error)."""
import numpy as np
import references
from references import TINY, U

# The steepest slope of an activation. Those without one are below.
SLOPES = {"identity": 1.0, "relu": 1.0, "gelu": 1.13, "gelu_tanh": 1.13, "gelu_sigmoid": 1.1, "silu": 1.1, "sigmoid": 0.25, "tanh": 1.0}
BF16 = 2.0**-9  # what rounding to bf16 changes at most, relative to the number


def gamma(roundings):
    return roundings * U / (1 - roundings * U)


def rounded(value, error, roundings=1):
    """The pair after so many roundings."""
    return value, error + roundings * U * (np.abs(value) + error) + TINY


def product(x, weights):
    """x times the transposed matrix: inputs go by 512, with a fused multiply-add each."""
    value, error = x
    size = np.abs(value) + error
    inputs = weights.shape[1]
    return value @ weights.T, gamma(min(inputs, 512) + -(-inputs // 512)) * (size @ np.abs(weights).T) + error @ np.abs(weights).T + TINY


def quantized_product(x, weights, group):
    """The bound of products by groups, relative to the sum of magnitudes. Codes are symmetric, so that nothing cancels in a weight."""
    inputs = weights.shape[1]
    group = group or min(inputs, 512)
    roundings = group + 2 + 2 * -(-inputs // group)
    return x @ weights.T, gamma(roundings) * (np.abs(x) @ np.abs(weights).T) + TINY


def product_in_8_bits(x, weights, group):
    """Products with x in 8 bits and their bound: a number is off by half the scale of its unit of inputs."""
    unit = 16 if group == 16 else 32
    inputs = weights.shape[1]
    scale = np.repeat(np.abs(x).reshape(*x.shape[:-1], inputs // unit, unit).max(-1) / 127, unit, -1)
    of_x = (0.5 + 2.0**-15) * scale @ np.abs(weights).T
    return x @ weights.T, of_x + gamma(2 + inputs // unit) * ((np.abs(x) + scale) @ np.abs(weights).T) + TINY


def activate(name, pair):
    value, error = pair
    if name == "identity":
        return pair
    at = references.ACTIVATIONS[name]
    reach = {"relu2": lambda: 2 * (np.abs(value) + error) * error, "exp": lambda: np.exp(value) * np.expm1(error)}
    moved = reach[name]() if name in reach else SLOPES[name] * error
    exact = at(value)[0]
    # The table's bound holds for what the function is computed of, which lies somewhere within the error.
    own = np.maximum(*(references.table_error(name, value + sign * error, np.abs(exact) + moved) for sign in (-1, 1)))
    return exact, moved + own


def multiply(one, other):
    (a, of_a), (b, of_b) = one, other
    return rounded(a * b, np.abs(a) * of_b + of_a * (np.abs(b) + of_b))


def add(one, other):
    return rounded(one[0] + other[0], one[1] + other[1])


def plain(array):
    return array, np.zeros(array.shape)


def linear(x, matrix, gate=None, bias=None, bias_up=None, activation="identity", residual=None, row_scale=None, row_mean=None):
    """All in float64, x as a pair. Of gated layers `bias` belongs to the gate."""
    def sums(weights, shift):
        pair = product(x, weights)
        if row_mean is not None:
            columns = weights.sum(1)
            # The columns' sums are made in f32, in any order.
            of_columns = gamma(weights.shape[1]) * np.abs(weights).sum(1)
            pair = rounded(pair[0] - row_mean[..., None] * columns, pair[1] + np.abs(row_mean[..., None]) * of_columns)
        if row_scale is not None:
            pair = rounded(row_scale[..., None] * pair[0], np.abs(row_scale[..., None]) * pair[1])
        return pair if shift is None else add(pair, plain(shift))
    if gate is None:
        result = activate(activation, sums(matrix, bias))
    else:
        result = multiply(activate(activation, sums(gate, bias)), sums(matrix, bias_up))
    return result if residual is None else add(result, plain(residual))


def rounded_to_bf16(pair):
    return pair[0], pair[1] + BF16 * (np.abs(pair[0]) + pair[1])


def ffn(x, up, down, gate=None, norm=None, with_bf16=False, bias_down=None, residual=False, **first):
    """`norm` gives the pair of a row's norm; `with_bf16`: what is multiplied is rounded to bf16."""
    between = rounded_to_bf16 if with_bf16 else lambda pair: pair
    normal = plain(x) if norm is None else between(norm(x))
    hidden = between(linear(normal, up, gate, **first))
    return linear(hidden, down, bias=bias_down, residual=x if residual else None)


def quantize(matrix, bits, group, asymmetric):
    """The numbers that the codes of an f32 matrix stand for, with scales in f16, which the codes take no notice of."""
    f32 = np.float32
    rows = matrix.astype(f32).reshape(matrix.shape[0], -1, group)
    most = f32(2**bits - 1)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(-1)[..., None], -1)
    if asymmetric:
        low, high = np.minimum(rows.min(-1, keepdims=True), 0), np.maximum(rows.max(-1, keepdims=True), 0)
        scale = (high - low) / most
        inverse = f32(1) / scale
        zero = np.clip(np.trunc(-low * inverse + f32(0.5)), 0, most)
        away = rows * inverse
        codes = np.clip(np.sign(away) * np.trunc(np.abs(away) + f32(0.5)) + zero, 0, most) - zero
    elif bits == 8:
        scale = np.abs(largest) / f32(127)
        away = rows * (f32(1) / scale)
        codes = np.sign(away) * np.trunc(np.abs(away) + f32(0.5))
    else:
        scale = largest / f32(-8)
        codes = np.minimum(f32(15), np.trunc(rows * (f32(1) / scale) + f32(8.5))) - f32(8)
    return (scale.astype(np.float16).astype(f32) * codes).reshape(matrix.shape)

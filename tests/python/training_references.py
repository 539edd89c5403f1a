"""Gradients of linear layers and attention, and losses, in float64, each value with the error that its f32 result may have; and steps of
optimizers in f32, whose order of operations the C header gives. A pair is (value, error)."""
import math

import layer_references as layers
import numpy as np
import references
from layer_references import gamma
from references import TINY, U

ULP = 2 * U  # relative to a number


def product(one, other):
    """one times the transposed other, both pairs, summed by blocks of 512."""
    (a, of_a), (b, of_b) = one, other
    value, error = layers.product(one, b)
    return value, error + (1 + gamma(a.shape[-1])) * (np.abs(a) + of_a) @ of_b.T


def added(pair, start, sums):
    """The pair of what a call adds to: `start` goes through as many sums as there are blocks."""
    value, error = pair
    return value + start, error + gamma(sums) * np.abs(start)


# ---- linear layers ----

def gradient_of_sums(dy, activation, sums, sums_up=None):
    """The pairs dz, or of gated weights dgate and dup: rows by outputs."""
    if sums_up is not None:
        gate = {"identity": "bilinear", "relu": "reglu", "silu": "swiglu", "gelu": "geglu", "sigmoid": "glu"}[activation]
        return references.gated_backward(gate, sums, sums_up, dy)
    if activation == "identity":
        return (layers.plain(dy),)
    _, _, slope, error = references.activation(activation, sums)
    return (references.product(slope, error, dy),)


def linear_backward(x, matrices, dz):
    """(dx, [dweight [outputs, inputs] of each], [dbias of each]) of the pairs dz, one for each matrix; x is exact. Those of gated weights
    are summed together."""
    rows = [np.concatenate(each, -1) for each in zip(*dz)]
    dx = layers.product(tuple(rows), np.concatenate(matrices, 0).T)
    dweights = [layers.product((value.T, error.T), x.T) for value, error in dz]
    dbiases = []
    for value, error in dz:
        total, its_error = references.sum_of_rows(value, 0)
        dbiases.append((total, its_error + (1 + gamma(len(value))) * error.sum(0)))
    return dx, dweights, dbiases


# ---- attention ----

def attention_backward(q, k, v, y, log_sum_exp, dy, seen, scale=0.0, softcap=0.0):
    """(dq, dk, dv) of one head each, [tokens, features], by the bound in the documentation of numerics."""
    d = q.shape[-1]
    scale = float(np.float32(scale or 1 / math.sqrt(d)))
    size = np.abs(q) @ np.abs(k).T
    score, error, slope, of_slope = scale * q @ k.T, scale * gamma(d + 1) * size, 1.0, 0.0
    if softcap:
        t = np.tanh(score / softcap)
        of_t = (error + 4 * U * np.abs(score)) / softcap + 4 * ULP
        score, error = softcap * t, softcap * of_t + U * np.abs(softcap * t)
        slope, of_slope = 1 - t * t, 2 * (of_t + 2 * U) + (of_t + 2 * U)**2 + 3 * U
    else:
        error = error + 2 * U * np.abs(score)
    away = score - log_sum_exp[:, None]
    p = np.where(seen, np.exp(away), 0)
    of_p = np.where(seen, p * np.expm1(error + U * np.abs(away) + 2 * ULP), 0) + TINY
    dp, of_dp = layers.product(layers.plain(dy), v)
    of_dp = np.maximum(of_dp, gamma(d + 1) * np.abs(dy) @ np.abs(v).T)
    total = (dy * y).sum(-1, keepdims=True)
    inner = dp - total
    of_inner = of_dp + gamma(-(-d // 32) + 6) * np.abs(dy * y).sum(-1, keepdims=True) + U * np.abs(inner)
    ds = layers.multiply((p, of_p), (inner, of_inner))
    ds = layers.multiply(ds, (np.full(ds[0].shape, scale), np.full(ds[0].shape, U * scale)))
    if softcap:
        ds = layers.multiply(ds, (slope, of_slope))
    return product(ds, layers.plain(k.T)), product((ds[0].T, ds[1].T), layers.plain(q.T)), product((p.T, of_p.T), layers.plain(dy.T))


# ---- losses ----

def cross_entropy(logits, targets, scale=1.0):
    """((losses, their error), (dlogits, their error)) by the bound in the documentation of numerics."""
    at = np.arange(len(logits))
    most = logits.max(-1, keepdims=True)
    below = logits - most
    is_largest = np.arange(logits.shape[1]) == logits.argmax(-1)[:, None]
    weights = np.exp(below)
    of_weights = weights * U * (4 - below) + 2 * TINY
    rest, of_rest = (np.where(is_largest, 0, each).sum(-1) for each in (weights, of_weights))
    of_rest = of_rest + (-(-logits.shape[1] // 64) + 8) * U * (rest + of_rest)
    beside = -below[at, targets]
    losses = beside + np.log1p(rest)
    of_losses = of_rest / (1 + rest - of_rest) + 3 * U * np.log1p(rest) + 2 * TINY
    of_losses = of_losses + U * beside + U * (losses + of_losses)
    total, of_total = 1 + rest, of_rest + U * (1 + rest)
    factor = scale / total
    of_factor = factor * (of_total / (total - of_total) + U) + TINY
    columns = (factor[:, None], of_factor[:, None])
    gradients, of_gradients = layers.multiply((weights, of_weights), columns)
    sure = layers.multiply((-rest, of_rest), (factor, of_factor))
    unsure = layers.rounded(gradients[at, targets] - scale, of_gradients[at, targets])
    for result, own, other in zip((gradients, of_gradients), sure, unsure):
        result[at, targets] = np.where(beside == 0, own, other)
    return (losses, of_losses), (gradients, of_gradients)


# ---- optimizers, in f32: every operation of NumPy rounds once ----

def sgd_step(p, gradient, buffer, lr=1e-3, momentum=0.0, weight_decay=0.0, nesterov=False, gradient_scale=1.0):
    """(p, buffer) after a step."""
    lr, momentum, weight_decay, gradient_scale = np.float32([lr, momentum, weight_decay, gradient_scale])
    g = gradient_scale * gradient
    g = g + weight_decay * p if weight_decay else g
    if not momentum:
        return p - lr * g, buffer
    buffer = momentum * buffer + g
    return p - lr * (g + momentum * buffer if nesterov else buffer), buffer


def adamw_step(p, gradient, m, v, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1e-2, gradient_scale=1.0, decoupled=True):
    """(p, m, v) after a step."""
    def power(base, exponent):
        result = 1.0
        while exponent:
            result, base, exponent = result * base if exponent % 2 else result, base * base, exponent // 2
        return result
    root = math.sqrt(1 - power(beta2, step))
    first, second, decay, rate, small = np.float32([1 - beta1, 1 - beta2, lr * weight_decay, lr * root / (1 - power(beta1, step)), eps * root])
    g = np.float32(gradient_scale) * gradient
    g = g + np.float32(weight_decay) * p if weight_decay and not decoupled else g
    m = m + first * (g - m)
    v = np.float32(beta2) * v + (second * g) * g
    p = p - decay * p if weight_decay and decoupled else p
    return p - (rate * m) / (np.sqrt(v) + small), m, v

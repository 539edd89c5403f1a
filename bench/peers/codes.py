"""Matrices of codes: what halyard_quantization makes of a row's matrix, for peers that are given codes and scales."""

import numpy as np

# By the row's operation: the bits, the inputs that share a scale, and whether these have a zero too.
CODES = {"linear.q8_0": (8, 32, False), "linear.q4_0": (4, 32, False), "linear.int4_128": (4, 128, False),
         "linear.uint4_128": (4, 128, True)}


def rounded(x):
    """To nearest, halves away from 0."""
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)


def quantized(weight, bits, group, asymmetric):
    """What halyard.h says at halyard_quantization, of [out, in] in f32: codes [out, groups, group], scales and zeros
    [out, groups]."""
    out, width = weight.shape
    groups, most = -(-width // group), 2**bits - 1
    w = np.zeros((out, groups * group), np.float32)
    w[:, :width] = weight
    w = w.reshape(out, groups, group)
    low, high = np.minimum(w.min(2), 0), np.maximum(w.max(2), 0)
    if asymmetric:
        scale = (high - low) / np.float32(most)
    elif bits == 8:
        scale = np.maximum(high, -low) / np.float32(127)
    else:
        scale = np.take_along_axis(w, np.abs(w).argmax(2)[..., None], 2)[..., 0] / np.float32(-8)
    scale[np.abs(scale) < np.finfo(np.float32).tiny] = 0
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    zero = np.minimum(rounded(-low * inverse), most) if asymmetric else np.full_like(scale, 2 ** (bits - 1))
    quotient = w * inverse[..., None]
    codes = rounded(quotient) + zero[..., None] if asymmetric or bits == 8 else np.trunc(quotient + np.float32(8.5))
    scale = scale.astype(np.float16)
    return np.clip(codes, 0, most).astype(np.uint8), scale, zero.astype(np.uint8)

"""Rotary embedding, attention and the cache of keys and values against float64."""
import unittest

import halyard
import numpy as np
import references
from layer_references import gamma
from references import TINY, U
from typed_arrays import Numbers, within


def every_dtype():
    return [Numbers(dtype) for dtype in ("f32", "f16", "bf16")]


def rotate(x, positions, rotary_dim, interleaved=False, theta=10000.0, backward=False):
    """(value, error) of x, [..., T, n_heads, head_dim]."""
    half = rotary_dim // 2
    angles = positions[..., None] * theta**(-2 * np.arange(half) / rotary_dim) * (-1 if backward else 1)
    cosine, sine = np.cos(angles)[..., None, :], np.sin(angles)[..., None, :]
    first, second = (slice(0, rotary_dim, 2), slice(1, rotary_dim, 2)) if interleaved else (slice(0, half), slice(half, rotary_dim))
    exact, error = x.copy(), np.zeros(x.shape)
    a, b = x[..., first], x[..., second]
    exact[..., first], exact[..., second] = a * cosine - b * sine, b * cosine + a * sine
    error[..., first] = error[..., second] = 2.71 * U * np.hypot(a, b) + TINY
    return exact, error


def visible(queries, keys, causal, window):
    at, of = np.arange(keys - queries, keys)[:, None], np.arange(keys)
    seen = np.ones((queries, keys), bool)
    seen &= of <= at if causal else seen
    if window:
        seen &= of > at - window
        seen &= of < at + window
    return seen


def attend(q, k, v, scale=0.0, causal=False, sliding_window=0, softcap=0.0):
    """(y, its error, log_sum_exp, its error) of pairs q and k and exact v, by the bound in the documentation of numerics."""
    (q, of_q), (k, of_k) = q, k
    group, d = q.shape[-2] // k.shape[-2], q.shape[-1]
    q, of_q = (np.moveaxis(each, -2, -3) for each in (q, of_q))
    k, of_k, v = (np.repeat(np.moveaxis(each, -2, -3), group, -3) for each in (k, of_k, v))
    scale = scale or 1 / np.sqrt(d)
    scale = float(np.float32(scale))
    turned = [np.swapaxes(each, -1, -2) for each in (k, of_k)]
    score = scale * q @ turned[0]
    size = (np.abs(q) + of_q) @ (np.abs(turned[0]) + turned[1])
    error = scale * (gamma(d + 1) * size + size - np.abs(q) @ np.abs(turned[0])) + 3 * U * np.abs(score)
    if softcap:
        score = softcap * np.tanh(score / softcap)
        error = error + (4 * 2 + 2) * U * np.abs(score)
    seen = visible(q.shape[-2], k.shape[-2], causal, sliding_window)
    score = np.where(seen, score, -np.inf)
    most = score.max(-1, keepdims=True)
    blocks = -(-k.shape[-2] // 512)
    weights = np.exp(score - most)
    with np.errstate(invalid="ignore"):
        error = np.expm1(np.where(seen, error + U * (most - score) + (blocks + 1) * (2 * 2 + 2) * U, 0))
    own, total = gamma(512 + 2 * blocks) * (1 + error), weights.sum(-1, keepdims=True)
    of_o = (weights * (error + own)) @ np.abs(v)
    of_l = (weights * (error + gamma(14 + 2 * blocks) * (1 + error))).sum(-1, keepdims=True)
    y = weights @ v / total
    of_y = (1 + 3 * U) * (of_o + np.abs(y) * of_l) / (total - of_l) + 3 * U * np.abs(y) + TINY
    sums = (most + np.log(total))[..., 0]
    of_most = np.where(seen, scale * gamma(d + 1) * size + 4 * U * np.abs(score), 0).max(-1)
    of_sums = (of_l / (total - of_l))[..., 0] + U * (np.abs(sums) + 2 * np.abs(np.log(total[..., 0]))) + of_most
    return (*(np.moveaxis(each, -3, -2) for each in (y, of_y)), *(np.swapaxes(each, -1, -2) for each in (sums, of_sums)))


class Rope(unittest.TestCase):
    def test_rotation(self):
        for numbers in every_dtype():
            for leading, rotary_dim, interleaved in (((5,), 16, False), ((2, 7), 16, True), ((3,), 10, False)):
                x = numbers.array((*leading, 3, 16))
                rope = halyard.Rope(16, 64, rotary_dim=rotary_dim, interleaved=interleaved)
                positions = numbers.random.integers(0, 64, leading[-1:])
                for given in (None, positions, positions.astype(np.int32)):
                    at = np.arange(leading[-1]) if given is None else positions
                    for method, backward in ((rope.apply, False), (rope.apply_backward, True)):
                        out = numbers.empty((*leading, 3, 16))
                        self.assertIs(method(x, given, out=out), out)
                        exact = rotate(numbers.exact(x), at, rotary_dim, interleaved, backward=backward)
                        self.assertTrue(within(numbers.exact(out), *exact, numbers.dtype), (numbers.dtype, leading, backward))

    def test_scaling(self):
        x = Numbers("f32").array((5, 1, 16))
        stretched = halyard.Rope(16, 64, 5000.0, scaling="linear", factor=4.0).apply(x, np.arange(5) * 4)
        self.assertEqual(stretched.tobytes(), halyard.Rope(16, 64, 5000.0).apply(x).tobytes())
        exact = rotate(x.astype(np.float64), np.arange(5), 16, theta=5000.0)
        self.assertTrue(within(stretched, *exact, "f32"))
        changed = halyard.Rope(16, 64, scaling="llama3", factor=8.0, original_max_position_embeddings=32).apply(x)
        self.assertNotEqual(changed.tobytes(), halyard.Rope(16, 64).apply(x).tobytes())

    def test_attributes(self):
        rope = halyard.Rope(16, 64, rotary_dim=8)
        self.assertEqual((rope.head_dim, rope.rotary_dim, rope.max_positions), (16, 8, 64))
        self.assertEqual(repr(rope), "<halyard.Rope of 8 features, 64 positions>")


class Attention(unittest.TestCase):
    OPTIONS = ({}, {"causal": True}, {"causal": True, "sliding_window": 3}, {"scale": 0.5}, {"causal": True, "softcap": 2.0})

    def test_attention(self):
        for numbers in every_dtype()[:2]:
            for leading, queries, keys in (((), 5, 5), ((2,), 4, 9), ((), 3, 530)):
                q = numbers.array((*leading, queries, 4, 16), -1.5, 1.5)
                k, v = (numbers.array((*leading, keys, 2, 16), -1.5, 1.5) for _ in range(2))
                for options in self.OPTIONS:
                    pairs = [(numbers.exact(each), np.zeros(each.shape)) for each in (q, k)]
                    y, of_y, sums, of_sums = attend(*pairs, numbers.exact(v), **options)
                    log_sum_exp = np.empty((*leading, queries, 4), np.float32)
                    got = halyard.attention(q, k, v, log_sum_exp=log_sum_exp, **options)
                    self.assertTrue(within(numbers.exact(got), y, of_y, numbers.dtype), (numbers.dtype, keys, options))
                    self.assertTrue(within(log_sum_exp, sums, of_sums, "f32"), (numbers.dtype, keys, options))

    def test_rounded_keys(self):
        """In bf16 queries, keys and weights of a softmax are rounded before products: those of f32 with the same numbers are near."""
        numbers = Numbers("bf16")
        q, k, v = numbers.array((5, 4, 16), -1.5, 1.5), numbers.array((5, 2, 16), -1.5, 1.5), numbers.array((5, 2, 16), -1.5, 1.5)
        exact = [numbers.exact(each) for each in (q, k, v)]
        y, of_y, _, _ = attend((exact[0], 0 * exact[0]), (exact[1], 0 * exact[1]), exact[2], causal=True)
        # q and k are bf16 already, so only the weights are rounded, by 2^-9 of themselves before they are multiplied.
        most = np.abs(exact[2]).max()
        got = halyard.attention(q, k, v, causal=True, out=numbers.empty((5, 4, 16)))
        self.assertTrue(within(numbers.exact(got), y, of_y + 2.0**-9 * (1 + 2.0**-8) * most, "bf16"))

    def test_norm_and_rope(self):
        """Norm and rotation of heads have the bits of the functions, one after the other."""
        numbers = Numbers("f32")
        q, k, v = numbers.array((5, 4, 16)), numbers.array((5, 2, 16)), numbers.array((5, 2, 16))
        weights, rope = [numbers.array((16,)) for _ in range(2)], halyard.Rope(16, 64)
        got = halyard.attention(q, k, v, causal=True, q_norm_weight=weights[0], k_norm_weight=weights[1], unit_offset=True,
                                qk_norm_eps=0.5, rope=rope)
        turned = [rope.apply(halyard.rms_norm(each, weight, 0.5, unit_offset=True)) for each, weight in zip((q, k), weights)]
        pairs = [(each.astype(np.float64), 0 * each.astype(np.float64)) for each in turned]
        y, of_y, _, _ = attend(*pairs, v.astype(np.float64), causal=True)
        self.assertTrue(within(got, y, of_y, "f32"))

    def test_new_output(self):
        q = np.ones((1, 2, 16), np.float16)
        y = halyard.attention(q, q, q)
        self.assertEqual((type(y), y.dtype, y.shape), (np.ndarray, q.dtype, q.shape))


class Cache(unittest.TestCase):
    def test_bits_of_one_call(self):
        """Tokens that come one by one, or some at once, give what all of them give."""
        numbers, rope = Numbers("f32"), halyard.Rope(16, 64)
        q, k, v = numbers.array((2, 9, 4, 16)), numbers.array((2, 9, 2, 16)), numbers.array((2, 9, 2, 16))
        expected = halyard.attention(q, k, v, causal=True, rope=rope)
        for cuts in ((0, 9), (0, 1, 2, 5, 9)):
            cache = halyard.KVCache(2, 2, 16, 32, n_sequences=4)
            for first, last in zip(cuts, cuts[1:]):
                part = [each[:, first:last] for each in (q, k, v)]
                y = halyard.attention_cached(*part, cache, 1, [3, 0], causal=True, rope=rope)
                self.assertEqual(y.tobytes(), expected[:, first:last].tobytes())
            self.assertEqual([cache.length(1, each) for each in range(4)], [9, 0, 0, 9])
            self.assertEqual((len(cache), cache.length(sequence=3, layer=1)), (0, 9))

    def test_appending_and_reading(self):
        for dtype in ("f32", "f16", "bf16"):
            numbers = Numbers(dtype)
            k, v = numbers.array((5, 2, 16)), numbers.array((5, 2, 16))
            cache = halyard.KVCache(n_layers=1, n_kv_heads=2, head_dim=16, max_positions=8, dtype=dtype)
            cache.append(k, v)
            self.assertEqual(len(cache), 5)
            read = [np.empty((3, 2, 16), np.float32) for _ in range(2)]
            self.assertIsNone(cache.read(first=1, k=read[0], v=read[1]))
            for got, stored in zip(read, (k, v)):
                self.assertEqual(got.tobytes(), numbers.exact(stored)[1:4].astype(np.float32).tobytes())
            self.assertRaisesRegex(ValueError, "halyard_kv_cache_append: ", cache.append, k, v)
            self.assertEqual(len(cache), 5)
            cache.truncate(2)
            self.assertEqual(len(cache), 2)
            cache.append(k, v, 0, np.array([0]))
            self.assertEqual(len(cache), 7)

    def test_attributes(self):
        cache = halyard.KVCache(3, 2, 16, 64, n_sequences=2, dtype="bf16")
        self.assertEqual((cache.n_layers, cache.n_kv_heads, cache.head_dim, cache.max_positions, cache.n_sequences, cache.dtype),
                         (3, 2, 16, 64, 2, "bf16"))
        self.assertEqual(repr(cache), "<halyard.KVCache of 3 layers, 2 sequences, 64 positions, bf16>")
        self.assertGreaterEqual(cache.nbytes, 2 * 3 * 2 * 2 * 64 * 16 * 2)


if __name__ == "__main__":
    unittest.main()

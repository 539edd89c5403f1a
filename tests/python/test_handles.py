"""Weights, Rope and KVCache as objects: bytes, files and copies, refusals, use by several calls, and what stays of many."""
import copy
import gc
import os
import pickle
import resource
import sys
import tempfile
import threading
import time
import unittest

import halyard
import numpy as np
from dlpack_array import FLOAT, DlpackArray

random = np.random.default_rng(1)
MATRIX = random.uniform(-1, 1, (21, 64)).astype(np.float32)
GATE = random.uniform(-1, 1, (21, 64)).astype(np.float32)
X = random.uniform(-1, 1, (3, 64)).astype(np.float32)
HEADS = random.uniform(-1, 1, (5, 2, 16)).astype(np.float32)


def every_kind():
    yield halyard.Weights(MATRIX)
    yield halyard.Weights(MATRIX.astype(np.float16), GATE.astype(np.float16))
    yield halyard.Weights(MATRIX, bits=4, group=32)
    yield halyard.Weights(MATRIX, GATE, bits=8, group=16, asymmetric=True)


class Bytes(unittest.TestCase):
    def same(self, one, other):
        self.assertEqual((repr(one), one.quantization, one.nbytes), (repr(other), other.quantization, other.nbytes))
        self.assertEqual(halyard.linear(X, one).tobytes(), halyard.linear(X, other).tobytes())

    def test_pickle_and_copies(self):
        for weights in every_kind():
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                self.same(weights, pickle.loads(pickle.dumps(weights, protocol)))
            for made in (copy.copy(weights), copy.deepcopy(weights), halyard.Weights.from_bytes(weights.to_bytes())):
                self.same(weights, made)
            self.assertEqual(len(weights.to_bytes()), weights.nbytes)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for weights in every_kind():
                path = os.path.join(folder, "weights")
                self.assertIsNone(weights.save(path))
                self.same(weights, halyard.Weights.load(path))
            self.assertRaisesRegex(ValueError, "^halyard_weights_load: path cannot be opened", halyard.Weights.load, path + "s")
            self.assertRaisesRegex(ValueError, "^halyard_weights_save: path ", weights.save, folder)
            self.assertRaises(TypeError, halyard.Weights.load, 3)
            self.assertRaises(ValueError, halyard.Weights.load, path + "\0")

    def test_bytes_that_are_refused(self):
        data = halyard.Weights(MATRIX).to_bytes()
        for given in (b"", data[:100], data[:-1], b"x" + data[1:]):
            self.assertRaisesRegex(ValueError, "^halyard_weights_from_memory: ", halyard.Weights.from_bytes, given)
        self.assertRaisesRegex(TypeError, "^halyard.Weights.from_bytes: data must be bytes, not <class 'str'>$",
                               halyard.Weights.from_bytes, "text")

    def test_attributes(self):
        weights = halyard.Weights(MATRIX.astype(np.float16), GATE.astype(np.float16))
        self.assertEqual((weights.inputs, weights.outputs, weights.dtype, weights.gated, weights.norm_folded, weights.quantization),
                         (64, 21, "f16", True, False, None))
        self.assertEqual(repr(weights), "<halyard.Weights [21, 64] f16, gated>")
        weights = halyard.Weights(MATRIX, bits=4, group=32, asymmetric=True, scale_dtype="bf16")
        self.assertEqual(repr(weights), "<halyard.Weights [21, 64] 4 bits, groups of 32>")
        self.assertEqual(weights.quantization,
                         {"bits": 4, "group": 32, "scale_kind": "zero", "scale_dtype": "bf16", "ordered": False})

    def test_nothing_is_kept_of_the_array(self):
        matrix = MATRIX.copy()
        weights, count = halyard.Weights(matrix), sys.getrefcount(matrix)
        expected = halyard.linear(X, weights).tobytes()
        matrix[:] = 0
        self.assertEqual(halyard.linear(X, weights).tobytes(), expected)
        self.assertEqual(count, sys.getrefcount(matrix))

    def test_update(self):
        weights = halyard.Weights(MATRIX, GATE)
        self.assertIsNone(weights.update(GATE, MATRIX))
        self.same(weights, halyard.Weights(GATE, MATRIX))
        weights.update(np.ascontiguousarray(MATRIX.T), gate=np.ascontiguousarray(GATE.T), layout="in_out")
        self.same(weights, halyard.Weights(MATRIX, GATE))
        self.assertRaisesRegex(ValueError, "^halyard_weights_update: ", weights.update, MATRIX)
        self.same(weights, halyard.Weights(MATRIX, GATE))
        self.assertRaisesRegex(TypeError, "^halyard_weights_update: weights are those of a file or of the caller's bytes",
                               copy.copy(weights).update, MATRIX, GATE)


class Refusals(unittest.TestCase):
    def test_arguments(self):
        weights, cache, rope = halyard.Weights(MATRIX), halyard.KVCache(1, 2, 16, 8), halyard.Rope(16, 8)
        q = HEADS
        for call, error, text in (
                (lambda: halyard.Weights(), TypeError, "halyard.Weights: array is missing"),
                (lambda: halyard.Weights(*[MATRIX] * 50), TypeError, "halyard.Weights: has no 50 arguments"),
                (lambda: halyard.Weights(MATRIX, GATE, "in_out"), TypeError,
                 "halyard.Weights: takes at most 2 positional arguments, and 3 were given"),
                (lambda: halyard.Weights(MATRIX, layout="out"), ValueError, "halyard.Weights: layout must be 'out_in' or 'in_out', not 'out'"),
                (lambda: halyard.Weights(MATRIX, bits=3), ValueError, "halyard_weights_pack: quantization.bits is 3"),
                (lambda: halyard.Weights(MATRIX, group=32), ValueError, "halyard_weights_pack: quantization.bits is 0, .*, but quantization.group is 32"),
                (lambda: halyard.Weights(MATRIX, asymmetric=True), ValueError, "halyard_weights_pack: quantization.bits is 0, .* quantization.asymmetric is 1"),
                (lambda: halyard.Weights(MATRIX, bits=4.0), TypeError, "halyard.Weights: bits must be an int, not 4.0"),
                (lambda: halyard.Weights(MATRIX, bits=2**31), ValueError, "halyard.Weights: bits is 2147483648, which is out of range"),
                (lambda: halyard.Weights(MATRIX, bits=2**70), ValueError, "halyard.Weights: bits is .*, which is out of range"),
                (lambda: halyard.Weights(MATRIX, bits=4, scale_dtype="i8"), ValueError,
                 "halyard.Weights: scale_dtype must be 'f32', 'f16' or 'bf16', not 'i8'"),
                (lambda: halyard.Weights(MATRIX, GATE[:3]), ValueError, "halyard_weights_pack: up "),
                (lambda: halyard.Weights(MATRIX[0]), ValueError, "halyard_weights_pack: weight "),
                (lambda: halyard.Weights(MATRIX, unknown=1), TypeError, "halyard.Weights: has no argument 'unknown'"),
                (lambda: halyard.Weights(MATRIX, **{"*": 1}), TypeError, r"halyard.Weights: has no argument '\*'"),
                (lambda: weights.update(self=weights), TypeError, "halyard.Weights.update: 'self' was given twice"),
                (lambda: weights.dequantize(), ValueError, "halyard.Weights.dequantize: these weights are not quantized"),
                (lambda: halyard.Weights.from_codes(MATRIX, "int8", 21), TypeError, "halyard.Weights.from_codes: inputs is missing"),
                (lambda: halyard.Weights.from_codes(MATRIX, "int8", 21, 64), (TypeError, ValueError), "halyard_weights_pack_codes: "),
                (lambda: halyard.linear(X, MATRIX), TypeError,
                 "halyard.linear: weights must be a halyard.Weights, not <class 'numpy.ndarray'>"),
                (lambda: halyard.linear(X, rope), TypeError, "halyard.linear: weights must be a halyard.Weights, not <class 'halyard.Rope'>"),
                (lambda: halyard.linear(X), TypeError, "halyard.linear: weights is missing"),
                (lambda: halyard.linear(X[:, 1:], weights), ValueError, "halyard_linear: x has rows of 63 features"),
                (lambda: halyard.linear(X, weights, MATRIX), ValueError, "halyard_linear: bias "),
                (lambda: halyard.linear(X, weights, activation="gellu"), ValueError,
                 "halyard.linear: activation must be 'identity', 'relu', .* or 'relu2', not 'gellu'"),
                (lambda: halyard.linear(X, weights, activation=1), ValueError, "halyard.linear: activation must be .*, not 1"),
                (lambda: halyard.linear(X, weights, activation="swish", beta=1e30), ValueError, "halyard_linear: beta "),
                (lambda: halyard.linear(X, weights, out=np.empty((3, 20), np.float32)), ValueError, "halyard_linear: y "),
                (lambda: halyard.linear(X, weights, sums=bytes(3 * 21 * 4)), ValueError, "halyard.linear: sums is read-only"),
                (lambda: halyard.ffn(X, weights, weights), ValueError, "halyard_ffn: down "),
                (lambda: halyard.ffn(X, weights, None), TypeError, "halyard.ffn: down is missing"),
                (lambda: halyard.ffn(X, weights, weights, norm="both"), ValueError,
                 "halyard.ffn: norm must be 'none', 'rms' or 'layer', not 'both'"),
                (lambda: halyard.attention(q, q, q[:, :1]), ValueError, "halyard_attention: v "),
                (lambda: halyard.attention(q, q, q, rope=weights), TypeError,
                 "halyard.attention: rope must be a halyard.Rope, not <class 'halyard.Weights'>"),
                (lambda: halyard.attention(q, q, q, sliding_window=1.5), TypeError, "halyard.attention: sliding_window must be an int"),
                (lambda: halyard.attention(q, q, q, scale=-1.0), ValueError, "halyard_attention: scale "),
                (lambda: halyard.attention_cached(q, q, q, cache, 1), ValueError, "halyard_attention_cached: layer is 1"),
                (lambda: halyard.attention_cached(q, q, q, cache, 0, [1]), ValueError, "halyard_attention_cached: sequences"),
                (lambda: halyard.attention_cached(q, q, q, cache, 0, [0, 1]), ValueError,
                 "halyard.attention_cached: sequences has 2 entries, but the batch is 1"),
                (lambda: cache.append(q, q, 0, 3), TypeError, "halyard.KVCache.append: sequences must be a sequence of ints, not 3"),
                (lambda: cache.append(q, q, 0, ["a"]), TypeError, "halyard.KVCache.append: sequences must be an int, not 'a'"),
                (lambda: cache.truncate(), TypeError, "halyard.KVCache.truncate: length is missing"),
                (lambda: cache.truncate(-1), ValueError, "halyard_kv_cache_truncate: length "),
                (lambda: cache.read(first=7, k=np.empty((2, 2, 16), np.float32)), ValueError, "halyard_kv_cache_read: "),
                (lambda: cache.length(1), ValueError, "halyard.KVCache.length: there is no layer 1 with a sequence 0"),
                (lambda: halyard.KVCache(1, 2, 16), TypeError, "halyard.KVCache: max_positions is missing"),
                (lambda: halyard.KVCache(1, 2, 0, 8), ValueError, "halyard_kv_cache_create: head_dim is 0"),
                (lambda: halyard.Rope(15, 8), ValueError, "halyard_rope_create: head_dim "),
                (lambda: halyard.Rope(16, 8, "a"), TypeError, "halyard.Rope: rope_theta must be a real number, not 'a'"),
                (lambda: rope.apply(HEADS, np.full(5, 9)), ValueError, "halyard_rope_apply: positions")):
            with self.subTest(text):
                self.assertRaisesRegex(error, f"^({text})", call)
        self.assertEqual(len(cache), 0)

    def test_types(self):
        for kind in (halyard.Weights, halyard.Rope, halyard.KVCache):
            self.assertRaises(TypeError, type, "Derived", (kind,), {})
            self.assertRaises(TypeError, kind)
            self.assertRaises(TypeError, object.__new__, kind)
        self.assertRaises(TypeError, pickle.dumps, halyard.Rope(16, 8))


class Changing(DlpackArray):
    """An array that does something else when a call asks for its memory."""

    def __init__(self, memory, work):
        super().__init__(memory, FLOAT, (1, 0))
        self.work = work

    def __dlpack__(self, **options):
        self.work()
        return super().__dlpack__(**options)


class Uses(unittest.TestCase):
    def test_changes_during_other_calls(self):
        weights, cache = halyard.Weights(MATRIX), halyard.KVCache(1, 2, 16, 16)

        def refused(text, function, *given):
            return lambda: self.assertRaisesRegex(RuntimeError, f"^halyard.{text} by another call$", function, *given)
        bias = Changing(np.zeros(21, np.float32), refused("Weights.update: self is in use", weights.update, GATE))
        halyard.linear(X, weights, bias)
        matrix = Changing(MATRIX, refused("linear: weights is being changed", halyard.linear, X, weights))
        weights.update(matrix)
        k = Changing(HEADS, refused("KVCache.truncate: self is being changed", cache.truncate, 0))
        cache.append(k, HEADS)
        self.assertEqual((bias.exports, matrix.exports, k.exports), (1, 1, 1))
        # They are free again.
        weights.update(GATE)
        self.assertEqual(halyard.linear(X, weights).tobytes(), halyard.linear(X, halyard.Weights(GATE)).tobytes())
        cache.truncate(4)
        self.assertEqual(len(cache), 4)

    def test_weights_that_go_while_calls_use_them(self):
        expected, place, wrong = halyard.linear(X, halyard.Weights(MATRIX)).tobytes(), [halyard.Weights(MATRIX)], []

        def work():
            for _ in range(2000):
                if halyard.linear(X, place[0]).tobytes() != expected:
                    wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            place[0] = halyard.Weights(MATRIX)
        for each in threads:
            each.join()
        self.assertFalse(wrong)

    def test_others_run_during_packing(self):
        """The GIL is released: a thread that counts goes on while matrices are packed."""
        matrix, counted, done = np.ones((2048, 2048), np.float32), [0], threading.Event()
        halyard.set_num_threads(1)

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        thread = threading.Thread(target=count)
        try:
            thread.start()
            before = counted[0]
            for _ in range(10):
                halyard.Weights(matrix, bits=4, group=32)
            after = counted[0]
        finally:
            done.set()
            sys.setswitchinterval(interval)
            thread.join()
            halyard.set_num_threads(0)
        self.assertGreater(after, before)

    def test_many_leave_nothing(self):
        """Calls and objects, those that are refused too."""
        x, bias, data = X.copy(), np.ones(21, np.float32), halyard.Weights(MATRIX).to_bytes()
        weights, cache, rope = halyard.Weights(MATRIX), halyard.KVCache(1, 2, 16, 16), halyard.Rope(16, 16)
        sequences = range(100)  # where there is no batch
        out, heads, given = np.empty((3, 21), np.float32), np.empty_like(HEADS), [x, bias, weights, cache, rope, data]

        def calls(count):
            for _ in range(count):
                halyard.linear(x, weights, bias, activation="silu", out=out)
                halyard.attention_cached(HEADS, HEADS, HEADS, cache, 0, [0], rope=rope, out=heads)
                cache.truncate(0)
                halyard.Weights.from_bytes(data)
                halyard.Rope(16, 16)
                halyard.KVCache(1, 2, 16, 16)
                try:
                    cache.append(HEADS, HEADS, 0, sequences)
                except ValueError:
                    pass
                for bad in ({"activation": "none"}, {"bias": x}, {"weights": rope}, {"nothing": 1}):
                    try:
                        halyard.linear(x, **{"weights": weights, **bad})
                    except (ValueError, TypeError):
                        pass
        calls(500)
        gc.collect()
        counts, before = [sys.getrefcount(each) for each in given], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        types = [sys.getrefcount(each) for each in (halyard.Weights, halyard.Rope, halyard.KVCache)]
        calls(10000)  # of eleven each
        self.assertEqual([sys.getrefcount(each) for each in given], counts)
        self.assertEqual([sys.getrefcount(each) for each in (halyard.Weights, halyard.Rope, halyard.KVCache)], types)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 512)  # KiB


if __name__ == "__main__":
    unittest.main()

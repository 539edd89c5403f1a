"""Packed weights, linear layers and feed-forward networks against float64, for every option and dtype."""
import unittest

import halyard
import layer_references as layers
import numpy as np
import references
from typed_arrays import Numbers, within

SIZES = [((1,), 16, 16), ((3,), 37, 21), ((2, 5), 600, 33)]  # leading axes, inputs, outputs


def every_dtype():
    return [Numbers(dtype) for dtype in ("f32", "f16", "bf16")]


class Linear(unittest.TestCase):
    def check(self, numbers, x, weights, expected, **options):
        out = numbers.empty(expected[0].shape)
        self.assertIs(halyard.linear(x, weights, out=out, **options), out)
        self.assertTrue(within(numbers.exact(out), *expected, numbers.dtype), (numbers.dtype, expected[0].shape, list(options)))
        if numbers.dtype != "bf16":
            again = halyard.linear(x, weights, **options)
            self.assertEqual((again.dtype, again.shape, again.tobytes()), (x.dtype, out.shape, out.tobytes()))

    def test_plain(self):
        for numbers in every_dtype():
            for leading, inputs, outputs in SIZES:
                x, matrix = numbers.array((*leading, inputs)), numbers.array((outputs, inputs), -0.1, 0.1)
                exact = layers.linear(layers.plain(numbers.exact(x)), numbers.exact(matrix))
                self.check(numbers, x, halyard.Weights(matrix), exact)
                turned = numbers.of(np.ascontiguousarray(numbers.exact(matrix).T.astype(np.float32)))
                self.check(numbers, x, halyard.Weights(turned, layout="in_out"), exact)

    def test_activations_and_bias(self):
        for numbers in every_dtype():
            x, matrix, bias = numbers.array((3, 130)), numbers.array((21, 130), -0.1, 0.1), numbers.array((21,))
            residual, weights = numbers.array((3, 21)), halyard.Weights(matrix)
            given = (layers.plain(numbers.exact(x)), numbers.exact(matrix))
            for name in ("identity", *references.ACTIVATIONS):
                exact = layers.linear(*given, bias=numbers.exact(bias), activation=name, residual=numbers.exact(residual))
                self.check(numbers, x, weights, exact, bias=bias, activation=name, residual=residual)

    def test_gated(self):
        for numbers in every_dtype():
            x, matrix, gate = numbers.array((2, 3, 70)), numbers.array((21, 70), -0.2, 0.2), numbers.array((21, 70), -0.2, 0.2)
            bias, bias_up, weights = numbers.array((21,)), numbers.array((21,)), halyard.Weights(matrix, gate)
            self.assertTrue(weights.gated)
            given = (layers.plain(numbers.exact(x)), numbers.exact(matrix), numbers.exact(gate))
            for name in ("identity", "silu", "gelu", "sigmoid"):
                exact = layers.linear(*given, bias=numbers.exact(bias), bias_up=numbers.exact(bias_up), activation=name)
                self.check(numbers, x, weights, exact, bias=bias, bias_up=bias_up, activation=name)

    def test_swish_with_beta(self):
        numbers = Numbers("f32")
        x, matrix = numbers.array((3, 40)), numbers.array((8, 40), -0.2, 0.2)
        weights = halyard.Weights(matrix)
        swish = halyard.swish(halyard.linear(x, weights), 1.5)
        self.assertEqual(halyard.linear(x, weights, activation="swish", beta=1.5).tobytes(), swish.tobytes())
        self.assertNotEqual(halyard.linear(x, weights, activation="swish").tobytes(), swish.tobytes())

    def test_scales_and_means_of_rows(self):
        numbers = Numbers("f32")
        x, matrix, scale, mean = numbers.array((4, 90)), numbers.array((21, 90), -0.1, 0.1), numbers.array((4,)), numbers.array((4,))
        for options in ({"row_scale": scale}, {"row_scale": scale, "row_mean": mean}):
            exact = {name: each.astype(np.float64) for name, each in options.items()}
            expected = layers.linear(layers.plain(x.astype(np.float64)), matrix.astype(np.float64), **exact)
            self.check(numbers, x, halyard.Weights(matrix), expected, **options)

    def test_sums(self):
        """Sums before the activation are written too."""
        numbers = Numbers("f32")
        x, matrix, gate, bias = (numbers.array(each, -1, 1) for each in ((3, 40), (21, 40), (21, 40), (21,)))
        sums, sums_up = np.empty((3, 21), np.float32), np.empty((3, 21), np.float32)
        y = halyard.linear(x, halyard.Weights(matrix, gate), bias, activation="relu", sums=sums, sums_up=sums_up)
        self.assertEqual(sums.tobytes(), halyard.linear(x, halyard.Weights(gate), bias).tobytes())
        self.assertEqual(sums_up.tobytes(), halyard.linear(x, halyard.Weights(matrix)).tobytes())
        self.assertEqual(y.tobytes(), (np.maximum(sums, 0) * sums_up).tobytes())

    def test_residual_in_place(self):
        numbers = Numbers("f32")
        x, matrix, y = numbers.array((3, 40)), numbers.array((21, 40)), numbers.array((3, 21))
        expected = halyard.linear(x, halyard.Weights(matrix), residual=y)
        self.assertIs(halyard.linear(x, halyard.Weights(matrix), residual=y, out=y), y)
        self.assertEqual(y.tobytes(), expected.tobytes())

    def test_folded_norm(self):
        """The weight of a norm in the matrix: products are those with the matrix multiplied by it."""
        numbers = Numbers("f32")
        x, matrix = numbers.array((3, 40)), numbers.array((21, 40))
        weight, bias = np.float32(2.0) ** numbers.random.integers(-2, 2, 40).astype(np.float32), numbers.array((40,))
        folded = halyard.Weights(matrix, norm_weight=weight, norm_bias=bias)
        self.assertTrue(folded.norm_folded)
        exact = layers.linear(layers.plain(x.astype(np.float64)), (matrix * weight).astype(np.float64))
        shift = layers.product(layers.plain(bias[None].astype(np.float64)), matrix.astype(np.float64))
        self.check(numbers, x, folded, layers.add(exact, shift))
        offset = halyard.Weights(matrix, norm_weight=weight - 1, norm_unit_offset=True)
        self.check(numbers, x, offset, exact)


class Quantized(unittest.TestCase):
    def test_numbers(self):
        matrix = Numbers("f32").array((21, 512))
        for bits in (8, 4):
            for group in (16, 32, 256):
                for asymmetric in (False, True):
                    weights = halyard.Weights(matrix, bits=bits, group=group, asymmetric=asymmetric)
                    self.assertEqual((weights.quantization["bits"], weights.quantization["group"]), (bits, group))
                    exact = layers.quantize(matrix, bits, group, asymmetric)
                    self.assertEqual(np.abs(weights.dequantize() - exact).max(), 0, (bits, group, asymmetric))

    def test_products(self):
        for numbers in every_dtype():
            for bits, group in ((8, 32), (4, 64), (4, 0)):
                x, matrix = numbers.array((5, 192)), Numbers("f32").array((21, 192), -0.1, 0.1)
                weights = halyard.Weights(matrix, bits=bits, group=group)
                exact = layers.quantized_product(numbers.exact(x), weights.dequantize().astype(np.float64), group)
                out = halyard.linear(x, weights, out=numbers.empty((5, 21)))
                self.assertTrue(within(numbers.exact(out), *exact, numbers.dtype), (numbers.dtype, bits, group))

    def test_products_in_8_bits(self):
        for numbers in every_dtype():
            x, matrix = numbers.array((5, 192)), Numbers("f32").array((21, 192), -0.1, 0.1)
            for bits, group in ((8, 32), (4, 64), (8, 16), (4, 0)):
                weights = halyard.Weights(matrix, bits=bits, group=group)
                usual, out = (halyard.linear(x, weights, out=numbers.empty((5, 21))) for _ in range(2))
                with halyard.products("int8"):
                    halyard.linear(x, weights, out=out)
                exact = layers.product_in_8_bits(numbers.exact(x), weights.dequantize().astype(np.float64), group)
                self.assertTrue(within(numbers.exact(out), *exact, numbers.dtype), (numbers.dtype, bits, group))
                self.assertTrue((numbers.exact(out) != numbers.exact(usual)).any(), (numbers.dtype, bits, group))
            plain = halyard.Weights(matrix)
            usual, out = (halyard.linear(x, plain, out=numbers.empty((5, 21))) for _ in range(2))
            with halyard.products("int8"):
                halyard.linear(x, plain, out=out)
            self.assertTrue((numbers.exact(out) == numbers.exact(usual)).all(), numbers.dtype)

    def test_scales_of_other_dtypes(self):
        matrix = Numbers("f32").array((16, 64))
        for dtype in ("f32", "f16", "bf16"):
            self.assertEqual(halyard.Weights(matrix, bits=8, group=32, scale_dtype=dtype).quantization["scale_dtype"], dtype)

    def test_gated(self):
        matrix, gate = Numbers("f32").array((21, 64)), Numbers("f32", 2).array((21, 64))
        pair = halyard.Weights(matrix, gate, bits=4, group=32).dequantize()
        for numbers, each in zip(pair, (matrix, gate)):
            self.assertEqual(numbers.tobytes(), halyard.Weights(each, bits=4, group=32).dequantize().tobytes())

    def test_codes(self):
        """int8 codes with a scale for each output, and those of a GGUF file, in blocks of a scale and 32 codes."""
        random = np.random.default_rng(3)
        codes = random.integers(-127, 128, (21, 64), dtype=np.int8)
        scales = random.uniform(0.1, 1, (21, 1)).astype(np.float32)
        weights = halyard.Weights.from_codes(codes, "int8", 21, 64, scales=scales)
        self.assertEqual(weights.dequantize().tobytes(), (scales * codes).tobytes())
        halves = random.uniform(0.1, 1, (21, 2, 1)).astype(np.float16)
        blocks = np.concatenate([halves.view(np.uint8).reshape(21, 2, 2), codes.view(np.uint8).reshape(21, 2, 32)], -1).reshape(21, -1)
        weights = halyard.Weights.from_codes(blocks, "q8_0", outputs=21, inputs=64)
        exact = halves.astype(np.float32) * codes.reshape(21, 2, 32)
        self.assertEqual(weights.dequantize().tobytes(), exact.reshape(21, 64).tobytes())


class FeedForward(unittest.TestCase):
    def check(self, numbers, gated, norm, **options):
        d_model, d_ff = 40, 56
        x, up, down = numbers.array((2, 3, d_model)), numbers.array((d_ff, d_model), -0.2, 0.2), numbers.array((d_model, d_ff), -0.2, 0.2)
        gate = numbers.array((d_ff, d_model), -0.2, 0.2) if gated else None
        arrays = {"bias": (d_ff,), "bias_down": (d_model,), **({"bias_up": (d_ff,)} if gated else {})}
        arrays = {name: numbers.array(shape) for name, shape in arrays.items()}
        exact = {name: numbers.exact(each) for name, each in arrays.items()}
        of_norm = {}
        if norm != "none":
            of_norm = {"norm_weight": numbers.array((d_model,)), **({"norm_bias": numbers.array((d_model,))} if norm == "layer" else {})}
            vectors = [numbers.exact(each) for each in of_norm.values()]
        function = {"none": None, "rms": lambda rows: references.rms_norm(rows, *vectors, eps=1e-6),
                    "layer": lambda rows: references.layer_norm(rows, *vectors, eps=1e-6)}[norm]
        matrices = [each if each is None else numbers.exact(each) for each in (up, down, gate)]
        expected = layers.ffn(numbers.exact(x), *matrices, function, numbers.dtype == "bf16", activation="silu", **exact, **options)
        out = halyard.ffn(x, halyard.Weights(up, gate), halyard.Weights(down), activation="silu", norm=norm, **arrays, **of_norm,
                          **options, out=numbers.empty(x.shape))
        self.assertTrue(within(numbers.exact(out), *expected, numbers.dtype), (numbers.dtype, gated, norm))
        return out

    def test_networks(self):
        for numbers in every_dtype():
            for gated in (False, True):
                for norm in ("none", "rms", "layer"):
                    for residual in (False, True):
                        self.check(numbers, gated, norm, residual=residual)

    def test_deferred_norm(self):
        """With weights that are powers of two folding rounds nothing, so the parts give the same sums."""
        numbers = Numbers("f32")
        x, up, down = numbers.array((3, 40)), numbers.array((56, 40)), halyard.Weights(numbers.array((40, 56)))
        weight = np.float32(2.0) ** numbers.random.integers(-2, 2, 40).astype(np.float32)
        folded = halyard.Weights(up, norm_weight=weight)
        y = halyard.ffn(x, folded, down, norm="rms", deferred_norm=True, activation="relu")
        scale = (1 / np.sqrt((x.astype(np.float64)**2).mean(-1) + float(np.float32(1e-6))))
        first = layers.linear(layers.plain(x.astype(np.float64)), (up * weight).astype(np.float64))
        # The scale errs as a norm does.
        hidden = layers.rounded(scale[:, None] * first[0], scale[:, None] * first[1] + np.abs(scale[:, None] * first[0]) * 11 * references.U)
        matrix = Numbers("f32")
        _, _, again = matrix.array((3, 40)), matrix.array((56, 40)), matrix.array((40, 56))
        exact = layers.linear(layers.activate("relu", hidden), again.astype(np.float64))
        self.assertTrue(within(y, *exact, "f32"))

    def test_sums(self):
        numbers = Numbers("f32")
        x, up, down = numbers.array((3, 40)), halyard.Weights(numbers.array((56, 40))), halyard.Weights(numbers.array((40, 56)))
        sums = np.empty((3, 56), np.float32)
        halyard.ffn(x, up, down, sums=sums)
        self.assertEqual(sums.tobytes(), halyard.linear(x, up).tobytes())


if __name__ == "__main__":
    unittest.main()

"""Every function of the package against float64, in each dtype, on views and in place."""
import inspect
import unittest

import halyard
import numpy as np
import references
from dlpack_array import DlpackArray, to_bf16
from typed_arrays import Numbers, within

# What activations and softmax may be off by before they are stored in 16 bits, relative to the result.
SHORT = {"f16": 2.0**-16, "bf16": 2.0**-13}
SHAPES = [(1,), (37,), (3, 64), (2, 5, 100), (2, 1, 3, 257)]
# What has tests in files of their own, or is no function of arrays.
OTHERS = {"info", "max_isa", "products", "set_num_threads", "get_num_threads", "Weights", "linear", "ffn", "Rope",
          "KVCache", "attention", "attention_cached", "Block", "Stack", "Model", "TokenStream", "linear_backward",
          "ffn_backward", "attention_backward", "cross_entropy", "mean_loss", "embedding_backward", "gradient_norm",
          "sgd_step", "adamw_step"}


class Functions(unittest.TestCase):
    def check(self, function, given, expected, numbers, relative=0.0, **options):
        """`expected`: pairs of exact values and errors, in the order of the outputs."""
        outputs = [each.name for each in inspect.signature(function).parameters.values()
                   if each.kind == each.KEYWORD_ONLY and each.default is None and each.name not in options][:len(expected)]
        self.assertEqual(len(outputs), len(expected))
        made = {name: numbers.empty(exact.shape) for name, (exact, _) in zip(outputs, expected)}
        result = function(*given, **options, **made)
        result = result if isinstance(result, tuple) else (result,)
        for name, got, (exact, error) in zip(outputs, result, expected):
            self.assertIs(got, made[name])
            error = error + (relative * np.abs(exact) if numbers.dtype != "f32" else 0)
            self.assertTrue(within(numbers.exact(got), exact, error, numbers.dtype), (function.__name__, numbers.dtype, exact.shape))
        if numbers.dtype != "bf16":  # new ones
            again = function(*given, **options)
            for got, other in zip(again if isinstance(again, tuple) else (again,), result):
                self.assertEqual((type(got), got.dtype, got.shape), (np.ndarray, other.dtype, other.shape))
                self.assertEqual(got.tobytes(), other.tobytes())

    def cases(self):
        for dtype in ("f32", "f16", "bf16"):
            numbers = Numbers(dtype)
            for shape in SHAPES:
                yield numbers, shape

    def activation(self, name, **options):
        for numbers, shape in self.cases():
            x, dy = numbers.array(shape), numbers.array(shape)
            value, error, slope, slope_error = references.activation(name, numbers.exact(x), **options)
            short = SHORT.get(numbers.dtype, 0)
            self.check(getattr(halyard, name), [x], [(value, error)], numbers, short, **options)
            self.check(getattr(halyard, f"{name}_derivative"), [x], [(slope, slope_error)], numbers, **options)
            self.check(getattr(halyard, f"{name}_backward"), [x, dy],
                       [references.product(slope, slope_error, numbers.exact(dy))], numbers, **options)

    def gated(self, name, **options):
        for numbers, shape in self.cases():
            gate, up, dy = (numbers.array(shape) for _ in range(3))
            exact = [numbers.exact(each) for each in (gate, up, dy)]
            short = SHORT.get(numbers.dtype, 0)
            expected = references.gated(name, *exact[:2], **options)
            gradients = references.gated_backward(name, *exact, **options)
            self.check(getattr(halyard, name), [gate, up], [expected], numbers, short, **options)
            self.check(getattr(halyard, f"{name}_backward"), [gate, up, dy], gradients, numbers, **options)
            for layout in ("gate_up", "up_gate", "interleaved"):
                def join(one, other):
                    if layout == "interleaved":
                        return np.stack([one, other], -1).reshape(*shape[:-1], -1)
                    return np.concatenate([one, other] if layout == "gate_up" else [other, one], -1)
                x = numbers.of(join(*exact[:2]).astype(np.float32))
                self.check(getattr(halyard, f"{name}_packed"), [x], [expected], numbers, short, layout=layout, **options)
                joined = tuple(join(*each) for each in zip(*gradients))
                self.check(getattr(halyard, f"{name}_packed_backward"), [x, dy], [joined], numbers, layout=layout, **options)

    def test_add(self):
        for numbers, shape in self.cases():
            a, b = numbers.array(shape), numbers.array(shape)
            exact = numbers.exact(a) + numbers.exact(b)
            self.check(halyard.add, [a, b], [(exact, references.U * np.abs(exact))], numbers)

    def test_cast(self):
        x = np.random.default_rng(2).uniform(-4, 4, (3, 37)).astype(np.float32)
        self.assertEqual(halyard.cast(x, "float16").tobytes(), x.astype(np.float16).tobytes())
        self.assertEqual(halyard.cast(x.astype(np.float16), np.float32).tobytes(), x.astype(np.float16).astype(np.float32).tobytes())
        out = DlpackArray(np.zeros(x.shape, np.uint16))
        self.assertIs(halyard.cast(x, out=out), out)
        self.assertEqual(out.memory.tobytes(), to_bf16(x).tobytes())
        self.assertEqual(halyard.cast(out, out=np.empty_like(x)).tobytes(), out.numbers().tobytes())

    def test_softmax(self):
        for numbers, shape in self.cases():
            for scale in (1.0, 0.125):
                x, dy = numbers.array(shape), numbers.array(shape)
                expected = references.softmax(numbers.exact(x), scale)
                short = 2.0**-16 if numbers.dtype != "f32" else 0
                self.check(halyard.softmax, [x], [expected], numbers, short, scale=scale)
                y = numbers.of(expected[0].astype(np.float32))
                self.check(halyard.softmax_backward, [y, dy],
                           [references.softmax_backward(numbers.exact(y), numbers.exact(dy), scale)], numbers, scale=scale)

    def test_rms_norms(self):
        for numbers, shape in self.cases():
            x, weight = numbers.array(shape), numbers.array(shape[-1:])
            for given in ([x], [x, weight]):
                exact = [numbers.exact(each) for each in given]
                for options in ({}, {"eps": 0.5}, {"eps_outside_root": True, "eps": 0.25}, {"unit_offset": True}):
                    self.check(halyard.rms_norm, given, [references.rms_norm(*exact, **options)], numbers, **options)
                    self.check(halyard.partial_rms_norm, given, [references.rms_norm(*exact, p=0.3, **options)], numbers,
                               p=0.3, **options)

    def test_layer_norm(self):
        for numbers, shape in self.cases():
            x, weight, bias = numbers.array(shape), numbers.array(shape[-1:]), numbers.array(shape[-1:])
            for given in ([x], [x, weight], [x, None, bias], [x, weight, bias]):
                exact = [each if each is None else numbers.exact(each) for each in given]
                self.check(halyard.layer_norm, given, [references.layer_norm(*exact)], numbers)
                self.check(halyard.layer_norm, given, [references.layer_norm(*exact, eps=0.5)], numbers, eps=0.5)
            # Vectors may be f32 beside any x.
            wide = Numbers("f32", 5).array(shape[-1:])
            self.check(halyard.layer_norm, [x, wide, bias], [references.layer_norm(exact[0], wide.astype(np.float64), exact[2])], numbers)

    def gradient(self, function, reference, vectors, **options):
        """dx by check(), with `vectors` sums over tokens, which are new or added to what is there."""
        for numbers, shape in self.cases():
            x, dy, weight, residual = (numbers.array(each) for each in (shape, shape, shape[-1:], shape))
            exact = [numbers.exact(each) for each in (x, weight, dy)]
            dx, *sums = reference(*exact, dresidual_out=numbers.exact(residual), **options)
            made = {name: np.full(shape[-1:], np.nan, np.float32) for name in vectors}
            self.check(function, [x, weight, dy], [dx], numbers, dresidual_out=residual, **made, **options)
            for name, (value, error) in zip(vectors, sums):
                self.assertTrue(within(made[name], value, error, "f32"), (function.__name__, name, numbers.dtype, shape))
            added = {name: np.full(shape[-1:], 2, np.float32) for name in vectors}
            function(x, weight, dy, **added, accumulate=True, out=numbers.empty(shape), **options)
            for name, (value, error) in zip(vectors, sums):
                # What is there is one more term, which each of the sums of at most 32 rows may hold.
                error = error + 34 * references.U * 2
                self.assertTrue(within(added[name], value + 2, error, "f32"), (function.__name__, name))
            self.check(function, [x, None, dy], [reference(exact[0], None, exact[2], **options)[0]], numbers, dresidual_out=None, **options)
        self.assertRaisesRegex(TypeError, "weight is missing", function, x)

    def test_rms_norm_gradients(self):
        for options in ({}, {"eps": 0.25, "eps_outside_root": True}, {"unit_offset": True}):
            self.gradient(halyard.rms_norm_backward, references.rms_norm_backward, ["dweight"], **options)
            self.gradient(halyard.partial_rms_norm_backward, references.rms_norm_backward, ["dweight"], p=0.3, **options)

    def test_layer_norm_gradients(self):
        self.gradient(halyard.layer_norm_backward, references.layer_norm_backward, ["dweight", "dbias"])

    def test_add_and_norm(self):
        for numbers, shape in self.cases():
            x, residual, weight = numbers.array(shape), numbers.array(shape), numbers.array(shape[-1:])
            total = halyard.add(x, residual, out=numbers.empty(shape))
            exact = numbers.exact(total)
            for function, norm, options in ((halyard.add_rms_norm, references.rms_norm, {"unit_offset": True}),
                                            (halyard.add_layer_norm, references.layer_norm, {"eps": 0.5})):
                expected = norm(exact, numbers.exact(weight), **options)
                # What is added has no error of its own: its bits are those of add().
                self.check(function, [x, residual, weight], [(exact, 0 * exact), expected], numbers, **options)

    def test_views_of_any_strides(self):
        base = np.random.default_rng(3).uniform(-4, 4, (6, 9, 70)).astype(np.float32)
        for view in (base[1:4, ::2, 3:40], base[:, :, 5:69].transpose(1, 0, 2), np.broadcast_to(base[0, 0], (3, 70)), base[:, 3, :1]):
            out = np.zeros((*view.shape[:-1], view.shape[-1] + 3), np.float32)
            halyard.rms_norm(view, out=out[..., 1:-2])
            self.assertEqual(out[..., 1:-2].tobytes(), halyard.rms_norm(np.ascontiguousarray(view)).tobytes())
            out[..., 1:-2] = 0
            self.assertFalse(out.any())  # nothing beside it was written

    def test_in_place(self):
        x = np.random.default_rng(4).uniform(-4, 4, (3, 70)).astype(np.float32)
        expected = halyard.gelu(x)
        self.assertIs(halyard.gelu(x, out=x), x)
        self.assertEqual(x.tobytes(), expected.tobytes())

    def test_every_function_has_a_test(self):
        tested = {name[5:] for name in dir(self) if name.startswith("test_")}
        for name in references.ACTIVATIONS.keys() | {"swish"}:
            tested |= {name, f"{name}_derivative", f"{name}_backward"}
        for name in references.GATES:
            tested |= {name, f"{name}_packed", f"{name}_backward", f"{name}_packed_backward"}
        tested |= {"softmax_backward", "add_rms_norm", "add_layer_norm", "layer_norm_backward"}
        tested |= {"rms_norm", "partial_rms_norm", "rms_norm_backward", "partial_rms_norm_backward"}
        self.assertEqual(set(halyard.__all__) - OTHERS - tested, set())


def _add_tests():
    for name in references.ACTIVATIONS:
        setattr(Functions, f"test_{name}", lambda self, name=name: self.activation(name))
    for name in references.GATES:
        setattr(Functions, f"test_{name}", lambda self, name=name: self.gated(name))
    for name, test in (("swish", Functions.activation), ("swiglu", Functions.gated)):
        setattr(Functions, f"test_{name}_with_beta", lambda self, name=name, test=test: test(self, name, beta=1.5))


_add_tests()

if __name__ == "__main__":
    unittest.main()

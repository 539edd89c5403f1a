"""Every function of the package against float64, in each dtype, on views and in place."""
import inspect
import unittest

import halyard
import numpy as np
import references
from dlpack_array import DlpackArray, to_bf16

HALF_SPACING = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}  # relative to a power of two, and at least
# What activations and softmax may be off by before they are stored in 16 bits, relative to the result.
SHORT = {"f16": 2.0**-16, "bf16": 2.0**-13}
SHAPES = [(1,), (37,), (3, 64), (2, 5, 100), (2, 1, 3, 257)]
OTHERS = {"info", "set_num_threads", "get_num_threads"}


def within(result, exact, error, dtype):
    """Whether every number is as near as it may be, its storage being rounded once."""
    if dtype != "f32":
        relative, least = HALF_SPACING[dtype]
        _, exponent = np.frexp(np.abs(exact) + error)
        error = error + np.maximum(np.ldexp(relative, exponent - 1), least)
    return bool(np.all(np.abs(result - exact) <= error))


class Numbers:
    """Arrays of a dtype, and what is in them in float64."""

    def __init__(self, dtype, seed=1):
        self.dtype, self.random = dtype, np.random.default_rng(seed)

    def array(self, shape, low=-4.0, high=4.0):
        numbers = self.random.uniform(low, high, shape).astype(np.float32)
        return self.of(numbers)

    def of(self, numbers):
        if self.dtype == "bf16":
            return DlpackArray(to_bf16(numbers))
        return numbers.astype({"f32": np.float32, "f16": np.float16}[self.dtype])

    def exact(self, array):
        return (array.numbers() if self.dtype == "bf16" else array).astype(np.float64)

    def empty(self, shape):
        return self.of(np.full(shape, np.nan, np.float32))


class Functions(unittest.TestCase):
    def check(self, function, given, expected, numbers, relative=0.0, **options):
        """`expected`: pairs of exact values and errors, in the order of the outputs."""
        outputs = [each.name for each in inspect.signature(function).parameters.values()
                   if each.kind == each.KEYWORD_ONLY and each.default is None]
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
        tested |= {"softmax_backward", "rms_norm", "partial_rms_norm", "add_rms_norm", "add_layer_norm"}
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

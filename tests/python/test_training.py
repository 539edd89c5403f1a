"""Gradients of linear layers, networks and attention, losses and optimizers against float64, what is refused, and a network that learns."""
import math
import unittest

import halyard
import layer_references as layers
import numpy as np
import references
import training_references as training
from dlpack_array import FLOAT, DlpackArray
from test_attention import visible
from typed_arrays import Numbers, within


def exact(*arrays):
    return [each.astype(np.float64) for each in arrays]


def nans(*shapes):
    return [np.full(shape, np.nan, np.float32) for shape in shapes]


class Training(unittest.TestCase):
    def near(self, result, pair, *where):
        self.assertTrue(within(result, *pair, "f32"), where)


class LinearBackward(Training):
    SIZES = [((1,), 16, 16), ((3, 11), 37, 21), ((700,), 33, 40), ((5,), 40, 700)]  # leading axes, inputs, outputs

    def check(self, leading, inputs, outputs, activation, gated):
        numbers, rows = Numbers("f32"), math.prod(leading)
        x, dy = numbers.array((*leading, inputs)), numbers.array((*leading, outputs))
        up, gate = (numbers.array((outputs, inputs), -0.2, 0.2) for _ in range(2))
        weights = halyard.Weights(up, gate if gated else None)
        given = dict(zip(("sums", "sums_up"), nans(*[dy.shape] * (1 + gated))))
        halyard.linear(x, weights, activation=activation, **given)
        dz = training.gradient_of_sums(*exact(dy.reshape(rows, -1)), activation, *exact(*(each.reshape(rows, -1) for each in given.values())))
        matrices = exact(*([gate, up] if gated else [up]))
        dx, dweights, dbiases = training.linear_backward(*exact(x.reshape(rows, -1)), matrices, dz)
        names = ["dweight", "dweight_up"][:1 + gated], ["dbias", "dbias_up"][:1 + gated]
        made = {"dx": nans(x.shape)[0], **{name: nans(up.shape)[0] for name in names[0]}, **{name: nans((outputs,))[0] for name in names[1]}}
        options = {"activation": activation, **(given if activation != "identity" or gated else {})}
        self.assertIsNone(halyard.linear_backward(x, weights, dy, **options, **made))
        self.near(made["dx"].reshape(rows, -1), dx, leading, activation)
        start = {name: numbers.array(each.shape) for name, each in made.items()}
        sums = {name: each.copy() for name, each in start.items()}
        halyard.linear_backward(x, weights, dy, **options, **sums, accumulate=True)
        self.assertEqual(sums["dx"].tobytes(), made["dx"].tobytes())
        for of, pairs, block in ((names[0], dweights, 512), (names[1], dbiases, 32)):
            for name, pair in zip(of, pairs):
                self.near(made[name], pair, name, leading, activation)
                more = training.added(pair, *exact(start[name]), min(rows, 32) + -(-rows // block))
                self.near(sums[name], more, name, leading, activation)
        turned = {name: nans((inputs, outputs))[0] for name in names[0]}
        halyard.linear_backward(x, weights, dy, **options, layout="in_out", **turned)
        for name in turned:
            self.assertEqual(np.ascontiguousarray(turned[name].T).tobytes(), made[name].tobytes())

    def test_activations(self):
        for size in self.SIZES:
            for activation in ("identity", *references.ACTIVATIONS):
                self.check(*size, activation, gated=False)

    def test_gated(self):
        for size in self.SIZES:
            for activation in ("identity", "relu", "silu", "gelu", "sigmoid"):
                self.check(*size, activation, gated=True)

    def test_calls_that_accumulate_make_one(self):
        """With rows cut at 512 they have the bits of one call."""
        numbers = Numbers("f32")
        x, dy, weights = numbers.array((1100, 9)), numbers.array((1100, 5)), halyard.Weights(numbers.array((5, 9)))
        whole, parts = np.empty((5, 9), np.float32), np.zeros((5, 9), np.float32)
        halyard.linear_backward(x, weights, dy, dweight=whole)
        for first in range(0, 1100, 512):
            rows = slice(first, first + 512)
            halyard.linear_backward(x[rows], weights, dy[rows], dweight=parts, accumulate=True)
        self.assertEqual(parts.tobytes(), whole.tobytes())

    def test_swish_with_beta(self):
        numbers = Numbers("f32")
        x, dy, weights, sums = numbers.array((3, 9)), numbers.array((3, 5)), halyard.Weights(numbers.array((5, 9))), numbers.array((3, 5))
        one, other = nans((3, 9), (3, 9))
        halyard.linear_backward(x, weights, dy, activation="swish", beta=1.5, sums=sums, dx=one)
        halyard.linear_backward(x, weights, halyard.swish_backward(sums, dy, 1.5), dx=other)
        self.assertEqual(one.tobytes(), other.tobytes())

    def test_refusals(self):
        numbers = Numbers("f32")
        x, dy, weights = numbers.array((3, 9)), numbers.array((3, 5)), halyard.Weights(numbers.array((5, 9)))
        quantized = halyard.Weights(numbers.array((8, 64)), bits=8, group=32)
        for error, message, call in (
                (ValueError, "halyard_linear_backward: options.sums is null", lambda: halyard.linear_backward(x, weights, dy, activation="relu")),
                (ValueError, "halyard_linear_backward: gradients.dweight ", lambda: halyard.linear_backward(x, weights, dy, dweight=x)),
                (ValueError, "halyard_linear_backward: gradients.dx ", lambda: halyard.linear_backward(x, weights, dy, dx=x)),
                (TypeError, "halyard.linear_backward: dy is missing", lambda: halyard.linear_backward(x, weights)),
                (TypeError, "halyard.linear_backward: has no argument 'row_scale'",
                 lambda: halyard.linear_backward(x, weights, dy, row_scale=x)),
                (TypeError, "halyard_linear_backward: ", lambda: halyard.linear_backward(*numbers_of(quantized, numbers)))):
            self.assertRaisesRegex(error, f"^{message}", call)


def numbers_of(weights, numbers):
    return numbers.array((3, weights.inputs)), weights, numbers.array((3, weights.outputs))


class FfnBackward(Training):
    """Each gradient has the bits of its own function, all of which are tested against float64."""

    def check(self, gated, norm, residual):
        numbers, d_model, d_ff = Numbers("f32"), 40, 56
        x, dy = numbers.array((2, 9, d_model)), numbers.array((2, 9, d_model))
        up, down = numbers.array((d_ff, d_model), -0.2, 0.2), halyard.Weights(numbers.array((d_model, d_ff), -0.2, 0.2))
        up = halyard.Weights(up, numbers.array((d_ff, d_model), -0.2, 0.2) if gated else None)
        weight, bias = numbers.array((d_model,)), numbers.array((d_model,))
        of_norm = {"none": {}, "rms": {"norm_weight": weight, "unit_offset": True}, "layer": {"norm_weight": weight, "norm_bias": bias}}[norm]
        options = {"activation": "silu", "norm": norm, "eps": 0.25, "residual": residual, **of_norm}
        sums = dict(zip(("sums", "sums_up"), nans(*[(2, 9, d_ff)] * (1 + gated))))
        halyard.ffn(x, up, down, **options, **sums)
        shapes = {"dx": x.shape, "dweight": (d_ff, d_model), "dweight_down": (d_model, d_ff), "dbias": (d_ff,), "dbias_down": (d_model,)}
        shapes.update({"dweight_up": (d_ff, d_model), "dbias_up": (d_ff,)} if gated else {})
        shapes.update({f"d{name}": (d_model,) for name in of_norm if name != "unit_offset"})
        made = dict(zip(shapes, nans(*shapes.values())))
        self.assertIsNone(halyard.ffn_backward(x, up, down, dy, **options, **sums, **made))
        expected = dict(zip(shapes, nans(*shapes.values())))
        self.parts(x, up, down, dy, options, sums, expected)
        for name in shapes:
            self.assertEqual(made[name].tobytes(), expected[name].tobytes(), (name, gated, norm, residual))
        before = {name: each.copy() for name, each in made.items()}
        halyard.ffn_backward(x, up, down, dy, **options, **sums, **made, accumulate=True)
        for name in shapes:
            expected = before[name] if name == "dx" else 2 * before[name]
            self.assertEqual(made[name].tobytes(), expected.tobytes(), (name, gated, norm, residual))

    def parts(self, x, up, down, dy, options, sums, into):
        """The layers and the norm, one after the other."""
        hidden = halyard.silu(sums["sums"]) if not up.gated else halyard.swiglu(sums["sums"], sums["sums_up"])
        dhidden = np.empty_like(hidden)
        halyard.linear_backward(hidden, down, dy, dx=dhidden, dweight=into["dweight_down"], dbias=into["dbias_down"])
        of_norm = [options.get("norm_weight")], {"eps": options["eps"]}
        if options["norm"] == "rms":
            of_norm[1]["unit_offset"] = True
        function = {"none": lambda x, *_, **__: x, "rms": halyard.rms_norm, "layer": halyard.layer_norm}[options["norm"]]
        shift = [options["norm_bias"]] if options["norm"] == "layer" else []
        normal = function(x, *of_norm[0], *shift, **of_norm[1])
        dnormal = np.empty_like(x)
        layer = {name: into[name] for name in ("dweight", "dweight_up", "dbias", "dbias_up") if name in into}
        halyard.linear_backward(normal, up, dhidden, activation="silu", **sums, dx=dnormal, **layer)
        if options["norm"] == "none":
            into["dx"][:] = halyard.add(dnormal, dy) if options["residual"] else dnormal
            return
        backward = {"rms": halyard.rms_norm_backward, "layer": halyard.layer_norm_backward}[options["norm"]]
        vectors = {name.replace("norm_", ""): into[name] for name in ("dnorm_weight", "dnorm_bias") if name in into}
        backward(x, *of_norm[0], dnormal, dresidual_out=dy if options["residual"] else None, out=into["dx"], **of_norm[1], **vectors)

    def test_networks(self):
        for gated in (False, True):
            for norm in ("none", "rms", "layer"):
                for residual in (False, True):
                    self.check(gated, norm, residual)

    def test_refusals(self):
        x, up, down = np.ones((3, 16), np.float32), *(halyard.Weights(np.ones((16, 16), np.float32)) for _ in range(2))
        self.assertRaisesRegex(ValueError, "^halyard_ffn_backward: options.sums is null", halyard.ffn_backward, x, up, down, x)
        sums = np.ones((3, 16), np.float32)
        self.assertRaisesRegex(ValueError, "^halyard_ffn_backward: gradients.dnorm_weight ", halyard.ffn_backward, x, up, down, x, sums=sums,
                               dnorm_weight=np.ones(16, np.float32))
        self.assertRaisesRegex(TypeError, "^halyard.ffn_backward: has no argument 'deferred_norm'", halyard.ffn_backward, x, up, down, x,
                               deferred_norm=True)


class AttentionBackward(Training):
    OPTIONS = ({}, {"causal": True}, {"causal": True, "sliding_window": 3}, {"sliding_window": 5}, {"scale": 0.5}, {"softcap": 2.0},
               {"causal": True, "softcap": 2.0})

    def test_gradients(self):
        numbers = Numbers("f32")
        for leading, queries, keys in (((), 5, 5), ((2,), 4, 9), ((), 140, 300)):
            for options in self.OPTIONS:
                q, dy = (numbers.array((*leading, queries, 4, 16), -1.5, 1.5) for _ in range(2))
                k, v = (numbers.array((*leading, keys, 2, 16), -1.5, 1.5) for _ in range(2))
                log_sum_exp, = nans((*leading, queries, 4))
                y = halyard.attention(q, k, v, log_sum_exp=log_sum_exp, **options)
                made = dict(zip(("dq", "dk", "dv"), nans(q.shape, k.shape, v.shape)))
                self.assertIsNone(halyard.attention_backward(q, k, v, y, log_sum_exp, dy, **options, **made))
                self.heads(exact(q, k, v, y, log_sum_exp, dy), options, made)
                alone = np.empty_like(k)
                halyard.attention_backward(q, k, v, y, log_sum_exp, dy, **options, dk=alone)
                self.assertEqual(alone.tobytes(), made["dk"].tobytes())

    def heads(self, given, options, made):
        """Two heads of q share one of k and v."""
        flat = [each.reshape(-1, *each.shape[-3:]) if index != 4 else each.reshape(-1, *each.shape[-2:]) for index, each in enumerate(given)]
        got = {name: each.reshape(-1, *each.shape[-3:]) for name, each in made.items()}
        seen = visible(flat[0].shape[1], flat[1].shape[1], options.get("causal", False), options.get("sliding_window", 0))
        scaling = {name: options[name] for name in ("scale", "softcap") if name in options}
        for batch, (q, k, v, y, sums, dy) in enumerate(zip(*flat)):
            for head in range(2):
                both = [training.attention_backward(q[:, of], k[:, head], v[:, head], y[:, of], sums[:, of], dy[:, of], seen, **scaling)
                        for of in (2 * head, 2 * head + 1)]
                for of, (dq, _, _) in zip((2 * head, 2 * head + 1), both):
                    self.near(got["dq"][batch, :, of], dq, "dq", options)
                for index, name in ((1, "dk"), (2, "dv")):
                    self.near(got[name][batch, :, head], layers.add(both[0][index], both[1][index]), name, options)

    def test_refusals(self):
        q, sums = np.ones((3, 2, 16), np.float32), np.ones((3, 2), np.float32)
        given = [q, q.copy(), q.copy(), q.copy(), sums, q.copy()]
        self.assertRaisesRegex(ValueError, "^halyard_attention_backward: dq ", halyard.attention_backward, *given, dq=q)
        self.assertRaisesRegex(ValueError, "^halyard_attention_backward: log_sum_exp ", halyard.attention_backward, *given[:4], q, q)
        self.assertRaisesRegex(TypeError, "^halyard.attention_backward: has no argument 'rope'", halyard.attention_backward, *given, rope=None)


class Losses(Training):
    def test_cross_entropy(self):
        numbers = Numbers("f32")
        for rows, classes in ((1, 1), (5, 7), (9, 300)):
            for spread in (4.0, 60.0):
                logits, targets = numbers.array((rows, classes), -spread, spread), numbers.random.integers(0, classes, rows)
                logits[0, targets[0]] = 2 * spread  # one that is nearly certain
                for options, scale in (({}, 1.0), ({"gradient_scale": 0.125}, 0.125)):
                    losses, dlogits = training.cross_entropy(*exact(logits), targets, scale)
                    for kind in (np.int32, np.int64):
                        gradient = np.empty_like(logits)
                        got = halyard.cross_entropy(logits, targets.astype(kind), dlogits=gradient, **options)
                        self.assertEqual((type(got), got.dtype, got.shape), (np.ndarray, np.float32, (rows,)))
                        self.near(got, losses, rows, classes)
                        self.near(gradient, dlogits, rows, classes)
                    self.assertEqual(halyard.cross_entropy(logits, targets).tobytes(), got.tobytes())
                    out, place = np.empty(rows, np.float32), logits.copy()
                    self.assertIs(halyard.cross_entropy(place, targets, losses=out, dlogits=place, **options), out)
                    self.assertEqual(place.tobytes(), gradient.tobytes())

    def test_shapes(self):
        logits = Numbers("f32").array((2, 3, 7))
        losses = halyard.cross_entropy(logits, np.zeros((2, 3), np.int64))
        self.assertEqual(losses.shape, (2, 3))
        alone = halyard.cross_entropy(logits[0, 0], np.zeros(1, np.int64))
        self.assertEqual((alone.shape, alone[0]), ((1,), losses[0, 0]))

    def test_rows_that_do_not_count(self):
        logits, targets = Numbers("f32").array((5, 7)), np.array([1, -100, 2, 0, -100])
        self.assertRaisesRegex(ValueError, "^halyard_cross_entropy: targets", halyard.cross_entropy, logits, targets)
        gradient = np.empty_like(logits)
        losses = halyard.cross_entropy(logits, targets, ignore_index=-100, dlogits=gradient)
        self.assertEqual([each == 0 for each in losses], [False, True, False, False, True])
        self.assertFalse(gradient[[1, 4]].any())
        mean, count = halyard.mean_loss(losses, targets, ignore_index=-100)
        self.assertEqual((type(mean), count), (float, 3))
        self.assertEqual(mean, (float(losses[0]) + float(losses[2]) + float(losses[3])) / 3)
        # 0 is an index as any other.
        mean, count = halyard.mean_loss(losses, np.array([1, 0, 2, 0, 0]), ignore_index=0)
        self.assertEqual((mean, count), ((float(losses[0]) + float(losses[2])) / 2, 2))
        mean, count = halyard.mean_loss(losses, np.full(5, 3), ignore_index=3)
        self.assertEqual((math.isnan(mean), count), (True, 0))
        self.assertEqual(halyard.mean_loss(losses, np.zeros(5, np.int32))[1], 5)

    def test_refusals(self):
        logits, targets = np.ones((2, 3), np.float32), np.zeros(2, np.int64)
        for error, message, call in (
                (ValueError, "halyard_cross_entropy: targets", lambda: halyard.cross_entropy(logits, np.array([0, 3]))),
                (ValueError, "halyard_cross_entropy: losses", lambda: halyard.cross_entropy(logits, targets, losses=logits)),
                (TypeError, "halyard_cross_entropy: targets", lambda: halyard.cross_entropy(logits, logits[:, 0])),
                (TypeError, "halyard_cross_entropy: logits", lambda: halyard.cross_entropy(logits.astype(np.float16), targets)),
                (TypeError, "halyard.cross_entropy: ignore_index must be an int", lambda: halyard.cross_entropy(logits, targets, ignore_index=1.5)),
                (ValueError, "halyard_mean_loss: targets", lambda: halyard.mean_loss(logits[0], np.zeros(2, np.int64))),
                (TypeError, "halyard.mean_loss: has no argument 'mean'", lambda: halyard.mean_loss(logits[:, 0], targets, mean=1))):
            self.assertRaisesRegex(error, f"^{message}", call)


class EmbeddingBackward(Training):
    def test_sums(self):
        numbers = Numbers("f32")
        for shape in ((70,), (3, 5)):
            ids, dy, start = numbers.random.integers(0, 9, shape), numbers.array((*shape, 37)), numbers.array((9, 37))
            for accumulate in (False, True):
                expected = start.copy() if accumulate else np.zeros_like(start)
                for row, at in zip(dy.reshape(-1, 37), ids.ravel()):
                    expected[at] += row
                table = start.copy()
                self.assertIsNone(halyard.embedding_backward(ids, dy, table, accumulate=accumulate))
                self.assertEqual(table.tobytes(), expected.tobytes())

    def test_refusals(self):
        ids, dy, table = np.array([0, 2]), np.ones((2, 5), np.float32), np.ones((2, 5), np.float32)
        self.assertRaisesRegex(ValueError, "^halyard_embedding_backward: input_ids", halyard.embedding_backward, ids, dy, table)
        self.assertRaisesRegex(TypeError, "^halyard.embedding_backward: dtable is missing$", halyard.embedding_backward, ids, dy)
        self.assertRaisesRegex(TypeError, "^halyard.embedding_backward: dtable is missing$", halyard.embedding_backward, ids, dy, None)
        table.flags.writeable = False
        self.assertRaisesRegex(ValueError, "^halyard.embedding_backward: dtable is read-only$", halyard.embedding_backward, ids % 2, dy, table)


class Optimizers(Training):
    SHAPES = [(1,), (37,), (3, 70), (2, 3, 33)]

    def test_sgd_step(self):
        numbers = Numbers("f32")
        for shape in self.SHAPES:
            for options in ({}, {"lr": 0.1, "weight_decay": 0.01, "gradient_scale": 0.5}, {"momentum": 0.9},
                            {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}):
                p, g = numbers.array(shape), numbers.array(shape)
                buffer = np.zeros_like(p) if "momentum" in options else None
                for _ in range(3):
                    expected = training.sgd_step(p, g, buffer, **options)
                    self.assertIsNone(halyard.sgd_step(p, g, momentum_buffer=buffer, **options))
                    for got, right in zip((p, buffer), expected):
                        self.assertEqual(got if got is None else got.tobytes(), right if right is None else right.tobytes())

    def test_adamw_step(self):
        numbers = Numbers("f32")
        for shape in self.SHAPES:
            for options in ({}, {"lr": 0.1, "weight_decay": 0.0}, {"decoupled": False, "weight_decay": 0.1},
                            {"beta1": 0.5, "beta2": 0.75, "eps": 1e-3, "gradient_scale": 0.25}):
                p, g = numbers.array(shape), numbers.array(shape)
                state = [p, np.zeros_like(p), np.zeros_like(p)]
                for step in (1, 2, 3, 1000):
                    expected = training.adamw_step(p, g, *state[1:], step, **options)
                    self.assertIsNone(halyard.adamw_step(p, g, *state[1:], step, **options))
                    for got, right in zip(state, expected):
                        self.assertEqual(got.tobytes(), right.tobytes(), (shape, options, step))

    def test_gradient_norm(self):
        numbers = Numbers("f32")
        arrays = [numbers.array(shape) for shape in ((1,), (3, 70), (20000,), (0, 3))]
        right = math.sqrt(math.fsum(float(each)**2 for array in arrays for each in array.ravel()))
        arrays[1] = DlpackArray(arrays[1], FLOAT)
        # 256 sums of 32 and what comes after are added in double, then there is a root.
        for given in (arrays, tuple(arrays)):
            norm = halyard.gradient_norm(given)
            self.assertEqual(type(norm), float)
            self.assertLessEqual(abs(norm - right), 272 * 2.0**-53 * right)
        many = [np.float32([3, 4])] * 1000
        self.assertLessEqual(abs(halyard.gradient_norm(many) - 5 * math.sqrt(1000)), 1010 * 2.0**-53 * 5 * math.sqrt(1000))
        self.assertEqual(halyard.gradient_norm([]), 0.0)
        self.assertTrue(math.isnan(halyard.gradient_norm([np.float32([np.nan, np.inf])])))

    def test_refusals(self):
        p, g = np.ones(5, np.float32), np.ones(5, np.float32)
        for error, message, call in (
                (ValueError, "halyard_sgd_step: momentum_buffer", lambda: halyard.sgd_step(p, g, momentum=0.5)),
                (ValueError, "halyard_sgd_step: parameter overlaps gradient", lambda: halyard.sgd_step(p, p)),
                (ValueError, "halyard_sgd_step: lr|halyard_sgd_step: options", lambda: halyard.sgd_step(p, g, lr=-1)),
                (TypeError, "halyard.sgd_step: lr must be a real number", lambda: halyard.sgd_step(p, g, lr="fast")),
                (ValueError, "halyard_adamw_step: step", lambda: halyard.adamw_step(p, g, p.copy(), p.copy(), 0)),
                (TypeError, "halyard.adamw_step: step is missing", lambda: halyard.adamw_step(p, g, p.copy(), p.copy())),
                (ValueError, "halyard_adamw_step: second_moment", lambda: halyard.adamw_step(p, g, p.copy(), p[:3].copy(), 1)),
                (TypeError, "halyard.gradient_norm: gradients must be a list or a tuple of arrays", lambda: halyard.gradient_norm(p)),
                (TypeError, r"halyard.gradient_norm: gradients\[1\] is no array", lambda: halyard.gradient_norm([p, 3])),
                (TypeError, r"halyard_gradient_norm: gradients\[1\]", lambda: halyard.gradient_norm([p, g.astype(np.float16)]))):
            self.assertRaisesRegex(error, f"^{message}", call)
        self.assertEqual(p.tolist(), [1] * 5)

    def test_a_list_that_changes(self):
        """Arrays stay while a call reads them, whatever becomes of the list, and go with it."""
        import sys
        p = np.ones(5, np.float32)
        before = sys.getrefcount(p)
        for given in ([p] * 3, (p, 3), [p, p]):
            try:
                halyard.gradient_norm(given)
            except TypeError:
                pass
        del given
        self.assertEqual(sys.getrefcount(p), before)


class Learning(Training):
    """A network of two layers that learns to tell classes apart, in f32 and beside it in float64."""
    ROWS, INPUTS, HIDDEN, CLASSES, STEPS = 24, 10, 32, 5, 20

    def setUp(self):
        random = np.random.default_rng(5)
        self.x, self.targets = random.standard_normal((self.ROWS, self.INPUTS), np.float32), random.integers(0, self.CLASSES, self.ROWS)
        shapes = (self.HIDDEN, self.INPUTS), (self.HIDDEN,), (self.CLASSES, self.HIDDEN), (self.CLASSES,)
        self.start = [random.standard_normal(shape, np.float32) / 4 for shape in shapes]

    def losses(self):
        """The loss of each step, by the package."""
        parameters = [each.copy() for each in self.start]
        gradients, first, second = ([np.zeros_like(each) for each in parameters] for _ in range(3))
        up, down = halyard.Weights(parameters[0]), halyard.Weights(parameters[2])
        sums, dlogits = np.empty((self.ROWS, self.HIDDEN), np.float32), np.empty((self.ROWS, self.CLASSES), np.float32)
        for step in range(1, self.STEPS + 1):
            hidden = halyard.linear(self.x, up, parameters[1], activation="silu", sums=sums)
            logits = halyard.linear(hidden, down, parameters[3])
            losses = halyard.cross_entropy(logits, self.targets, gradient_scale=1 / self.ROWS, dlogits=dlogits)
            dhidden = np.empty_like(hidden)
            halyard.linear_backward(hidden, down, dlogits, dx=dhidden, dweight=gradients[2], dbias=gradients[3])
            halyard.linear_backward(self.x, up, dhidden, activation="silu", sums=sums, dweight=gradients[0], dbias=gradients[1])
            scale = min(1.0, 0.5 / (halyard.gradient_norm(gradients) + 1e-6))
            for parameter, gradient, m, v in zip(parameters, gradients, first, second):
                halyard.adamw_step(parameter, gradient, m, v, step, lr=0.02, gradient_scale=scale)
            up.update(parameters[0])
            down.update(parameters[2])
            yield halyard.mean_loss(losses, self.targets)[0]

    def exact_losses(self):
        """The losses in float64, by formulas of its own."""
        x, parameters = self.x.astype(np.float64), [each.astype(np.float64) for each in self.start]
        first, second = ([np.zeros_like(each) for each in parameters] for _ in range(2))
        hot = np.eye(self.CLASSES)[self.targets]
        for step in range(1, self.STEPS + 1):
            sums = x @ parameters[0].T + parameters[1]
            sigmoid = 1 / (1 + np.exp(-sums))
            hidden = sums * sigmoid
            logits = hidden @ parameters[2].T + parameters[3]
            shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            dlogits = (shares - hot) / self.ROWS
            dsums = dlogits @ parameters[2] * (sigmoid + sums * sigmoid * (1 - sigmoid))
            gradients = [dsums.T @ x, dsums.sum(0), dlogits.T @ hidden, dlogits.sum(0)]
            scale = min(1.0, 0.5 / (math.sqrt(sum((each**2).sum() for each in gradients)) + 1e-6))
            for i, gradient in enumerate(gradients):
                first[i] = 0.9 * first[i] + 0.1 * scale * gradient
                second[i] = 0.999 * second[i] + 0.001 * (scale * gradient)**2
                move = first[i] / (1 - 0.9**step) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
                parameters[i] = parameters[i] * (1 - 0.02 * 0.01) - 0.02 * move
            yield -np.log((shares * hot).sum(-1)).mean()

    def test_two_layers(self):
        got, right = list(self.losses()), list(self.exact_losses())
        self.assertLess(max(abs(a - b) for a, b in zip(got, right)), 1e-4)
        self.assertLess(right[-1], right[0] / 2)  # it does learn
        self.assertEqual(got, list(self.losses()))


if __name__ == "__main__":
    unittest.main()

"""Blocks and stacks against float64 and, to the bit, against the functions that they are made of; caches, refusals and what they keep."""
import gc
import sys
import unittest

import halyard
import layer_references as layers
import numpy as np
import references
from references import U
from test_attention import attend, rotate
from test_handles import Changing
from typed_arrays import Numbers

FEATURES, WIDTH, HEADS, KV_HEADS, POSITIONS, VOCABULARY = 48, 80, 4, 2, 32, 37
HEAD = FEATURES // HEADS
SIZES = {"hidden_size": FEATURES, "intermediate_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
         "max_position_embeddings": POSITIONS}
random = np.random.default_rng(3)


def uniform(*shape, scale=1.0):
    return (scale * random.uniform(-1, 1, shape)).astype(np.float32)


def llama_weights():
    return {"q_proj": uniform(HEADS * HEAD, FEATURES, scale=0.3), "k_proj": uniform(KV_HEADS * HEAD, FEATURES, scale=0.3),
            "v_proj": uniform(KV_HEADS * HEAD, FEATURES, scale=0.3), "o_proj": uniform(FEATURES, HEADS * HEAD, scale=0.3),
            "gate_proj": uniform(WIDTH, FEATURES, scale=0.3), "up_proj": uniform(WIDTH, FEATURES, scale=0.3),
            "down_proj": uniform(FEATURES, WIDTH, scale=0.3), "attention_norm": uniform(FEATURES), "ffn_norm": uniform(FEATURES)}


def packed(weights, **options):
    """A network with the matrices packed."""
    both = {"up_proj": halyard.Weights(weights["up_proj"], weights["gate_proj"], **options)}
    others = {name: halyard.Weights(matrix, **options) if matrix.ndim == 2 else matrix for name, matrix in weights.items() if name != "gate_proj"}
    return {**others, **both}


def llama_by_functions(x, weights, rope):
    """The block of a Llama of the package's functions, with packed weights."""
    normal = halyard.rms_norm(x, weights["attention_norm"], eps=1e-5)
    q, k, v = (halyard.linear(normal, weights[f"{name}_proj"]).reshape(*x.shape[:-1], -1, HEAD) for name in "qkv")
    seen = halyard.attention(q, k, v, causal=True, rope=rope).reshape(*x.shape[:-1], -1)
    x = halyard.linear(seen, weights["o_proj"], residual=x)
    return halyard.ffn(x, weights["up_proj"], weights["down_proj"], activation="silu", norm="rms", norm_weight=weights["ffn_norm"],
                       eps=1e-5, residual=True)


def norm_of_pair(pair, weight, eps):
    """RMSNorm of what has an error, and its error."""
    x, error = pair
    exact, own = references.rms_norm(x, weight, eps=eps)
    # The root changes by no more than the root of the errors' mean square, which it is a norm of.
    root, moves = np.sqrt((x**2).mean(-1, keepdims=True) + eps), np.sqrt((error**2).mean(-1, keepdims=True))
    moved = np.abs(weight) * (error + np.abs(x) * moves / root) / (root - moves)
    return exact, moved + own + (x.shape[-1] / 128 + 10) * U * moved


def rotate_pair(pair):
    value, error = pair
    half, positions = HEAD // 2, np.arange(len(value))
    exact, own = rotate(value, positions, HEAD)
    reach = np.hypot(error[..., :half], error[..., half:])
    return exact, own + (1 + 2.71 * U) * np.concatenate([reach, reach], -1)


def llama_in_float64(x, weights):
    """A block of Llama by NumPy, and the error that it may have."""
    x, weights = layers.plain(x.astype(np.float64)), {name: each.astype(np.float64) for name, each in weights.items()}
    eps = float(np.float32(1e-5))
    normal = norm_of_pair(x, weights["attention_norm"], eps)
    q, k, v = ([each.reshape(len(each), -1, HEAD) for each in layers.product(normal, weights[f"{name}_proj"])] for name in "qkv")
    q, k = rotate_pair(q), rotate_pair(k)
    seen = attend(q, k, v[0], causal=True)[0]
    # Shares add up to 1, so that v's errors are averaged as v is.
    error = attend(q, k, np.abs(v[0]) + v[1], causal=True)[1] + attend(q, k, v[1], causal=True)[0]
    flat = [each.reshape(len(each), -1) for each in (seen, error)]
    x = layers.add(layers.product(flat, weights["o_proj"]), x)
    hidden = layers.linear(norm_of_pair(x, weights["ffn_norm"], eps), weights["up_proj"], weights["gate_proj"], activation="silu")
    return layers.add(layers.product(hidden, weights["down_proj"]), x)


def stack_weights():
    return {"embed_tokens": uniform(VOCABULARY, FEATURES), "norm": uniform(FEATURES), "lm_head": uniform(VOCABULARY, FEATURES)}


def llama_stack(weights, layers=2):
    """The stack and its blocks."""
    blocks = [halyard.Block("llama", llama_weights(), **SIZES) for _ in range(layers)]
    return halyard.Stack(blocks, weights, vocab_size=VOCABULARY, hidden_size=FEATURES), blocks


class Blocks(unittest.TestCase):
    def test_float64(self):
        # Small matrices, because an error may grow by their absolute sums in each product.
        weights, x = {name: (0.3 if each.ndim == 2 else 1.0) * each for name, each in llama_weights().items()}, uniform(9, FEATURES)
        weights = {name: each.astype(np.float32) for name, each in weights.items()}
        (exact, error), y = llama_in_float64(x, weights), halyard.Block("llama", weights, **SIZES)(x)
        self.assertTrue(np.all(np.abs(y - exact) <= error))
        self.assertLess(error.max(), 1e-3 * np.abs(exact).max())
        self.assertEqual((y.dtype, y.shape), (np.float32, x.shape))

    def test_functions_to_the_bit(self):
        weights, rope = llama_weights(), halyard.Rope(HEAD, POSITIONS)
        for options in ({}, {"bits": 8, "group": 16}, {"bits": 4, "group": 16, "asymmetric": True}):
            parts = packed(weights, **options)
            for shape in ((7, FEATURES), (2, 5, FEATURES)):
                x = uniform(*shape)
                expected = llama_by_functions(x, parts, rope).tobytes()
                self.assertEqual(halyard.Block("llama", parts, **SIZES)(x).tobytes(), expected)
                self.assertEqual(halyard.Block("llama", weights, **SIZES, **options)(x).tobytes(), expected)

    def test_layouts_and_fused_matrices(self):
        weights, x = llama_weights(), uniform(6, FEATURES)
        expected = halyard.Block("llama", weights, **SIZES)(x).tobytes()
        turned = {name: np.ascontiguousarray(each.T) if each.ndim == 2 else each for name, each in weights.items()}
        self.assertEqual(halyard.Block("llama", turned, layout="in_out", **SIZES)(x).tobytes(), expected)
        fused = {name: each for name, each in weights.items() if name not in ("q_proj", "k_proj", "v_proj")}
        fused["qkv_proj"] = np.concatenate([weights[f"{name}_proj"] for name in "qkv"])
        self.assertEqual(halyard.Block("llama", fused, **SIZES)(x).tobytes(), expected)

    def test_dtypes(self):
        for dtype in ("f16", "bf16"):
            numbers = Numbers(dtype)
            weights = {name: numbers.of(each) if each.ndim == 2 else each for name, each in llama_weights().items()}
            parts = {name: each if isinstance(each, np.ndarray) and each.ndim == 1 else halyard.Weights(each)
                     for name, each in weights.items() if name not in ("gate_proj", "up_proj")}
            parts["up_proj"] = halyard.Weights(weights["up_proj"], weights["gate_proj"])
            block, x = halyard.Block("llama", weights, **SIZES), numbers.array((6, FEATURES), -1, 1)
            wide = numbers.exact(x).astype(np.float32)
            y = block(wide)
            self.assertEqual(y.tobytes(), llama_by_functions(wide, parts, halyard.Rope(HEAD, POSITIONS)).tobytes())
            out, first = numbers.empty((6, FEATURES)), numbers.empty((2, FEATURES))
            self.assertIs(block(x, out=out), out)
            if dtype == "f16":
                self.assertEqual(out.tobytes(), y.astype(np.float16).tobytes())
            block(numbers.of(wide[:2]), out=first)
            self.assertEqual(numbers.exact(first).tobytes(), numbers.exact(out)[:2].tobytes())

    def test_presets(self):
        x = uniform(5, FEATURES)
        for preset in ("original_2017", "bert", "gpt2", "llama", "qwen", "gemma", "mistral"):
            weights = llama_weights()
            if preset in ("original_2017", "bert", "gpt2"):
                del weights["gate_proj"]
            block = halyard.Block(preset, weights, **SIZES)
            config, y = block.config, block(x)
            self.assertTrue(np.isfinite(y).all())
            # The fields of a preset without its name.
            self.assertEqual(halyard.Block(None, weights, **config)(x).tobytes(), y.tobytes())
            self.assertEqual(halyard.Block(None, weights, **config).config, config)

    def test_config(self):
        block = halyard.Block("gemma", llama_weights(), **SIZES)
        config = block.config
        self.assertEqual({name: config[name] for name in SIZES}, SIZES)
        self.assertEqual((config["norm"], config["norm_placement"], config["hidden_act"], config["unit_offset"], config["eps_outside_root"],
                          config["gated_mlp"], config["causal"], config["attn_logit_softcapping"], config["rope_theta"], config["head_dim"]),
                         ("rms", "sandwich", "gelu_tanh", True, False, True, True, 50.0, 10000.0, HEAD))
        self.assertEqual(repr(block), f"<halyard.Block of {FEATURES} features, {HEADS} heads>")
        # False and 0 replace what a preset has.
        other = halyard.Block("gemma", llama_weights(), **SIZES, unit_offset=False, attn_logit_softcapping=0.0, norm_placement="pre").config
        self.assertEqual((other["unit_offset"], other["attn_logit_softcapping"], other["norm_placement"]), (False, 0.0, "pre"))

    def test_bytes(self):
        weights = llama_weights()
        whole, parts = halyard.Block("llama", weights, **SIZES), packed(weights)
        matrices = sum(each.nbytes for each in parts.values() if isinstance(each, halyard.Weights))
        self.assertGreaterEqual(whole.nbytes, sum(each.nbytes for each in weights.values()))
        self.assertLess(halyard.Block("llama", parts, **SIZES).nbytes, whole.nbytes - matrices // 2)

    def test_cache(self):
        block, x = halyard.Block("llama", llama_weights(), **SIZES), uniform(2, 9, FEATURES)
        whole = block(x)
        cache = halyard.KVCache(3, KV_HEADS, HEAD, POSITIONS, n_sequences=4)
        for first, end in ((0, 4), (4, 5), (5, 9)):
            y = block(x[:, first:end], cache, 2, [3, 1])
            self.assertEqual(y.tobytes(), whole[:, first:end].tobytes())
        self.assertEqual([cache.length(2, sequence) for sequence in range(4)], [0, 9, 0, 9])
        cache = halyard.KVCache(1, KV_HEADS, HEAD, POSITIONS, n_sequences=2)
        out = np.empty_like(x)
        self.assertIs(block(x=x, cache=cache, out=out), out)
        self.assertEqual(out.tobytes(), whole.tobytes())

    def test_in_place(self):
        block, x = halyard.Block("llama", llama_weights(), **SIZES), uniform(9, FEATURES)
        expected = block(x).tobytes()
        self.assertIs(block(x, out=x), x)
        self.assertEqual(x.tobytes(), expected)


class Stacks(unittest.TestCase):
    def test_functions_to_the_bit(self):
        weights = stack_weights()
        stack, blocks = llama_stack(weights)
        ids = random.integers(0, VOCABULARY, (2, 7))
        x = weights["embed_tokens"][ids]
        for block in blocks:
            x = block(x)
        hidden = halyard.rms_norm(x, weights["norm"], eps=1e-6)
        logits = halyard.linear(hidden, halyard.Weights(weights["lm_head"]))
        result = stack.hidden_states(ids)
        self.assertEqual((result.dtype, result.shape, result.tobytes()), (np.float32, hidden.shape, hidden.tobytes()))
        result = stack.forward(ids, all_logits=True)
        self.assertEqual((result.dtype, result.shape, result.tobytes()), (np.float32, logits.shape, logits.tobytes()))
        last = stack.forward(ids)
        self.assertEqual((last.shape, last.tobytes()), ((2, VOCABULARY), np.ascontiguousarray(logits[:, -1]).tobytes()))
        for dtype in (np.int32, np.int64):
            one = stack.forward(ids[0].astype(dtype))
            self.assertEqual((one.shape, one.tobytes()), ((VOCABULARY,), last[0].tobytes()))
        out = np.empty((2, VOCABULARY), np.float16)
        self.assertIs(stack.forward(ids, out=out), out)
        self.assertEqual(out.tobytes(), last.astype(np.float16).tobytes())

    def test_cache(self):
        stack, _ = llama_stack(stack_weights())
        ids = random.integers(0, VOCABULARY, 11)
        cache = halyard.KVCache(2, KV_HEADS, HEAD, POSITIONS)
        stack.forward(ids[:6], cache)
        for at in range(6, 11):
            logits = stack.forward(ids[at:at + 1], cache)
            self.assertEqual(logits.tobytes(), stack.forward(ids[:at + 1]).tobytes())
        self.assertEqual([cache.length(layer) for layer in range(2)], [11, 11])

    def test_tables_of_positions_and_types(self):
        weights = {"embed_tokens": uniform(VOCABULARY, FEATURES), "embed_positions": uniform(POSITIONS, FEATURES),
                   "embed_types": uniform(2, FEATURES), "embed_norm": uniform(FEATURES), "embed_norm_bias": uniform(FEATURES)}
        sizes = {**SIZES, "num_key_value_heads": HEADS}
        parts = llama_weights()
        for name in "kv":
            parts[f"{name}_proj"] = uniform(HEADS * HEAD, FEATURES, scale=0.3)
        del parts["gate_proj"]
        block = halyard.Block("bert", parts, **sizes)
        stack = halyard.Stack([block], weights, vocab_size=VOCABULARY, hidden_size=FEATURES, norm="none", embed_norm="layer",
                              rms_norm_eps=1e-12, no_lm_head=True)
        ids, kinds = random.integers(0, VOCABULARY, 7), np.array([0, 0, 0, 1, 1, 0, 1])
        embedded = weights["embed_tokens"][ids] + weights["embed_positions"][:7] + weights["embed_types"][kinds]
        x = block(halyard.layer_norm(embedded, weights["embed_norm"], weights["embed_norm_bias"], eps=1e-12))
        self.assertEqual(stack.hidden_states(ids, token_types=kinds).tobytes(), x.tobytes())
        self.assertNotEqual(stack.hidden_states(ids).tobytes(), x.tobytes())
        self.assertRaisesRegex((ValueError, TypeError), "^halyard_stack_forward: ", stack.forward, ids)

    def test_quantized_output_projection(self):
        weights = stack_weights()
        blocks = [halyard.Block("llama", llama_weights(), **SIZES)]
        sizes, ids = {"vocab_size": VOCABULARY, "hidden_size": FEATURES}, [1, 2, 3]
        made = halyard.Weights(weights["lm_head"], bits=8, group=16)
        logits = halyard.Stack(blocks, {**weights, "lm_head": made}, **sizes).forward(np.array(ids))
        self.assertEqual(halyard.Stack(blocks, weights, **sizes, bits=8, group=16).forward(np.array(ids)).tobytes(), logits.tobytes())
        self.assertNotEqual(halyard.Stack(blocks, weights, **sizes).forward(np.array(ids)).tobytes(), logits.tobytes())

    def test_config(self):
        stack, _ = llama_stack(stack_weights())
        self.assertEqual({name: stack.config[name] for name in ("vocab_size", "hidden_size", "norm", "embed_norm", "no_lm_head")},
                         {"vocab_size": VOCABULARY, "hidden_size": FEATURES, "norm": "rms", "embed_norm": "none", "no_lm_head": False})
        self.assertEqual(repr(stack), f"<halyard.Stack of {FEATURES} features, {VOCABULARY} tokens>")


class Kept(unittest.TestCase):
    def test_a_block_keeps_packed_weights_and_no_arrays(self):
        weights = llama_weights()
        parts, x = packed(weights), uniform(3, FEATURES)
        arrays = [sys.getrefcount(each) for each in weights.values()]
        block, whole = halyard.Block("llama", parts, **SIZES), halyard.Block("llama", weights, **SIZES)
        self.assertEqual([sys.getrefcount(each) for each in weights.values()], arrays)
        expected, up = block(x).tobytes(), parts["up_proj"]
        self.assertRaisesRegex(RuntimeError, "^halyard.Weights.update: self is part of a block or a stack$", up.update, weights["up_proj"],
                               weights["gate_proj"])
        del parts
        gc.collect()
        self.assertEqual(block(x).tobytes(), expected)
        for each in weights.values():
            each[:] = 0
        self.assertEqual(whole(x).tobytes(), expected)
        del block
        up.update(weights["up_proj"], weights["gate_proj"])  # no block has it any more

    def test_a_stack_keeps_blocks_and_tables(self):
        weights, ids = stack_weights(), np.array([3, 1, 2])
        stack, blocks = llama_stack(weights)
        expected, table = stack.forward(ids).tobytes(), weights["embed_tokens"]
        count = sys.getrefcount(table)
        del blocks, weights
        gc.collect()
        self.assertEqual(stack.forward(ids).tobytes(), expected)
        self.assertEqual(sys.getrefcount(table), count - 1)  # that of the dict
        del stack
        self.assertLess(sys.getrefcount(table), count - 1)

    def test_many_leave_nothing(self):
        weights, table, x = llama_weights(), stack_weights(), uniform(3, FEATURES)
        parts, ids = packed(weights), np.array([3, 1, 2])
        given = [x, ids, *weights.values(), *table.values(), *parts.values()]

        def calls(count):
            for _ in range(count):
                block = halyard.Block("llama", parts, **SIZES)
                stack = halyard.Stack([block, block], table, vocab_size=VOCABULARY, hidden_size=FEATURES)
                block(x)
                stack.forward(ids)
                stack.hidden_states(ids)
                for bad in ({"o_proj": x[0]}, {"nothing": x}, {"q_norm": "text"}):
                    try:
                        halyard.Block("llama", {**parts, **bad}, **SIZES)
                    except (ValueError, TypeError):
                        pass
                for blocks in ([block, x], [], 3):
                    try:
                        halyard.Stack(blocks, table, vocab_size=VOCABULARY, hidden_size=FEATURES)
                    except (ValueError, TypeError):
                        pass
        calls(20)
        gc.collect()
        types = (halyard.Block, halyard.Stack, halyard.Weights)
        counts, of_types = [sys.getrefcount(each) for each in given], [sys.getrefcount(each) for each in types]
        calls(200)
        self.assertEqual([sys.getrefcount(each) for each in given], counts)
        self.assertEqual([sys.getrefcount(each) for each in types], of_types)


class Refusals(unittest.TestCase):
    def test_arguments(self):
        weights, table = llama_weights(), stack_weights()
        block, x = halyard.Block("llama", weights, **SIZES), uniform(3, FEATURES)
        stack, cache = halyard.Stack([block], table, vocab_size=VOCABULARY, hidden_size=FEATURES), halyard.KVCache(1, KV_HEADS, HEAD, POSITIONS)
        ids, sizes = np.array([1, 2]), {"vocab_size": VOCABULARY, "hidden_size": FEATURES}

        def without(name):
            return {other: each for other, each in weights.items() if other != name}
        for call, error, text in (
                (lambda: halyard.Block(weights=weights), TypeError, "halyard.Block: preset is missing"),
                (lambda: halyard.Block("llama"), TypeError, "halyard.Block: weights is missing"),
                (lambda: halyard.Block("llama", None), TypeError, "halyard.Block: weights is missing"),
                (lambda: halyard.Block("alpaca", weights, **SIZES), ValueError,
                 "halyard.Block: preset must be 'original_2017', .* or 'mistral', not 'alpaca'"),
                (lambda: halyard.Block("llama", x, **SIZES), TypeError, "halyard.Block: weights must be a mapping of names to arrays, not <class"),
                (lambda: halyard.Block("llama", {**weights, "wq": x}, **SIZES), ValueError,
                 "halyard.Block: weights has 'wq', which is none of q_proj, k_proj, .*, ffn_post_norm_bias"),
                (lambda: halyard.Block("llama", {**weights, 1: x}, **SIZES), ValueError, "halyard.Block: weights has 1, which is none of "),
                (lambda: halyard.Block("llama", {**weights, "q_proj": "text"}, **SIZES), TypeError, "halyard.Block: q_proj is no array"),
                (lambda: halyard.Block("llama", {**weights, "gate_proj": halyard.Weights(weights["gate_proj"])}, **SIZES), TypeError,
                 "halyard.Block: gate_proj is no array"),
                (lambda: halyard.Block("llama", {**weights, "q_norm": halyard.Weights(weights["q_proj"])}, **SIZES), TypeError,
                 "halyard.Block: q_norm is no array"),
                (lambda: halyard.Block("llama", without("o_proj"), **SIZES), ValueError, "halyard_block_create: .*o_proj"),
                (lambda: halyard.Block("llama", weights), ValueError, "halyard_block_create: .*hidden_size"),
                (lambda: halyard.Block("llama", weights, **SIZES, bits=5), ValueError, "halyard_block_create: .*quantization.bits is 5"),
                (lambda: halyard.Block("llama", weights, **SIZES, norm_placement="late"), ValueError,
                 "halyard.Block: norm_placement must be 'pre', 'post', 'post_sublayer', 'sandwich' or 'double', not 'late'"),
                (lambda: halyard.Block("llama", weights, 3), TypeError, "halyard.Block: takes at most 2 positional arguments, and 3 were given"),
                (lambda: halyard.Block("llama", weights, **SIZES, rope="x"), TypeError, "halyard.Block: has no argument 'rope'"),
                (lambda: block(), TypeError, "halyard.Block.__call__: x is missing"),
                (lambda: block(x[:, 1:]), ValueError, "halyard_block_forward: x "),
                (lambda: block(x, halyard.Rope(HEAD, 8)), TypeError,
                 "halyard.Block.__call__: cache must be a halyard.KVCache, not <class 'halyard.Rope'>"),
                (lambda: block(x, cache, 1), ValueError, "halyard_block_forward: layer is 1"),
                (lambda: block(x, cache, 0, [0, 1]), ValueError, "halyard.Block.__call__: sequences has 2 entries, but the batch is 1"),
                (lambda: block(x.astype(np.float64)), TypeError, "halyard_block_forward: x "),
                (lambda: halyard.Stack([], table, **sizes), ValueError, "halyard_stack_create: n_layers"),
                (lambda: halyard.Stack(block, table, **sizes), TypeError, "halyard.Stack: blocks must be a sequence of halyard.Block, not <class"),
                (lambda: halyard.Stack([block, x], table, **sizes), TypeError,
                 "halyard.Stack: blocks must be a sequence of halyard.Block, and has <class 'numpy.ndarray'>"),
                (lambda: halyard.Stack([block], table), TypeError, "halyard.Stack: vocab_size is missing"),
                (lambda: halyard.Stack([block], {**table, "head": x}, **sizes), ValueError,
                 "halyard.Stack: weights has 'head', which is none of embed_tokens, "),
                (lambda: halyard.Stack([block], {"norm": table["norm"]}, **sizes), ValueError, "halyard_stack_create: .*embed_tokens"),
                (lambda: stack.forward(), TypeError, "halyard.Stack.forward: input_ids is missing"),
                (lambda: stack.forward([1, 2]), TypeError, "halyard.Stack.forward: input_ids is no array"),
                (lambda: stack.forward(np.array([VOCABULARY])), ValueError, "halyard_stack_forward: input_ids"),
                (lambda: stack.forward(ids, out=np.empty(3, np.float32)), ValueError, "halyard_stack_forward: logits "),
                (lambda: stack.forward(ids, cache, [0, 1]), ValueError, "halyard.Stack.forward: sequences has 2 entries, but the batch is 1"),
                (lambda: stack.hidden_states(ids, all_logits=True), TypeError, "halyard.Stack.hidden_states: has no argument 'all_logits'")):
            with self.subTest(text):
                self.assertRaisesRegex(error, "^" + text, call)
        self.assertEqual(len(cache), 0)

    def test_a_cache_that_another_call_uses(self):
        block, x = halyard.Block("llama", llama_weights(), **SIZES), uniform(3, FEATURES)
        cache = halyard.KVCache(1, KV_HEADS, HEAD, POSITIONS)
        text = "^halyard.Block.__call__: cache is being changed by another call$"
        k = Changing(np.zeros((3, KV_HEADS, HEAD), np.float32), lambda: self.assertRaisesRegex(RuntimeError, text, block, x, cache))
        cache.append(k, np.zeros((3, KV_HEADS, HEAD), np.float32))
        self.assertEqual(k.exports, 1)


if __name__ == "__main__":
    unittest.main()

"""Models from files: logits and tokens of transformers, caches, sampling, the programs' tokens, refusals, threads and what they keep."""
import gc
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import halyard
import numpy as np
from typed_arrays import Numbers

MODELS = Path(__file__).resolve().parents[1] / "data/models"
DECODERS = ("gpt2", "llama3", "llama_linear", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")
LLAMA = MODELS / "llama3_f32"
PROGRAMS = {name: os.environ.get(f"HALYARD_{name.upper()}", "") for name in ("generate", "quantize")}  # empty: not built
DTYPES = {"F32": np.float32, "I64": np.int64}
PROMPT = [38, 59, 20, 9, 23, 4]


def expected(folder):
    """What transformers computes."""
    data = (MODELS / folder / "expected.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data[8 + size + each["data_offsets"][0]:8 + size + each["data_offsets"][1]],
                                DTYPES[each["dtype"]]).reshape(each["shape"])
            for name, each in header.items() if name != "__metadata__"}


def program(name, *arguments):
    return subprocess.run([PROGRAMS[name], *map(str, arguments)], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout


def generated_by_program(model, *options):
    words = program("generate", model, "--prompt-ids", ",".join(map(str, PROMPT)), *options)
    return [int(word) for word in words.split()]


class Files(unittest.TestCase):
    def test_logits_and_tokens_of_transformers(self):
        for name in DECODERS:
            with self.subTest(name):
                wanted, model = expected(f"{name}_f32"), halyard.Model.load(MODELS / f"{name}_f32")
                ids = wanted["input_ids"]
                logits = model.forward(ids, all_logits=True)
                self.assertEqual((logits.dtype, logits.shape), (np.float32, wanted["logits"].shape))
                # The bound in the documentation of models.
                self.assertLess(np.abs(logits - wanted["logits"]).max(), 2e-6 * np.abs(wanted["logits"]).max())
                self.assertEqual(model.forward(ids).tobytes(), logits[-1].tobytes())
                tokens = wanted["generated"].tolist()
                self.assertEqual(model.generate(ids, len(tokens), stop=()), tokens)

    def test_hidden_states_of_an_encoder(self):
        wanted, model = expected("bert_f32"), halyard.Model.load(MODELS / "bert_f32")
        hidden = model.hidden_states(wanted["input_ids"], token_types=wanted["token_type_ids"])
        last = wanted["hidden.3"]
        self.assertLess(np.abs(hidden - last).max(), 2e-6 * np.abs(last).max())
        self.assertRaisesRegex((ValueError, TypeError), "^halyard_stack_forward: ", model.forward, wanted["input_ids"])

    def test_bf16_and_quantized_folders(self):
        model = halyard.Model.load(MODELS / "llama3_bf16")
        self.assertEqual(model.matrix_formats, {"BF16": sum(model.matrix_formats.values())})
        self.assertEqual(len(model.generate(PROMPT, 5, stop=())), 5)
        folder = MODELS / "quantized_pack_4"
        model, f32 = halyard.Model.load(folder), halyard.Model.load(folder, dtype="f32")
        self.assertIn("compressed-tensors 4 bits", model.matrix_formats)
        self.assertIn("compressed-tensors 4 bits as f32", f32.matrix_formats)
        self.assertLess(model.nbytes, f32.nbytes)
        ids = np.array([1, 2, 3])
        one, other = model.forward(ids), f32.forward(ids)
        self.assertLess(np.abs(one - other).max(), 2e-6 * np.abs(other).max())

    def test_quantizing(self):
        exact, model = halyard.Model.load(LLAMA), halyard.Model.load(MODELS / "quantized_int_8", dtype="f32", bits=8, group=16)
        self.assertTrue(any("in 8 bits" in each for each in model.matrix_formats), model.matrix_formats)
        self.assertLess(model.nbytes, halyard.Model.load(MODELS / "quantized_int_8", dtype="f32").nbytes)
        self.assertEqual({"F32"}, set(exact.matrix_formats))

    @unittest.skipUnless(PROGRAMS["quantize"], "halyard-quantize is not built")
    def test_gguf(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.gguf")
            program("quantize", LLAMA, file, "--format", "F32")
            for path in (file, file.encode(), Path(file), folder):
                model = halyard.Model.load(path)
                self.assertEqual(model.generate(PROMPT, 8, stop=()), halyard.Model.load(LLAMA).generate(PROMPT, 8, stop=()))
            program("quantize", LLAMA, file, "--format", "Q8_0")
            model = halyard.Model.load(file)
            if PROGRAMS["generate"]:
                self.assertEqual(model.generate(PROMPT, 8), generated_by_program(file, "--max-new-tokens", 8))

    def test_attributes(self):
        model = halyard.Model.load(LLAMA, max_positions=16)
        self.assertEqual(repr(model), "<halyard.Model LlamaForCausalLM of 3 layers, 33 features, 61 tokens>")
        self.assertEqual(model.config, {"architecture": "LlamaForCausalLM", "vocab_size": 61, "hidden_size": 33, "intermediate_size": 47,
                                        "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10,
                                        "max_position_embeddings": 64, "tie_word_embeddings": False, "eos_token_ids": [2]})
        self.assertEqual((model.max_positions, halyard.Model.load(LLAMA).max_positions), (16, 64))
        self.assertGreater(model.nbytes, 3 * 4 * 3 * 33 * 47)


class Caches(unittest.TestCase):
    def test_tokens_one_by_one(self):
        model, ids = halyard.Model.load(LLAMA), expected("llama3_f32")["input_ids"]
        whole, cache = model.forward(ids, all_logits=True), model.make_cache(len(ids))
        for first, end in ((0, 9), (9, 10), (10, 23)):
            self.assertEqual(model.forward(ids[first:end], cache, all_logits=True).tobytes(), whole[first:end].tobytes())
        self.assertEqual((len(cache), cache.n_layers, cache.max_positions, cache.dtype), (23, 3, 23, "f32"))
        batch = model.make_cache(8, n_sequences=2, dtype="f16")
        self.assertEqual((batch.n_sequences, batch.dtype, model.make_cache().max_positions), (2, "f16", 64))
        self.assertEqual(model.forward(ids[:8].reshape(2, 4), batch, [1, 0]).shape, (2, 61))
        self.assertEqual((batch.length(2, 0), batch.length(2, 1)), (4, 4))
        self.assertEqual(halyard.Model.load(MODELS / "llama3_bf16").make_cache(4).dtype, "bf16")

    def test_outputs(self):
        model, ids = halyard.Model.load(LLAMA), np.array(PROMPT, np.int32)
        logits = model.forward(ids)
        for numbers in (Numbers("f32"), Numbers("f16"), Numbers("bf16")):
            out = numbers.empty(logits.shape)
            self.assertIs(model.forward(ids, out=out), out)
            self.assertEqual(numbers.exact(out).tobytes(), numbers.exact(numbers.of(logits)).tobytes())


class Tokens(unittest.TestCase):
    def test_stream_yields_what_generate_lists(self):
        model = halyard.Model.load(LLAMA)
        stream, cache, ids = model.stream(PROMPT, 6, stop=()), model.make_cache(), list(PROMPT)
        self.assertIs(iter(stream), stream)
        self.assertEqual(repr(stream), "<halyard.TokenStream>")
        logits = model.forward(np.array(ids), cache)
        for token in stream:
            self.assertEqual(token, int(logits.argmax()))
            ids.append(token)
            logits = model.forward(np.array([token]), cache)
        self.assertEqual(ids[len(PROMPT):], model.generate(PROMPT, 6, stop=()))
        self.assertEqual(list(stream), [])
        for prompt in (tuple(PROMPT), np.array(PROMPT), np.array(PROMPT, np.int32)):
            self.assertEqual(model.generate(prompt, max_tokens=6, stop=()), ids[len(PROMPT):])

    def test_ends(self):
        model = halyard.Model.load(LLAMA)
        free = model.generate(PROMPT, 12, stop=())
        self.assertEqual(len(free), 12)
        for stop in ([free[4]], [99, free[4]], np.array([free[4]])):
            first = free.index(free[4])
            self.assertEqual(model.generate(PROMPT, 12, stop=stop), free[:first + 1])
        self.assertEqual(model.generate(PROMPT, 0), [])
        # The last token needs no position.
        self.assertEqual(len(model.generate(PROMPT, 1000, stop=())), 64 - len(PROMPT) + 1)
        self.assertEqual(len(halyard.Model.load(LLAMA, max_positions=6).generate(PROMPT, 2**62, stop=())), 1)
        # A token that the model's own list has ends a text, unless told otherwise.
        drawn = model.generate(PROMPT, 59, temperature=50.0, seed=1, stop=())
        self.assertIn(2, drawn)
        self.assertEqual(model.generate(PROMPT, 59, temperature=50.0, seed=1), drawn[:drawn.index(2) + 1])

    def test_sampling(self):
        model = halyard.Model.load(LLAMA)
        greedy = model.generate(PROMPT, 8, stop=())
        self.assertEqual(model.generate(PROMPT, 8, temperature=9.0, top_k=1, stop=()), greedy)
        self.assertEqual(model.generate(PROMPT, 8, temperature=9.0, top_p=1e-9, stop=()), greedy)
        one, same, other = (model.generate(PROMPT, 20, temperature=2.0, seed=seed, stop=()) for seed in (5, 5, 6))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    @unittest.skipUnless(PROGRAMS["generate"], "halyard-generate is not built")
    def test_the_program_has_the_same_tokens(self):
        for name in (*(f"{each}_f32" for each in DECODERS), "llama3_bf16", "gemma2_bf16"):
            model = halyard.Model.load(MODELS / name)
            self.assertEqual(model.generate(PROMPT, 10), generated_by_program(MODELS / name, "--max-new-tokens", 10))
        options = ("--temperature", 1.5, "--top-k", 20, "--top-p", 0.9, "--seed", 12, "--max-new-tokens", 30, "--ignore-eos")
        model = halyard.Model.load(LLAMA)
        self.assertEqual(model.generate(PROMPT, 30, temperature=1.5, top_k=20, top_p=0.9, seed=12, stop=()),
                         generated_by_program(LLAMA, *options))


class Refusals(unittest.TestCase):
    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            absent = os.path.join(folder, "absent")
            with self.assertRaisesRegex(FileNotFoundError, "absent.* cannot be opened for reading"):
                halyard.Model.load(absent)
            self.assertRaisesRegex(ValueError, "config.json.* cannot be opened for reading", halyard.Model.load, folder)
            Path(folder, "config.json").write_text("{")
            self.assertRaisesRegex(ValueError, "config.json", halyard.Model.load, folder)
            Path(folder, "config.json").write_text('{"architectures": ["T5ForConditionalGeneration"]}')
            self.assertRaisesRegex((TypeError, ValueError), "config.json.*T5ForConditionalGeneration", halyard.Model.load, folder)

    def test_arguments(self):
        model, ids = halyard.Model.load(LLAMA), np.array(PROMPT)
        cache = model.make_cache(3)
        for call, error, text in (
                (lambda: halyard.Model(), TypeError, "^halyard.Model: has no constructor$"),
                (lambda: type(model.stream(ids, 1))(), TypeError, "^halyard.TokenStream: has no constructor$"),
                (lambda: halyard.Model.load(), TypeError, "^halyard.Model.load: path is missing$"),
                (lambda: halyard.Model.load(3), TypeError, "path|PathLike"),
                (lambda: halyard.Model.load("a\0b"), ValueError, "null"),
                (lambda: halyard.Model.load(LLAMA, max_positions=65), ValueError, ": max_positions is 65; the model has 64$"),
                (lambda: halyard.Model.load(LLAMA, max_positions=-1), ValueError, ": max_positions is -1; the model has 64$"),
                (lambda: halyard.Model.load(LLAMA, dtype="f64"), ValueError,
                 "^halyard.Model.load: dtype must be 'f32', 'f16' or 'bf16', not 'f64'$"),
                (lambda: halyard.Model.load(LLAMA, bits=3), ValueError, "quantization.bits is 3"),
                (lambda: model.forward(PROMPT), TypeError, "^halyard.Model.forward: input_ids is no array"),
                (lambda: model.forward(np.array([61])), ValueError, "^halyard_stack_forward: input_ids"),
                (lambda: model.forward(ids, cache), ValueError, "^halyard_stack_forward: "),
                (lambda: model.forward(ids[:0]), ValueError, "^halyard_stack_forward: input_ids"),
                (lambda: model.make_cache(-1), ValueError, "^halyard_kv_cache_create"),
                (lambda: model.make_cache(n_sequences=0), ValueError, "^halyard_kv_cache_create: .*n_sequences"),
                (lambda: model.generate(), TypeError, "^halyard.Model.stream: ids is missing$"),
                (lambda: model.generate(PROMPT), TypeError, "^halyard.Model.stream: max_tokens is missing$"),
                (lambda: model.generate(PROMPT, -1), ValueError, "^halyard.Model.stream: max_tokens is negative$"),
                (lambda: model.generate([], 3), ValueError, "^halyard.Model.stream: ids is empty$"),
                (lambda: model.generate(3, 3), TypeError, "^halyard.Model.stream: ids must be a sequence of ints, not 3$"),
                (lambda: model.generate("ab", 3), TypeError, "^halyard.Model.stream: ids must be an int, not 'a'$"),
                (lambda: model.generate([0.5], 3), TypeError, "^halyard.Model.stream: ids must be an int, not 0.5$"),
                (lambda: model.generate([2**70], 3), ValueError, "^halyard.Model.stream: ids is .*, which is out of range$"),
                (lambda: model.generate(range(65), 1), ValueError,
                 "^halyard.Model.stream: ids has 65 tokens, but the model has 64 positions$"),
                (lambda: model.generate([61], 1), ValueError, "^halyard_stack_forward: input_ids"),
                (lambda: model.generate([-1], 1), ValueError, "^halyard_stack_forward: input_ids"),
                (lambda: model.generate(PROMPT, 1, temperature=-1.0), ValueError, "^halyard::Sampler: temperature is not finite and >= 0$"),
                (lambda: model.generate(PROMPT, 1, top_p=0.0), ValueError, r"^halyard::Sampler: top_p is not in \(0, 1\]$"),
                (lambda: model.generate(PROMPT, 1, top_k=-1), ValueError, "^halyard::Sampler: top_k is negative$"),
                (lambda: model.generate(PROMPT, 1, stop=2), TypeError, "^halyard.Model.stream: stop must be a sequence of ints, not 2$"),
                (lambda: model.generate(PROMPT, 1, beams=2), TypeError, "^halyard.Model.stream: has no argument 'beams'$")):
            with self.subTest(text):
                self.assertRaisesRegex(error, text, call)
        self.assertEqual(len(cache), 0)

    def test_a_failure_ends_a_stream(self):
        stream = halyard.Model.load(LLAMA).stream([61], 3)
        self.assertRaises(ValueError, next, stream)
        self.assertEqual(list(stream), [])


class Objects(unittest.TestCase):
    def test_a_stream_keeps_its_model(self):
        model = halyard.Model.load(LLAMA)
        wanted, stream = model.generate(PROMPT, 5, stop=()), model.stream(PROMPT, 5, stop=())
        del model
        gc.collect()
        self.assertEqual(list(stream), wanted)

    def test_threads(self):
        """Each with a model of its own, and two with one model."""
        shared = halyard.Model.load(LLAMA)
        wanted = {name: halyard.Model.load(MODELS / name).generate(PROMPT, 30, stop=()) for name in ("llama3_f32", "qwen3_f32", "gpt2_f32")}
        wrong = []

        def work(name, model):
            for _ in range(20):
                if (model or halyard.Model.load(MODELS / name)).generate(PROMPT, 30, stop=()) != wanted[name]:
                    wrong.append(name)
        threads = [threading.Thread(target=work, args=each)
                   for each in (("qwen3_f32", None), ("gpt2_f32", None), ("llama3_f32", shared), ("llama3_f32", shared))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertFalse(wrong)

    def test_threads_share_a_stream_in_turns(self):
        """Calls that come while another one runs are refused, and no token is lost or given twice."""
        model = halyard.Model.load(LLAMA)
        wanted, stream, tokens, wrong = model.generate(PROMPT, 50, stop=()), model.stream(PROMPT, 50, stop=()), [], []

        def work():
            while True:
                try:
                    token = next(stream, None)
                except RuntimeError as error:
                    if str(error) != "halyard.TokenStream: self is being changed by another call":
                        wrong.append(error)
                    continue
                if token is None:
                    return
                tokens.append(token)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertFalse(wrong)
        self.assertEqual(sorted(tokens), sorted(wanted))

    def test_many_leave_nothing(self):
        model, ids, stop = halyard.Model.load(LLAMA), np.array(PROMPT), [2]

        def calls(count):
            for _ in range(count):
                halyard.Model.load(LLAMA)
                model.generate(ids, 2, stop=stop)
                next(model.stream(PROMPT, 3))
                model.make_cache(8)
                model.config, model.matrix_formats, repr(model)
                for bad in ([], [61], range(65), "ab"):
                    try:
                        model.generate(bad, 2)
                    except (ValueError, TypeError):
                        pass
                try:
                    halyard.Model.load("/nowhere")
                except OSError:
                    pass
        calls(50)
        gc.collect()
        given = (model, ids, stop, halyard.Model, halyard.KVCache, type(model.stream(ids, 1)))
        counts, before = [sys.getrefcount(each) for each in given], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        calls(500)
        self.assertEqual([sys.getrefcount(each) for each in given], counts)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 1024)  # KiB


if __name__ == "__main__":
    unittest.main()

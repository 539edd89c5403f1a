"""Arrays that come in and go out: by buffer, array interface and DLPack; refusals, threads, and what stays of many calls."""
import array
import gc
import os
import resource
import subprocess
import sys
import threading
import time
import unittest
import warnings

import halyard
from halyard import _bench as bench
import numpy as np
from dlpack_array import CUDA, FLOAT, DlpackArray, to_bf16

X = np.random.default_rng(1).uniform(-4, 4, (3, 64)).astype(np.float32)
RELU = np.maximum(X, 0)


def optional(name):
    try:
        return __import__(name)
    except ImportError:
        return None


ml_dtypes, torch = optional("ml_dtypes"), optional("torch")


class Arrays(unittest.TestCase):
    def test_buffers_of_any_object(self):
        out = array.array("f", bytes(4 * 64))
        self.assertIs(halyard.relu(memoryview(X[0]), out=out), out)
        self.assertEqual(out.tobytes(), RELU[0].tobytes())
        self.assertRaisesRegex(TypeError, "halyard.relu: out is needed, as memoryview", halyard.relu, memoryview(X))

    def test_dlpack(self):
        """With a version and without, in and out; as many exports as arrays."""
        for version in (None, (1, 0), (1, 7)):
            x, out = (DlpackArray(each.copy(), FLOAT, version) for each in (X, np.zeros_like(X)))
            halyard.relu(x, out=out)
            self.assertEqual(out.memory.tobytes(), RELU.tobytes())
            self.assertEqual((x.exports, out.exports), (1, 1))

    def test_dlpack_that_is_refused(self):
        memory = X.copy()
        for given, name, error, text in (
                (DlpackArray(memory, FLOAT, (2, 0)), "x", TypeError, "x gives a DLPack capsule of a version"),
                (DlpackArray(memory, FLOAT, (1, 0), flags=1), "out", ValueError, "out is read-only"),
                (DlpackArray(memory, FLOAT, device=CUDA), "x", TypeError, "halyard_relu: x is on device type 2"),
                (DlpackArray(memory.astype(np.float64), FLOAT), "x", TypeError, "halyard_relu: x has dtype f64|64 bits")):
            with self.subTest(text):
                arguments = {"x": X.copy(), "out": np.zeros_like(X), name: given}
                self.assertRaisesRegex(error, text, halyard.relu, **arguments)
        read_only = DlpackArray(memory, FLOAT, (1, 0), flags=1)
        self.assertEqual(halyard.relu(read_only, out=np.empty_like(X)).tobytes(), RELU.tobytes())

        class Broken:
            def __dlpack__(self, **options):
                raise BufferError("not today\nsecond line")
        self.assertRaisesRegex(TypeError, r"^halyard.relu: x is not given by its __dlpack__\(\): not today$", halyard.relu, Broken())

    @unittest.skipIf(ml_dtypes is None, "there is no ml_dtypes")
    def test_bf16_of_numpy(self):
        x = X.astype(ml_dtypes.bfloat16)
        expected = to_bf16(RELU).tobytes()
        self.assertEqual(halyard.relu(x).tobytes(), expected)
        self.assertEqual(halyard.relu(x).dtype, x.dtype)
        self.assertEqual(halyard.cast(X, "bfloat16").tobytes(), x.tobytes())
        wide = np.zeros((3, 80), ml_dtypes.bfloat16)
        self.assertEqual(halyard.relu(x, out=wide[:, 3:67]).tobytes(), expected)
        weights = halyard.Weights(np.eye(5, 64, dtype=ml_dtypes.bfloat16))
        y = halyard.linear(x, weights)
        self.assertEqual((weights.dtype, y.dtype, y.tobytes()), ("bf16", x.dtype, x[:, :5].tobytes()))
        x.flags.writeable = False
        self.assertRaisesRegex(ValueError, "halyard.relu: out is read-only", halyard.relu, X.astype(ml_dtypes.bfloat16), out=x)
        self.assertRaisesRegex(TypeError, "x is not given", halyard.relu, X.astype(ml_dtypes.float8_e5m2))

    @unittest.skipIf(torch is None, "there is no PyTorch")
    def test_torch(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = torch.from_numpy(X).to(dtype)
            y = halyard.relu(x)
            self.assertTrue(y.dtype == dtype and torch.equal(y, torch.relu(x)))
            out = torch.zeros(3, 2, 64, dtype=dtype)
            halyard.relu(x, out=out[:, 1])
            self.assertTrue(torch.equal(out[:, 1], y) and not out[:, 0].any())
        y = halyard.linear(x, halyard.Weights(torch.eye(5, 64, dtype=x.dtype)))
        self.assertTrue(y.dtype == x.dtype and torch.equal(y, x[:, :5]))
        self.assertTrue(torch.equal(halyard.cast(x, torch.float32), x.float()) and torch.equal(halyard.cast(x, "float16"), x.half()))
        self.assertRaisesRegex(ValueError, r"halyard.relu: x requires a gradient", halyard.relu, torch.nn.Parameter(torch.ones(3)))
        self.assertRaisesRegex(TypeError, r"halyard.relu: x has no memory to be read: [^\n]*$", halyard.relu, torch.ones(3).to_sparse())
        self.assertRaisesRegex(TypeError, "halyard.relu: x ", halyard.relu, torch.ones(3, device="meta"))


class Refusals(unittest.TestCase):
    def test_arguments(self):
        weight, swapped = np.ones(64, np.float32), X.astype(X.dtype.newbyteorder())
        fields = np.zeros(4, np.dtype({"names": ["a"], "formats": ["f4"], "offsets": [1], "itemsize": 6}))["a"]
        for call, error, text in (
                (lambda: halyard.relu(), TypeError, "halyard.relu: x is missing"),
                (lambda: halyard.relu(None), TypeError, "halyard.relu: x is missing"),
                (lambda: halyard.relu(X, X), TypeError, "halyard.relu: takes at most 1 positional arguments, and 2 were given"),
                (lambda: halyard.relu(X, x=X), TypeError, "halyard.relu: 'x' was given twice"),
                (lambda: halyard.relu(X, y=X), TypeError, "halyard.relu: has no argument 'y'"),
                (lambda: halyard.relu([1.0]), TypeError,
                 r"halyard.relu: x is no array: <class 'list'> has neither a buffer nor __dlpack__\(\)"),
                (lambda: halyard.relu(X > 0), TypeError, "halyard.relu: x has elements of dtype bool, not f32, f16 or bf16"),
                (lambda: halyard.relu(memoryview(bytes(4)).cast("?")), TypeError, "halyard.relu: x has elements of dtype \\?, not f32, f16 or bf16"),
                (lambda: halyard.relu(X + 1j), TypeError, "halyard.relu: x has elements of dtype complex64, not f32, f16 or bf16"),
                (lambda: halyard.relu(swapped), TypeError, "halyard.relu: x has elements of dtype >f4, not f32, f16 or bf16"),
                (lambda: halyard.relu(X.astype(int)), TypeError, "halyard_relu: x has dtype"),
                (lambda: halyard.relu(np.float32(1)), ValueError, "halyard_relu: x has rank 0, but must have rank 1 to 4"),
                (lambda: halyard.relu(X.reshape(1, 1, 1, 3, 64)), ValueError, "halyard_relu: x has rank 5, but must have rank 1 to 4"),
                (lambda: halyard.relu(X[:, ::2]), ValueError, "halyard_relu: x "),
                (lambda: halyard.relu(X[::-1]), ValueError, "halyard_relu: x "),
                (lambda: halyard.relu(fields), ValueError, "halyard.relu: x has strides that are no whole numbers of elements"),
                (lambda: halyard.relu(np.frombuffer(bytes(9), np.float32, 2, 1)), ValueError, "halyard_relu: x .*align"),
                (lambda: halyard.relu(X, out=X[:2]), ValueError, "halyard_relu: y has extent 2"),
                (lambda: halyard.relu(X, out=X.astype(np.float16)), TypeError, "halyard_relu: y has dtype f16, but must have the dtype of x"),
                (lambda: halyard.relu(X, out=bytes(X)), ValueError, "halyard.relu: out is read-only"),
                (lambda: halyard.add(X, X[:2]), ValueError, "halyard_add: b "),
                (lambda: halyard.rms_norm(X, weight[:3]), ValueError, "halyard_rms_norm: weight must have shape"),
                (lambda: halyard.rms_norm(X, weight, "a"), TypeError, "halyard.rms_norm: eps must be a real number, not 'a'"),
                (lambda: halyard.rms_norm(X, eps=-1), ValueError, "halyard_rms_norm: eps "),
                (lambda: halyard.rms_norm(X, eps=1e300), ValueError, "halyard_rms_norm: eps "),
                (lambda: halyard.partial_rms_norm(X, p=0), ValueError, "halyard_partial_rms_norm: p "),
                (lambda: halyard.rms_norm(np.ones((2, 0), np.float32)), ValueError, "halyard_rms_norm: x "),
                (lambda: halyard.glu_packed(X, "both"), ValueError,
                 "halyard.glu_packed: layout must be 'gate_up', 'up_gate' or 'interleaved', not 'both'"),
                (lambda: halyard.glu_packed(X[:, :3]), ValueError, "halyard_glu_packed: x "),
                (lambda: halyard.cast(X), TypeError, "halyard.cast: takes either dtype or out"),
                (lambda: halyard.cast(X, "float16", out=X), TypeError, "halyard.cast: takes either dtype or out"),
                (lambda: halyard.set_num_threads(257), ValueError, "halyard_context_set_num_threads: num_threads is 257"),
                (lambda: halyard.set_num_threads(-1), ValueError, "halyard_context_set_num_threads: num_threads is -1"),
                (lambda: halyard.set_num_threads(2**80), ValueError, "halyard_context_set_num_threads: num_threads is "),
                (lambda: halyard.set_num_threads(1.5), TypeError, "halyard.set_num_threads: number must be an int, not 1.5")):
            with self.subTest(text):
                self.assertRaisesRegex(error, f"^({text})", call)

    def test_nothing_is_written(self):
        out = np.full((3, 64), 7, np.float32)
        self.assertRaises(ValueError, halyard.rms_norm, X, np.ones(3, np.float32), out=out)
        self.assertTrue((out == 7).all())


class Calls(unittest.TestCase):
    def test_many_leave_nothing(self):
        """Calls that succeed and that fail, with each way of getting at an array."""
        x, out, dlpack, weight = X.copy(), np.empty_like(X), DlpackArray(X.copy(), FLOAT, (1, 0)), np.ones(64, np.float32)
        given = [x, out, dlpack, weight]

        def calls(count):
            for _ in range(count):
                halyard.rms_norm(x, weight, eps=1e-5, out=out)
                halyard.swiglu_backward(x, x, dlpack)
                for bad in ({"eps": -1.0}, {"weight": x}, {"eps": "a"}, {"nothing": 1}, {"weight": 3}):
                    try:
                        halyard.rms_norm(x, **bad)
                    except (ValueError, TypeError):
                        pass
            dlpack.kept.clear()
        calls(1000)
        gc.collect()
        counts, before = [sys.getrefcount(each) for each in given], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        calls(15000)  # of seven each
        self.assertEqual([sys.getrefcount(each) for each in given], counts)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 512)  # KiB: an object for every seventh would be 700

    def test_threads_and_the_number_of_them(self):
        """Calls go on with the context that they began with."""
        x = np.random.default_rng(5).uniform(-4, 4, (256, 1024)).astype(np.float32)
        expected, wrong = halyard.gelu(x).tobytes(), []

        def work():
            for _ in range(20):
                if halyard.gelu(x).tobytes() != expected:
                    wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for i in range(40):
            halyard.set_num_threads(1 + i % 3)
            self.assertEqual(halyard.get_num_threads(), 1 + i % 3)
        for each in threads:
            each.join()
        halyard.set_num_threads(0)
        self.assertFalse(wrong)

    def test_others_run_during_a_call(self):
        """The GIL is released: a thread that counts goes on while calls of some milliseconds follow each other."""
        x, counted, done = np.ones((2048, 4096), np.float32), [0], threading.Event()
        halyard.set_num_threads(1)

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0)  # which releases it for the main thread
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # so that nothing but a release lets it run
        thread = threading.Thread(target=count)
        try:
            thread.start()
            before = counted[0]
            for _ in range(10):
                halyard.gelu(x, out=x)
            after = counted[0]
        finally:
            done.set()
            sys.setswitchinterval(interval)
            thread.join()
            halyard.set_num_threads(0)
        self.assertGreater(after, before)

    def test_info(self):
        info = halyard.info()
        self.assertEqual(info["version"], halyard.__version__)
        self.assertIn(info["isa"], info["isas"])
        self.assertEqual(set(info), {"version", "isa", "isas", "dtypes", "operations", "num_threads"})
        printed = subprocess.run([sys.executable, "-m", "halyard", "info"], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"version      {info['version']}\n", printed)
        self.assertIn("\noperations   " + " ".join(info["operations"]) + "\n", printed)
        refused = subprocess.run([sys.executable, "-m", "halyard", "inof"], capture_output=True, text=True)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))

    def test_settings_hold_within_their_statement(self):
        usual = halyard.info()["isa"]
        with halyard.max_isa("sse41"):
            self.assertEqual(halyard.info()["isa"], "sse41")
            with halyard.products("full"), halyard.max_isa(None):
                self.assertEqual(halyard.info()["isa"], usual)
            self.assertEqual(halyard.info()["isa"], "sse41")
        self.assertEqual(halyard.info()["isa"], usual)
        with self.assertRaisesRegex(ValueError, "^halyard.max_isa: 'sse5' is no instruction set of this library$"):
            halyard.max_isa("sse5").__enter__()
        for name in ("exact", 3):
            with self.assertRaisesRegex(ValueError, f"^halyard.products: {name!r} is none of storage, full, bf16 and int8$"):
                halyard.products(name).__enter__()

    def test_settings_and_threads_do_not_undo_each_other(self):
        with halyard.max_isa("sse41"):
            halyard.set_num_threads(1)
            self.assertEqual((halyard.info()["isa"], halyard.get_num_threads()), ("sse41", 1))
        self.assertEqual(halyard.get_num_threads(), 1)
        halyard.set_num_threads(0)

    def test_products_are_rounded_as_is_said(self):
        x, up, down = (np.random.default_rng(i).standard_normal(shape).astype(np.float32) / 8
                       for i, shape in enumerate(((8, 64), (96, 64), (64, 96))))
        up, down = (halyard.Weights(each, bits=8, group=32) for each in (up, down))
        full = halyard.ffn(x, up, down)
        with halyard.products("bf16"):
            rounded = halyard.ffn(x, up, down)
        self.assertNotEqual(full.tobytes(), rounded.tobytes())
        # Each of 96 hidden values is rounded to 8 bits, as x is.
        np.testing.assert_allclose(full, rounded, atol=0.02 * np.abs(full).max())
        self.assertEqual(halyard.ffn(x, up, down).tobytes(), full.tobytes())

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_a_forked_child_calls(self):
        x = np.linspace(-3, 3, 1 << 16, dtype=np.float32)
        expected = halyard.gelu(x).tobytes()  # starts the threads
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            os._exit(0 if halyard.gelu(x).tobytes() == expected else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(halyard.gelu(x).tobytes(), expected)

    def test_what_the_benchmark_compares_is_equal(self):
        for name, ours, theirs, _ in bench.numpy_rows(np):
            np.testing.assert_allclose(ours(), theirs(), rtol=2e-3, atol=2e-3, err_msg=name)  # GELU is by tanh in NumPy

    def test_nothing_else_is_imported(self):
        text = "import sys; before = set(sys.modules); import halyard; print(*sorted(set(sys.modules) - before))"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["halyard", "halyard._arrays", "halyard._core", "halyard._settings"])


if __name__ == "__main__":
    unittest.main()

"""What `python -m halyard bench` does: times the usual functions beside NumPy."""
import importlib.util
import math
import time

from . import Weights, attention, gelu, info, layer_norm, linear, rms_norm, silu, softmax, swiglu

SECONDS = 0.2  # of a contender in a round, about
ROUNDS = 5


def numpy_rows(np):
    """Name and call, ours and NumPy's, and the bytes that are read and written or None; f32, with outputs that are there."""
    random = np.random.default_rng(1)
    x, up = (random.standard_normal((64, 4096), np.float32) for _ in range(2))
    weight, bias = (random.standard_normal(4096, np.float32) for _ in range(2))
    out = np.empty_like(x)

    def numpy_layer_norm():
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * weight + bias

    def numpy_softmax():
        exponentials = np.exp(x - x.max(-1, keepdims=True))
        return exponentials / exponentials.sum(-1, keepdims=True)

    def numpy_silu(values):
        return values / (1 + np.exp(-values))

    def numpy_gelu():
        return x * np.float32(0.5) * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)))

    two, three = 2 * x.nbytes, 3 * x.nbytes
    yield "rms_norm 64 x 4096", lambda: rms_norm(x, weight, out=out), (
        lambda: x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * weight), two
    yield "layer_norm 64 x 4096", lambda: layer_norm(x, weight, bias, out=out), numpy_layer_norm, two
    yield "softmax 64 x 4096", lambda: softmax(x, out=out), numpy_softmax, two
    yield "silu 64 x 4096", lambda: silu(x, out=out), lambda: numpy_silu(x), two
    yield "gelu 64 x 4096 (NumPy: by tanh)", lambda: gelu(x, out=out), numpy_gelu, two
    yield "swiglu 64 x 4096", lambda: swiglu(x, up, out=out), lambda: numpy_silu(x) * up, three
    tokens, matrix = random.standard_normal((128, 768), np.float32), random.standard_normal((3072, 768), np.float32)
    packed, y = Weights(matrix), np.empty((128, 3072), np.float32)
    yield "linear 128 x 768 x 3072", lambda: linear(tokens, packed, out=y), lambda: np.matmul(tokens, matrix.T, out=y), None
    q, k, v = (random.standard_normal((128, 12, 64), np.float32) for _ in range(3))
    heads = np.empty_like(q)
    hidden = np.triu(np.full((128, 128), -np.inf, np.float32), 1)

    def numpy_attention():
        turned = [each.transpose(1, 0, 2) for each in (q, k, v)]
        scores = turned[0] @ turned[1].transpose(0, 2, 1) * np.float32(0.125) + hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True) @ turned[2]).transpose(1, 0, 2)

    yield "attention 128 tokens, 12 heads", lambda: attention(q, k, v, causal=True, out=heads), numpy_attention, None


def best_seconds(calls):
    """The least mean of each call, whose rounds take turns."""
    def mean(call, count):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count

    counts = [max(1, int(SECONDS / max(min(mean(call, 1) for _ in range(3)), 1e-7))) for call in calls]
    rounds = [[mean(call, count) for call, count in zip(calls, counts)] for _ in range(ROUNDS)]
    return [min(samples) for samples in zip(*rounds)]


def bench():
    if importlib.util.find_spec("numpy") is None:
        print("python -m halyard bench needs NumPy: pip install numpy")
        return 1
    import numpy
    print(f"halyard {info()['version']} beside NumPy {numpy.__version__}, f32, data in cache; best of {ROUNDS} rounds")
    print(f"{'':34} {'ours':>9} {'GB/s':>7} {'NumPy':>9}  ratio")
    for name, ours, theirs, moved in numpy_rows(numpy):
        mine, other = best_seconds([ours, theirs])
        rate = f"{moved / mine / 1e9:.1f}" if moved else ""
        print(f"{name:34} {1e6 * mine:6.0f} us {rate:>7} {1e6 * other:6.0f} us  {other / mine:.1f}", flush=True)
    print("The benchmark of the library has more rows, limits of the machine and all peers: ./run bench in a checkout.")
    return 0

"""The peer "ggml": graphs of the library inside llama.cpp, as peers/install builds it, called through ctypes.

A row is one graph, made beforehand, with tensors of its own for each operand set; what is timed is its computation.
GELU and the gated units on it are ggml's, which for the tanh form is a table in f16.
"""

import ctypes
import glob
import importlib.util
import os

import numpy as np
from row_tensors import eps_of, inputs_of, layer_vector, matrices_of, vector

PACKAGE = importlib.util.find_spec("llama_cpp")
if PACKAGE is None:
    raise ImportError("llama_cpp is not installed, whose ggml is used")
FOLDER = os.path.join(os.path.dirname(PACKAGE.origin), "lib")


def version_of_library():
    files = sorted(glob.glob(os.path.join(FOLDER, "libggml-base.so.*.*")))
    return os.path.basename(files[-1]).split(".so.")[1] if files else "unknown"


VERSION = version_of_library()
DTYPES = ["f32"]

UNARY = {
    "relu": "relu",
    "gelu": "gelu_erf",
    "gelu_tanh": "gelu",
    "gelu_sigmoid": "gelu_quick",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "exp": "exp",
    "softmax": "soft_max",
}
GATED = {"swiglu": "swiglu_split", "geglu": "geglu_erf_split", "geglu_tanh": "geglu_split", "reglu": "reglu_split"}
OTHERS = ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "add", "bilinear", "linear", "ffn"]
OPERATIONS = [*UNARY, *GATED, *OTHERS]


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def load(name):
    return ctypes.CDLL(os.path.join(FOLDER, name), mode=ctypes.RTLD_GLOBAL)


BASE = load("libggml-base.so")
CPU = load("libggml-cpu.so")
POINTER, FLOAT, INT, INT64 = ctypes.c_void_p, ctypes.c_float, ctypes.c_int, ctypes.c_int64
F32 = 0


def function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


init = function(BASE, "ggml_init", POINTER, InitParams)
free = function(BASE, "ggml_free", None, POINTER)
new_tensor = function(BASE, "ggml_new_tensor_2d", POINTER, POINTER, INT, INT64, INT64)
new_graph = function(BASE, "ggml_new_graph", POINTER, POINTER)
expand = function(BASE, "ggml_build_forward_expand", None, POINTER, POINTER)
get_data = function(BASE, "ggml_get_data", POINTER, POINTER)
allocate = function(BASE, "ggml_backend_alloc_ctx_tensors", POINTER, POINTER, POINTER)
free_buffer = function(BASE, "ggml_backend_buffer_free", None, POINTER)
compute = function(BASE, "ggml_backend_graph_compute", INT, POINTER, POINTER)
backend_init = function(CPU, "ggml_backend_cpu_init", POINTER)
set_threads = function(CPU, "ggml_backend_cpu_set_n_threads", None, POINTER, INT)
BACKEND = backend_init()


class Graph:
    """The graph of one operand set."""

    def __init__(self):
        self.context = init(InitParams(1 << 20, None, True))  # holds descriptions alone
        self.values, self.shapes, self.outputs = {}, {}, []
        self.buffer = self.graph = None

    def __del__(self):
        if self.buffer:
            free_buffer(self.buffer)
        free(self.context)

    def tensor(self, array):
        rows, width = array.shape if array.ndim == 2 else (1, array.size)
        made = new_tensor(self.context, F32, width, rows)
        self.values[made] = array
        return made

    def op(self, name, *tensors):
        return function(BASE, "ggml_" + name, POINTER, *[POINTER] * (1 + len(tensors)))(self.context, *tensors)

    def norm(self, x, request, rms):
        name = "ggml_rms_norm" if rms else "ggml_norm"
        y = function(BASE, name, POINTER, POINTER, POINTER, FLOAT)(self.context, x, eps_of(request))
        weight, bias = vector(request, "weight"), vector(request, "bias")
        if weight is not None:
            y = self.op("mul", y, self.tensor(weight))
        return y if bias is None else self.op("add", y, self.tensor(bias))

    def finish(self, outputs):
        """Makes it ready to be called; `outputs`: (tensor, rows, width)."""
        graph = new_graph(self.context)
        for output, _, _ in outputs:
            expand(graph, output)
        self.buffer = allocate(self.context, BACKEND)
        if not self.buffer:
            raise MemoryError("ggml could not allocate its tensors")
        for tensor, array in self.values.items():
            source = np.ascontiguousarray(array, np.float32)
            ctypes.memmove(get_data(tensor), source.ctypes.data, source.nbytes)
        self.values.clear()
        self.outputs = outputs

        self.graph = graph

    def __call__(self):
        if compute(BACKEND, self.graph) != 0:
            raise RuntimeError("ggml could not compute the graph")

    def results(self):
        return [
            np.ctypeslib.as_array(ctypes.cast(get_data(tensor), ctypes.POINTER(FLOAT)), (rows, width)).copy()
            for tensor, rows, width in self.outputs
        ]


def layer(graph, request, inputs, matrices):
    form, x = request["layer"], inputs[0]
    y = graph.norm(x, request, form["norm"] == "rms") if form["norm"] != "none" else x
    weights = {name: graph.tensor(matrix) for name, matrix in matrices.items()}
    bias, bias_down = layer_vector(request, "bias"), layer_vector(request, "bias_down")
    hidden = graph.op("mul_mat", weights["first"], y)
    if bias is not None:
        hidden = graph.op("add", hidden, graph.tensor(bias))
    if form["gated"]:
        up = graph.op("mul_mat", weights["up"], y)
        hidden = graph.op("swiglu_split" if form["activation"] == "silu" else "geglu_split", hidden, up)
    elif form["activation"] != "identity":
        hidden = graph.op(UNARY[form["activation"]], hidden)
    if form["is_ffn"]:
        hidden = graph.op("mul_mat", weights["down"], hidden)
        if bias_down is not None:
            hidden = graph.op("add", hidden, graph.tensor(bias_down))
    if form["has_residual"]:
        hidden = graph.op("add", hidden, inputs[0 if form["is_ffn"] else 1])
    return [hidden]


def row(graph, request, inputs):
    operation, x = request["operation"], inputs[0]
    if operation in UNARY:
        return [graph.op(UNARY[operation], x)]
    if operation in GATED:
        return [graph.op(GATED[operation], x, inputs[1])]
    if operation in ("add", "bilinear"):
        return [graph.op("add" if operation == "add" else "mul", x, inputs[1])]
    if operation.startswith("add_"):
        total = graph.op("add", x, inputs[1])
        return [total, graph.norm(total, request, "rms" in operation)]
    return [graph.norm(x, request, operation == "rms_norm")]


def prepare(request):
    set_threads(BACKEND, request["threads"])
    arrays = inputs_of(request)
    is_layer = "layer" in request
    matrices = matrices_of(request) if is_layer else {}
    width = request["d"] if not is_layer or request["layer"]["is_ffn"] else request["layer"]["d_out"]
    graphs = []
    for _ in range(request["sets"]):
        graph = Graph()
        inputs = [graph.tensor(array) for array in arrays]
        outputs = layer(graph, request, inputs, matrices) if is_layer else row(graph, request, inputs)
        graph.finish([(output, request["rows"], width) for output in outputs])
        graphs.append(graph)
    return graphs, graphs[0].results, ""

"""The peer "ggml": graphs of the library inside llama.cpp, as bench/peers/install builds it.

A row is one graph, made beforehand, with tensors of its own for each operand set; what is timed is its computation.
GELU's tanh and sigmoid forms are tables in f16, which are no results in f32. Matrices of 16-bit types meet
activations in f32, as in all its models. Matrices in blocks lie where the row is faster: in the plain buffer, or in one that arranges them
anew, which llama.cpp prefers and which has not every type.
"""

import ctypes
import glob
import importlib.util
import itertools
import math
import os
import timeit

import numpy as np
import row_functions
from c_calls import POINTER, CCall, function
from row_tensors import as_f32, from_f32, inputs_of, output_width, tensors_of

PACKAGE = importlib.util.find_spec("llama_cpp")
if PACKAGE is None:
    raise ImportError("llama_cpp is not installed, whose ggml is used")
FOLDER = os.path.join(os.path.dirname(PACKAGE.origin), "lib")
FILES = sorted(glob.glob(os.path.join(FOLDER, "libggml-base.so.*.*")))

VERSION = os.path.basename(FILES[-1]).split(".so.")[1] if FILES else "unknown"
FAMILY = "ggml"
HOW = "a graph made beforehand and computed by its CPU backend; called in C"
INTERFACE = "C"
LACKS = "norms and softmax in f32 alone; no interleaved units; no tanh GELU in f32, which is a table in f16"
DTYPES = ["f32", "f16", "bf16"]

IN_ALL_TYPES = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp"}
IN_F32_AND_F16 = {"gelu": "gelu_erf", "silu": "silu", "swish": "silu"}
BY_TABLE = {"gelu_tanh": "gelu", "gelu_sigmoid": "gelu_quick"}  # of f16 values: no result in f32
UNARY = {**IN_ALL_TYPES, **IN_F32_AND_F16, **BY_TABLE, "softmax": "soft_max"}
# By their activation.
GATED = {"silu": "swiglu", "gelu": "geglu_erf", "gelu_tanh": "geglu", "relu": "reglu"}
# Matrices in blocks, by their number; activations are quantized too, to 8 bits. Q4_K's blocks are the row's own: ggml would search
# for others, and its results would be further from the reference than a peer's may be.
BLOCKS = {"linear.q8_0": 8, "linear.q4_0": 2, "linear.q4_k": 12}
UNITS = [name for name, gate in row_functions.GATES.items() if gate in GATED]
TYPES_OF = {
    **dict.fromkeys([*IN_ALL_TYPES, "add", "bilinear", "glu", "cast", "linear", "ffn"], DTYPES),
    **dict.fromkeys([*IN_F32_AND_F16, *UNITS, *[name + "_packed" for name in UNITS]], ["f32", "f16"]),
    **dict.fromkeys(BLOCKS, ["f32"]),
    **dict.fromkeys([*BY_TABLE, "geglu_tanh", "geglu_tanh_packed"], ["f16"]),
}
NORMS = ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"]
OPERATIONS = [*TYPES_OF, "softmax", *NORMS]


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


def load(name):
    return ctypes.CDLL(os.path.join(FOLDER, name), mode=ctypes.RTLD_GLOBAL)


BASE = load("libggml-base.so")
CPU = load("libggml-cpu.so")
FLOAT, INT, INT64 = ctypes.c_float, ctypes.c_int, ctypes.c_int64
TYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 30}
CODES = {"f32": 0, "f16": 1, "bf16": 30}
ELEMENTS = {0: ctypes.c_float, 1: ctypes.c_uint16, 30: ctypes.c_uint16}

init = function(BASE, "ggml_init", POINTER, InitParams)
free = function(BASE, "ggml_free", None, POINTER)
new_tensor = function(BASE, "ggml_new_tensor_2d", POINTER, POINTER, INT, INT64, INT64)
quantize = function(BASE, "ggml_quantize_chunk", ctypes.c_size_t, INT, POINTER, POINTER, INT64, INT64, INT64, POINTER)
row_size = function(BASE, "ggml_row_size", ctypes.c_size_t, INT, INT64)
multiply = function(BASE, "ggml_mul_mat", POINTER, POINTER, POINTER, POINTER)
cast = function(BASE, "ggml_cast", POINTER, POINTER, POINTER, INT)
new_graph = function(BASE, "ggml_new_graph", POINTER, POINTER)
expand = function(BASE, "ggml_build_forward_expand", None, POINTER, POINTER)
get_data = function(BASE, "ggml_get_data", POINTER, POINTER)
allocate = function(BASE, "ggml_backend_alloc_ctx_tensors", POINTER, POINTER, POINTER)
free_buffer = function(BASE, "ggml_backend_buffer_free", None, POINTER)
compute = function(BASE, "ggml_backend_graph_compute", INT, POINTER, POINTER)
set_threads = function(CPU, "ggml_backend_cpu_set_n_threads", None, POINTER, INT)
allocate_in = function(BASE, "ggml_backend_alloc_ctx_tensors_from_buft", POINTER, POINTER, POINTER)
set_data = function(BASE, "ggml_backend_tensor_set", None, POINTER, POINTER, ctypes.c_size_t, ctypes.c_size_t)
buffer_type_name = function(BASE, "ggml_backend_buft_name", ctypes.c_char_p, POINTER)
supports = function(BASE, "ggml_backend_dev_supports_op", ctypes.c_bool, POINTER, POINTER)
SILENT = ctypes.CFUNCTYPE(None, INT, ctypes.c_char_p, POINTER)(lambda *_: None)
function(BASE, "ggml_log_set", None, POINTER, POINTER)(SILENT, None)
BACKEND = function(CPU, "ggml_backend_cpu_init", POINTER)()
DEVICE = function(BASE, "ggml_backend_get_device", POINTER, POINTER)(BACKEND)


def buffer_types():
    """Where a matrix may lie: buffers with an order of their own, then the plain one."""
    registry = function(BASE, "ggml_backend_dev_backend_reg", POINTER, POINTER)(DEVICE)
    found = function(BASE, "ggml_backend_reg_get_proc_address", POINTER, POINTER, ctypes.c_char_p)(
        registry, b"ggml_backend_dev_get_extra_bufts")
    types = ctypes.CFUNCTYPE(ctypes.POINTER(POINTER), POINTER)(found)(DEVICE) if found else [None]
    count = next(i for i in itertools.count() if not types[i])
    return [*types[:count], function(CPU, "ggml_backend_cpu_buffer_type", POINTER)()]


BUFFER_TYPES = buffer_types()


class Graph(row_functions.Library):
    """The graph of one operand set."""

    def __init__(self, request, arrays, weights, buffer_type=None):
        self.context = init(InitParams(1 << 20, None, True))  # holds descriptions alone
        self.request, self.values, self.buffer = request, {}, None
        self.buffer_type, self.matrices = buffer_type, []
        inputs = [self.tensor(array) for array in arrays]
        self.outputs = self.row(request)(inputs, weights)
        self.graph = new_graph(self.context)
        for output in self.outputs:
            expand(self.graph, output)
        self.buffer = allocate(self.context, BACKEND)
        if not self.buffer:
            raise MemoryError("ggml could not allocate its tensors")
        for tensor, array in self.values.items():
            source = np.ascontiguousarray(array)
            ctypes.memmove(get_data(tensor), source.ctypes.data, source.nbytes)
        self.values.clear()

    def __del__(self):
        if self.buffer:
            free_buffer(self.buffer)
        for context, buffer in self.matrices:
            free_buffer(buffer)
            free(context)
        free(self.context)

    def blocks(self, array, kind, x):
        """A matrix in a buffer of the graph's type, by which x can be multiplied."""
        rows, width = array.shape
        if array.dtype == np.uint8:
            made, width = array, self.request["d"]
        else:
            values = np.ascontiguousarray(as_f32(array))
            made = np.empty(rows * row_size(kind, width), np.uint8)
            quantize(kind, values.ctypes.data, made.ctypes.data, 0, rows, width, None)
        context = init(InitParams(1 << 20, None, True))
        tensor = new_tensor(context, kind, width, rows)
        self.matrices.append((context, allocate_in(context, self.buffer_type)))
        if not supports(DEVICE, multiply(context, tensor, x)):
            raise NotImplementedError("has no such matrix in this buffer")
        set_data(tensor, made.ctypes.data, 0, made.nbytes)
        return tensor

    def tensor(self, array):
        rows, width = array.shape if array.ndim == 2 else (1, array.size)
        made = new_tensor(self.context, TYPES[array.dtype], width, rows)
        self.values[made] = array
        return made

    def op(self, name, *tensors):
        return function(BASE, "ggml_" + name, POINTER, *[POINTER] * (1 + len(tensors)))(self.context, *tensors)

    def add(self, x, y):
        return self.op("add", x, y)

    def multiply(self, x, y):
        return self.op("mul", x, y)

    def cast(self, x, dtype):
        return cast(self.context, x, CODES[dtype])

    def linear(self, x, weight, bias):
        kind = BLOCKS.get(self.request["operation"])
        y = self.op("mul_mat", self.tensor(weight) if kind is None else self.blocks(weight, kind, x), x)
        return y if bias is None else self.add(y, self.tensor(as_f32(bias)))

    def activation(self, name):
        return lambda x: self.op(UNARY[name], x)

    def gated(self, name):
        return (lambda *halves: self.op(GATED[name] + "_split", *halves)) if name in GATED else super().gated(name)

    def packed(self, name, request):
        swapped = {"gate_up": "", "up_gate": "_swapped"}
        if request["layout"] not in swapped:
            raise NotImplementedError("keeps gate and up in halves")
        return lambda x: self.op(GATED[name] + swapped[request["layout"]], x)

    def norm(self, rms, eps):
        function_of_norm = function(BASE, "ggml_rms_norm" if rms else "ggml_norm", POINTER, POINTER, POINTER, FLOAT)

        def norm(x, weight, bias):
            y = function_of_norm(self.context, x, eps)
            y = y if weight is None else self.multiply(y, self.tensor(as_f32(weight)))
            return y if bias is None else self.add(y, self.tensor(as_f32(bias)))

        return norm

    def call(self):
        return CCall((compute, BACKEND, self.graph), kept=self)

    def results(self, kind):
        shape = self.request["rows"], output_width(self.request)
        for output in self.outputs:
            values = np.ctypeslib.as_array(ctypes.cast(get_data(output), ctypes.POINTER(ELEMENTS[kind])), shape).copy()
            yield from_f32(values, self.request["output_dtype"]) if kind == CODES["f32"] else values


def fastest(make_graph):
    """The type of buffer in which a graph takes the least time."""
    def seconds(buffer_type):
        try:
            graph = make_graph(buffer_type)
        except NotImplementedError:
            return math.inf
        return min(timeit.repeat(lambda: compute(BACKEND, graph.graph), number=1, repeat=10))

    return min(BUFFER_TYPES, key=seconds)


def prepare(request):
    is_layer = "layer" in request
    activation = request["layer"]["activation"] if is_layer else request["operation"]
    if request["dtype"] not in TYPES_OF.get(request["operation"], ["f32"]):
        raise NotImplementedError("has it in no such type")
    if request["dtype"] == "f32" and activation in BY_TABLE:
        raise NotImplementedError("computes this activation by a table in f16")
    set_threads(BACKEND, request["threads"])
    arrays, weights = inputs_of(request), tensors_of(request)
    if is_layer:
        arrays = [as_f32(array) for array in arrays]
    note = "activations in f32" if is_layer and request["dtype"] != "f32" else ""

    def graph(buffer_type=None):
        return Graph(request, arrays, weights, buffer_type)

    if request["operation"] in BLOCKS:
        buffer_type = fastest(graph)
        graphs = [graph(buffer_type) for _ in range(request["sets"])]
        note = f"activations in 8 bits, matrices in a buffer {buffer_type_name(buffer_type).decode()}"
    else:
        graphs = [graph() for _ in range(request["sets"])]
    kind = CODES["f32" if is_layer else request["output_dtype"]]
    return [graph.call() for graph in graphs], lambda: graphs[0].results(kind), note

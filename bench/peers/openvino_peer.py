"""The peer "openvino": a small graph for each row, compiled for the CPU, whose plug-in fuses what it knows.

RMSNorm is written as its formula and becomes one node, as do LayerNorm (MVN with scale and shift), SwiGLU, the scaled
dot product of attention, and the products of an FFN with what follows them. Graphs are built in Python and go to the C
interface through a file. Inputs and outputs are tensors that stay, and a call is synchronous.
"""

import ctypes
import glob
import os

import numpy as np
import openvino as ov
import row_functions
from c_calls import POINTER, CCall, function
from openvino import opset13 as op
from row_tensors import BoundRow, tensors_of

VERSION = ov.get_version().split("-")[0]
TITLE = "OpenVINO"
FAMILY = "OpenVINO"
HOW = "a graph compiled for the CPU with the latency hint; synchronous calls in C on tensors bound beforehand"
INTERFACE = "C"
LACKS = "no blocks; packed units are slices of a tensor; a decode has no cache of its own, which OpenVINO has for models"
DTYPES = ["f32", "f16", "bf16"]
TYPES = {"f32": ov.Type.f32, "f16": ov.Type.f16, "bf16": ov.Type.bf16}
CODES = {"f32": 4, "f16": 3, "bf16": 2}  # ov_element_type_e
CAPABILITIES = ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def constant(array):
    """bf16 are bits in uint16."""
    if array.dtype != np.uint16:
        return op.constant(array)
    return ov.op.Constant(ov.Tensor(np.ascontiguousarray(array), list(array.shape), ov.Type.bf16))


def scalar(value, like):
    return ov.op.Constant(like.get_element_type(), ov.Shape([]), [value])


def swish(x, factor=1.0):
    """x sigmoid(factor x)"""
    return op.swish(x, scalar(factor, x))


ACTIVATIONS = {"relu": op.relu, "sigmoid": op.sigmoid, "tanh": op.tanh, "exp": op.exp, "silu": swish, "swish": swish,
               "gelu": lambda x: op.gelu(x, "erf"), "gelu_tanh": lambda x: op.gelu(x, "tanh"),
               "gelu_sigmoid": lambda x: swish(x, 1.702), "softmax": lambda x: op.softmax(x, -1)}
OPERATIONS = [*ACTIVATIONS, *row_functions.OPERATIONS]


def sizes(*numbers):
    return op.constant(np.array(numbers, np.int64))


def repeat_heads(x, group):
    sequences, heads, positions, width = x.get_shape()
    wide = op.broadcast(op.unsqueeze(x, sizes(2)), sizes(sequences, heads, group, positions, width))
    return op.reshape(wide, sizes(sequences, heads * group, positions, width), False)


class Graph(row_functions.Library):
    add, multiply, activation = staticmethod(op.add), staticmethod(op.multiply), staticmethod(ACTIVATIONS.__getitem__)

    def cast(self, x, dtype):
        return op.convert(x, TYPES[dtype])

    def linear(self, x, weight, bias):
        y = op.matmul(x, constant(weight), False, True)
        return y if bias is None else op.add(y, constant(bias))

    def norm(self, rms, eps):
        def norm(x, weight, bias):
            if rms:
                mean = op.reduce_mean(op.power(x, scalar(2.0, x)), sizes(-1), True)
                y = op.multiply(x, op.divide(scalar(1.0, x), op.sqrt(op.add(mean, scalar(eps, x)))))
            else:
                y = op.mvn(x, sizes(-1), True, eps, "INSIDE_SQRT")
            y = y if weight is None else op.multiply(y, constant(weight))
            return y if bias is None else op.add(y, constant(bias))

        return norm

    def halves(self, columns):
        return lambda x: [op.slice(x, *map(sizes, (*each, 1))) for each in columns]

    def attention(self, shape, q, k, v):
        """One new token for each head of keys is as many queries as heads share it; for a prompt keys and values of fewer
        heads are repeated."""
        group = shape["heads"] // shape["kv_heads"]
        if shape["cached"]:
            sequences, heads, _, width = q.get_shape()
            shared = op.reshape(q, sizes(sequences, heads // group, group, width), False)
            return op.reshape(op.scaled_dot_product_attention(shared, k, v), sizes(sequences, heads, 1, width), False)
        if group > 1:
            k, v = [repeat_heads(each, group) for each in (k, v)]
        return op.scaled_dot_product_attention(q, k, v, causal=True)


# ---- OpenVINO's C interface ----


class Shape(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64))]


class Property(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


FILES = glob.glob(os.path.join(os.path.dirname(ov.__file__), "libs", "libopenvino_c.so*"))
LIBRARY = ctypes.CDLL(FILES[0])
last_error = function(LIBRARY, "ov_get_last_err_msg", ctypes.c_char_p)


def made(name, *arguments):
    """What a function of the library makes, whose last argument is where it goes."""
    result = POINTER()
    types = [type(each) for each in arguments] + [POINTER]
    if function(LIBRARY, name, ctypes.c_int, *types)(*arguments, ctypes.cast(ctypes.byref(result), POINTER)):
        raise RuntimeError((last_error() or name.encode()).decode())
    return result


def free(kind, each):
    function(LIBRARY, f"ov_{kind}_free", None, POINTER)(each)


CORE = made("ov_core_create")
infer = function(LIBRARY, "ov_infer_request_infer", ctypes.c_int, POINTER)


class Request:
    """A compiled graph with tensors for one operand set."""

    def __init__(self, compiled, request, inputs, outputs):
        self.kept = compiled, inputs, outputs
        self.request = made("ov_compiled_model_create_infer_request", compiled.model)
        for way, dtype, arrays in (("input", "dtype", inputs), ("output", "output_dtype", outputs)):
            bind = function(LIBRARY, f"ov_infer_request_set_{way}_tensor_by_index", ctypes.c_int, POINTER,
                            ctypes.c_size_t, POINTER)
            for index, array in enumerate(arrays):
                shape = Shape(array.ndim, (ctypes.c_int64 * array.ndim)(*array.shape))
                tensor = made("ov_tensor_create_from_host_ptr", ctypes.c_int(CODES[request[dtype]]), shape,
                              POINTER(array.ctypes.data))
                if bind(self.request, index, tensor):
                    raise RuntimeError(f"cannot bind an {way}")
                free("tensor", tensor)

    def __del__(self):
        free("infer_request", self.request)


class Compiled:
    def __init__(self, request, inputs, weights):
        parameters = [op.parameter(list(array.shape), TYPES[request["dtype"]]) for array in inputs]
        model = ov.Model(Graph().row(request)(parameters, weights), parameters)
        xml = os.path.join(os.path.dirname(request["output_paths"][0]), "openvino.xml")
        ov.serialize(model, xml)
        # Where the processor has no arithmetic in halves the plug-in takes bf16 for them, which rounds eight times as coarsely.
        precision = "f32" if request["dtype"] == "f16" and "FP16" not in CAPABILITIES else request["dtype"]
        options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(request["threads"]),
                   "INFERENCE_PRECISION_HINT": precision, "ENABLE_CPU_PINNING": "NO"}
        properties = (Property * len(options))(*[(key.encode(), value.encode()) for key, value in options.items()])
        try:
            read = made("ov_core_read_model", CORE, ctypes.c_char_p(xml.encode()), ctypes.c_char_p(None))
            self.model = made("ov_core_compile_model_props", CORE, read, ctypes.c_char_p(b"CPU"),
                              ctypes.c_size_t(len(options)), properties)
            free("model", read)
        finally:
            for file in (xml, xml.replace(".xml", ".bin")):
                os.remove(file)

    def __del__(self):
        free("compiled_model", self.model)


def prepare(request):
    row, weights = BoundRow(request), tensors_of(request)
    # Weights live in a compiled graph: as many as there are sets, if they are to come from memory.
    graphs = [Compiled(request, row.inputs[0], weights) for _ in range(request["sets"] if "layer" in request else 1)]
    calls = []
    for index, (inputs, outputs) in enumerate(zip(row.inputs, row.outputs)):
        made_request = Request(graphs[index % len(graphs)], request, inputs, outputs)
        calls.append(CCall((infer, made_request.request), kept=made_request))
    return calls, row.results, ""

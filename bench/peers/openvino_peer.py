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
from c_calls import POINTER, CCall, function
from openvino import opset13 as op
from row_tensors import GATES, IN_GRAPHS, BoundRow, eps_of, gate_and_up, layer_vector, matrices_of, vector

VERSION = ov.get_version().split("-")[0]
TITLE = "OpenVINO"
FAMILY = "OpenVINO"
HOW = "a graph compiled for the CPU with the latency hint; synchronous calls in C on tensors bound beforehand"
INTERFACE = "C"
LACKS = "no blocks; packed units are slices of a tensor; a decode has no cache of its own, which OpenVINO has for models"
DTYPES = ["f32", "f16", "bf16"]
TYPES = {"f32": ov.Type.f32, "f16": ov.Type.f16, "bf16": ov.Type.bf16}
CODES = {"f32": 4, "f16": 3, "bf16": 2}  # ov_element_type_e


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
OPERATIONS = [*ACTIVATIONS, *IN_GRAPHS]


def norm(x, request, rms):
    weight, bias = vector(request, "weight"), vector(request, "bias")
    axis = op.constant(np.array([-1], np.int64))
    if rms:
        mean = op.reduce_mean(op.power(x, scalar(2.0, x)), axis, True)
        y = op.multiply(x, op.divide(scalar(1.0, x), op.sqrt(op.add(mean, scalar(eps_of(request), x)))))
    else:
        y = op.mvn(x, axis, True, eps_of(request), "INSIDE_SQRT")
    if weight is not None:
        y = op.multiply(y, constant(weight))
    return y if bias is None else op.add(y, constant(bias))


def layer(inputs, request, matrices):
    form = request["layer"]
    x = norm(inputs[0], request, form["norm"] == "rms") if form["norm"] != "none" else inputs[0]
    bias, bias_down = layer_vector(request, "bias"), layer_vector(request, "bias_down")
    y = op.matmul(x, constant(matrices["first"]), False, True)
    if bias is not None:
        y = op.add(y, constant(bias))
    if form["activation"] != "identity":
        y = ACTIVATIONS[form["activation"]](y)
    if form["gated"]:
        y = op.multiply(y, op.matmul(x, constant(matrices["up"]), False, True))
    if form["is_ffn"]:
        y = op.matmul(y, constant(matrices["down"]), False, True)
        if bias_down is not None:
            y = op.add(y, constant(bias_down))
    if form["has_residual"]:
        y = op.add(y, inputs[0 if form["is_ffn"] else 1])
    return [y]


def attention(inputs, request):
    """One new token for each head of keys is as many queries as heads share it; for a prompt keys and values of fewer
    heads are repeated."""
    shape = request["attention"]
    q, k, v = inputs
    group = shape["heads"] // shape["kv_heads"]
    if shape["cached"]:
        sequences, heads, _, width = q.get_shape()
        shared = op.reshape(q, op.constant(np.array([sequences, heads // group, group, width], np.int64)), False)
        y = op.scaled_dot_product_attention(shared, k, v)
        return [op.reshape(y, op.constant(np.array([sequences, heads, 1, width], np.int64)), False)]
    if group > 1:
        k, v = [repeat_heads(each, group) for each in (k, v)]
    return [op.scaled_dot_product_attention(q, k, v, causal=True)]


def repeat_heads(x, group):
    sequences, heads, positions, width = x.get_shape()
    wide = op.unsqueeze(x, op.constant(np.array([2], np.int64)))
    wide = op.broadcast(wide, op.constant(np.array([sequences, heads, group, positions, width], np.int64)))
    return op.reshape(wide, op.constant(np.array([sequences, heads * group, positions, width], np.int64)), False)


def build(inputs, request, matrices):
    operation = request["operation"]
    if operation.endswith("_packed"):
        inputs = [op.slice(inputs[0], *[op.constant(np.array([each], np.int64)) for each in (*columns, 1)])
                  for columns in gate_and_up(request)]
        operation = operation.removesuffix("_packed")
    if operation in ACTIVATIONS:
        return [ACTIVATIONS[operation](inputs[0])]
    if operation in GATES:
        return [op.multiply(ACTIVATIONS[GATES[operation]](inputs[0]), inputs[1])]
    if operation in ("add", "bilinear"):
        return [(op.add if operation == "add" else op.multiply)(*inputs)]
    if operation == "cast":
        return [op.convert(inputs[0], TYPES[request["output_dtype"]])]
    if operation.startswith("add_"):
        total = op.add(*inputs)
        return [total, norm(total, request, "rms" in operation)]
    if operation == "attention":
        return attention(inputs, request)
    return layer(inputs, request, matrices) if matrices else [norm(inputs[0], request, operation == "rms_norm")]


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
    def __init__(self, request, inputs, matrices):
        parameters = [op.parameter(list(array.shape), TYPES[request["dtype"]]) for array in inputs]
        model = ov.Model(build(parameters, request, matrices), parameters)
        self.outputs = len(model.outputs)
        xml = os.path.join(os.path.dirname(request["output_paths"][0]), "openvino.xml")
        ov.serialize(model, xml)
        options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(request["threads"]),
                   "INFERENCE_PRECISION_HINT": request["dtype"], "ENABLE_CPU_PINNING": "NO"}
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
    matrices = matrices_of(request)
    row = BoundRow(request, 2 if request["operation"].startswith("add_") else 1)
    # Weights live in a compiled graph: as many as there are sets, if they are to come from memory.
    graphs = [Compiled(request, row.inputs[0], matrices) for _ in range(request["sets"] if matrices else 1)]
    calls = []
    for index, (inputs, outputs) in enumerate(zip(row.inputs, row.outputs)):
        made_request = Request(graphs[index % len(graphs)], request, inputs, outputs)
        calls.append(CCall((infer, made_request.request), kept=made_request))
    return calls, row.results, ""

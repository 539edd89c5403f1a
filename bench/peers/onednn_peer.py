"""The peer "onednn": oneDNN's primitives, made once for the shape and executed on the same tensors.

Gated units are an eltwise primitive with a binary multiplication as post-operation, which is how oneDNN fuses them, or two
primitives where it has only reference code for that; add+norm is two primitives. Layers are products with the weights in the
format that oneDNN chooses for the shape, reordered beforehand; bias, activation, gated unit and residual are post-operations of
the products: the gate's product activates it, up's multiplies by it. Works with every version 3; RMSNorm came in one of them.
"""

import ctypes
import os
import sys

import numpy as np
from c_calls import POINTER, CCall, first_library, function
from row_functions import GATES as UNITS
from row_tensors import BoundRow, aligned, as_f32, tensor_of, tensors_of

PLACES = [os.environ[name] + below for name, below in (("dnnl_ROOT", "/lib"), ("dnnl_DIR", "/../..")) if name in os.environ]
PLACES += [sys.prefix + "/peers/onednn/lib", sys.prefix + "/lib"]  # built by bench/peers/install, or the wheel
LIBRARY = first_library(*[place + "/libdnnl.so.3" for place in PLACES])
INT, INT64, FLOAT, NOTHING = ctypes.c_int, ctypes.c_int64, ctypes.c_float, POINTER()


class Version(ctypes.Structure):
    _fields_ = [("numbers", INT * 3), ("hash", ctypes.c_char_p)]


found = function(LIBRARY, "dnnl_version", ctypes.POINTER(Version))().contents

VERSION = f"{'.'.join(map(str, found.numbers))} ({(found.hash or b'').decode()[:10]})"
TITLE = "oneDNN"
FAMILY = "oneDNN"
HOW = "primitives made for the shape beforehand, weights in the format it chooses, on OpenMP"
INTERFACE = "C"
LACKS = "no packed units, no attention, no blocks; no RMSNorm in its first versions"
DTYPES = ["f32", "f16", "bf16"]
CAPS_ISA = True

# Numbers of its C interface.
CPU, IN_ORDER, INFERENCE = 1, 1, 0x60
TYPES = {"f32": 3, "f16": 1, "bf16": 2}
ANY, A, AB, BA = 1, 2, 3, 14  # formats
SRC, SRC_1, DST, WEIGHTS, BIAS, SCALE, SHIFT, POST_OPERATION = 1, 2, 17, 33, 41, 51, 52, 0x8000  # arguments
ADD, MULTIPLY, SOFTMAX = 0x1FFF0, 0x1FFF1, 0x30000
USE_SCALE, USE_SHIFT, RMS_NORM = 2, 4, 0x20
IMPLEMENTATION, WEIGHTS_FORMAT = 8, 0x83  # queries
UNIMPLEMENTED = 3
SWISH = 0x2C
ACTIVATIONS = {"relu": (0x20, 0), "gelu": (0x31, 0), "gelu_tanh": (0x2B, 0), "gelu_sigmoid": (SWISH, 1.702),
               "silu": (SWISH, 1), "swish": (SWISH, 1), "sigmoid": (0x29, 0), "tanh": (0x21, 0), "exp": (0x2A, 0)}
BINARY = {"add": ADD, "bilinear": MULTIPLY}
GATES = {name: gate for name, gate in UNITS.items() if name not in BINARY}
OPERATIONS = [*ACTIVATIONS, *GATES, *BINARY, "softmax", "cast", "rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm",
              "linear", "ffn"]


def check(status, what):
    if status == UNIMPLEMENTED:
        raise NotImplementedError("has none for this type on this processor")
    if status:
        raise RuntimeError(f"dnnl_{what} failed with status {status}")


def made(name, *arguments):
    """What a function makes, whose first argument is where it goes."""
    result = POINTER()
    check(function(LIBRARY, "dnnl_" + name, INT, POINTER, *map(type, arguments))(ctypes.byref(result), *arguments), name)
    return result


ENGINE = made("engine_create", INT(CPU), ctypes.c_size_t(0))
STREAM = made("stream_create", ENGINE, INT(IN_ORDER))
execute = function(LIBRARY, "dnnl_primitive_execute", INT, POINTER, POINTER, INT, POINTER)
wait = function(LIBRARY, "dnnl_stream_wait", INT, POINTER)
query = function(LIBRARY, "dnnl_primitive_desc_query", INT, POINTER, INT, INT, POINTER)
query_format = function(LIBRARY, "dnnl_primitive_desc_query_md", POINTER, POINTER, INT, INT)
size_of = function(LIBRARY, "dnnl_memory_desc_get_size", ctypes.c_size_t, POINTER)
append_eltwise = function(LIBRARY, "dnnl_post_ops_append_eltwise", INT, POINTER, INT, FLOAT, FLOAT)
append_binary = function(LIBRARY, "dnnl_post_ops_append_binary", INT, POINTER, INT, POINTER)
set_post_operations = function(LIBRARY, "dnnl_primitive_attr_set_post_ops", INT, POINTER, POINTER)


class Argument(ctypes.Structure):
    _fields_ = [("number", INT), ("memory", POINTER)]


def is_reference(implementation):
    """Code that oneDNN has for completeness, hundreds of times slower than what anyone would use. "simple:any" is its
    catch-all for reorders, which are casts here."""
    return implementation.startswith("ref") or implementation == "simple:any"


class Steps:
    """The primitives of a row, with the tensors of every operand set; what it makes goes when it goes."""

    def __init__(self, request):
        self.handles, self.arrays, self.steps = [], [], []
        self.request, self.dtype = request, request["dtype"]
        self.row = BoundRow(request)
        self.inputs, self.outputs = [[[self.memory(array, dtype) for array in each] for each in zip(*sets)] for sets, dtype in
                                     ((self.row.inputs, self.dtype), (self.row.outputs, request["output_dtype"]))]

    def __del__(self):
        for kind, handle in reversed(self.handles):
            function(LIBRARY, f"dnnl_{kind}_destroy", INT, POINTER)(handle)

    def make(self, kind, name, *arguments):
        self.handles.append((kind, made(name, *arguments)))
        return self.handles[-1][1]

    # ---- tensors ----

    def shape(self, dtype, tag, *sizes):
        return self.make("memory_desc", "memory_desc_create_with_tag", INT(len(sizes)), (INT64 * 12)(*sizes),
                         INT(TYPES[dtype]), INT(tag))

    def memory_at(self, shape, array):
        self.arrays.append(array)
        return self.make("memory", "memory_create", shape, ENGINE, POINTER(array.ctypes.data))

    def memory(self, array, dtype):
        return self.memory_at(self.shape(dtype, AB, *array.shape), array)

    def between(self, width):
        """One tensor for all operand sets, as a caller has it for what lies between two products."""
        zeros = np.zeros((self.request["rows"], width), np.float32 if self.dtype == "f32" else np.uint16)
        return [self.memory(aligned(zeros), self.dtype)] * self.request["sets"]

    # ---- primitives ----

    def description(self, kind, *arguments):
        return self.make("primitive_desc", kind + "_primitive_desc_create", *arguments)

    @staticmethod
    def implementation(description):
        text = ctypes.c_char_p()
        query(description, IMPLEMENTATION, 0, ctypes.byref(text))
        return text.value.decode()

    def append(self, description, tensors):
        """A step with a tensor of each set, or one for all, by its argument."""
        primitive = self.make("primitive", "primitive_create", description)
        sets = range(self.request["sets"])
        arguments = [(Argument * len(tensors))(*[(number, each[i] if isinstance(each, list) else each)
                                                 for number, each in tensors.items()]) for i in sets]
        self.steps.append((primitive, self.implementation(description), arguments))

    def attributes(self, *post_operations):
        """Activations are (algorithm, alpha), others (algorithm, shape)."""
        operations = self.make("post_ops", "post_ops_create")
        for algorithm, what in post_operations:
            is_binary = isinstance(what, POINTER)
            check(append_binary(operations, algorithm, what) if is_binary else append_eltwise(operations, algorithm, what, 0),
                  "post_ops_append")
        attributes = self.make("primitive_attr", "primitive_attr_create")
        check(set_post_operations(attributes, operations), "primitive_attr_set_post_ops")
        return attributes

    def eltwise(self, shape, activation, attributes=NOTHING):
        algorithm, alpha = ACTIVATIONS[activation]
        return self.description("eltwise_forward", ENGINE, INT(INFERENCE), INT(algorithm), shape, shape, FLOAT(alpha),
                                FLOAT(0), attributes)

    def append_binary(self, shape, algorithm, one, other, y):
        self.append(self.description("binary", ENGINE, INT(algorithm), shape, shape, shape, NOTHING),
                    {SRC: one, SRC_1: other, DST: y})

    def append_norm(self, shape, rms, x, y):
        flags, tensors = RMS_NORM if rms else 0, {SRC: x, DST: y}
        for key, flag, argument in (("norm_weight", USE_SCALE, SCALE), ("norm_bias", USE_SHIFT, SHIFT)):
            values = tensor_of(self.request, key)
            if values is not None:  # in f32, whatever the type of the tensors, which all versions take
                flags |= flag
                tensors[argument] = self.memory_at(self.shape("f32", A, len(values)), aligned(as_f32(values)))
        try:
            description = self.description("layer_normalization_forward", ENGINE, INT(INFERENCE), shape, shape, NOTHING,
                                           FLOAT(self.request["eps"]), ctypes.c_uint(flags), NOTHING)
        except RuntimeError:  # older versions do not know the flag
            if rms:
                raise NotImplementedError("has no RMSNorm in this version") from None
            raise
        self.append(description, tensors)

    def append_product(self, matrix, bias, x, y, activation="identity", binary=None, other=None):
        """y = activation(x matrix^T + bias), then `binary` with `other`."""
        rows, (out, width) = self.request["rows"], matrix.shape
        shapes = [self.shape(self.dtype, tag, *sizes) for tag, *sizes in ((AB, rows, width), (ANY, width, out), (AB, rows, out))]
        post_operations = [] if activation == "identity" else [(ACTIVATIONS[activation][0], 1)]
        tensors = {SRC: x, DST: y, WEIGHTS: []}
        if bias is not None:
            tensors[BIAS] = self.memory(aligned(bias.reshape(1, -1)), self.dtype)
        if binary is not None:
            tensors[POST_OPERATION * (len(post_operations) + 1) | SRC_1] = other
            post_operations.append((binary, shapes[2]))
        description = self.description("matmul", ENGINE, *shapes[:2],
                                       NOTHING if bias is None else self.shape(self.dtype, AB, 1, out), shapes[2],
                                       self.attributes(*post_operations))
        wanted = query_format(description, WEIGHTS_FORMAT, 0)
        plain = self.memory_at(self.shape(self.dtype, BA, width, out), matrix)
        for _ in range(self.request["sets"]):
            tensors[WEIGHTS].append(self.memory_at(POINTER(wanted), aligned(np.empty(size_of(wanted), np.uint8))))
            reorder = self.description("reorder", self.shape(self.dtype, BA, width, out), ENGINE, POINTER(wanted), ENGINE, NOTHING)
            arguments = (Argument * 2)((SRC, plain), (DST, tensors[WEIGHTS][-1]))
            check(execute(self.make("primitive", "primitive_create", reorder), STREAM, 2, arguments), "primitive_execute")
            check(wait(STREAM), "stream_wait")
        self.append(description, tensors)

    # ---- rows ----

    def layer(self):
        request, form, x, y = self.request, self.request["layer"], self.inputs[0], self.outputs[0]
        d, d_out = request["d"], form["d_out"]
        weights = tensors_of(request)
        bias, bias_down = weights.get("bias"), weights.get("bias_down")
        residual = (ADD, self.inputs[0 if form["is_ffn"] else 1]) if form["has_residual"] else ()
        if form["norm"] != "none":
            x = self.between(d)
            self.append_norm(self.shape(self.dtype, AB, request["rows"], d), form["norm"] == "rms", self.inputs[0], x)
        hidden = self.between(d_out) if form["is_ffn"] else y
        if form["gated"]:
            gate = self.between(d_out)
            self.append_product(weights["first"], bias, x, gate, form["activation"])
            self.append_product(weights["up"], None, x, hidden, "identity", MULTIPLY, gate)
        else:
            self.append_product(weights["first"], bias, x, hidden, form["activation"], *([] if form["is_ffn"] else residual))
        if form["is_ffn"]:
            self.append_product(weights["down"], bias_down, hidden, y, "identity", *residual)

    def gated(self, shape, activation):
        (gate, up), y = self.inputs, self.outputs[0]
        fused = self.eltwise(shape, activation, self.attributes((MULTIPLY, shape)))
        if is_reference(self.implementation(fused)):
            self.append(self.eltwise(shape, activation), {SRC: gate, DST: y})
            self.append_binary(shape, MULTIPLY, y, up, y)
        else:
            self.append(fused, {SRC: gate, DST: y, POST_OPERATION | SRC_1: up})

    def rows(self):
        operation, x, y = self.request["operation"], self.inputs[0], self.outputs[0]
        sizes = self.request["rows"], self.request["d"]
        shape = self.shape(self.dtype, AB, *sizes)
        if operation in ACTIVATIONS:
            self.append(self.eltwise(shape, operation), {SRC: x, DST: y})
        elif operation in GATES:
            self.gated(shape, GATES[operation])
        elif operation in BINARY:
            self.append_binary(shape, BINARY[operation], *self.inputs, y)
        elif operation == "softmax":
            self.append(self.description("softmax_forward", ENGINE, INT(INFERENCE), INT(SOFTMAX), shape, shape, INT(1), NOTHING),
                        {SRC: x, DST: y})
        elif operation == "cast":
            to = self.shape(self.request["output_dtype"], AB, *sizes)
            self.append(self.description("reorder", shape, ENGINE, to, ENGINE, NOTHING), {SRC: x, DST: y})
        elif operation.startswith("add_"):
            self.append_binary(shape, ADD, *self.inputs, y)
            self.append_norm(shape, "rms" in operation, y, self.outputs[1])
        else:
            self.append_norm(shape, operation == "rms_norm", x, y)


def prepare(request):
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(request["threads"])
    steps = Steps(request)
    steps.layer() if "layer" in request else steps.rows()
    implementations = [implementation for _, implementation, _ in steps.steps]
    if any(map(is_reference, implementations)):
        raise NotImplementedError("has only reference code for it on this processor")
    calls = [CCall(*[(execute, primitive, STREAM, len(arguments[i]), arguments[i]) for primitive, _, arguments in steps.steps],
                   kept=steps) for i in range(request["sets"])]
    return calls, steps.row.results, "by its kernel " + " + ".join(implementations)

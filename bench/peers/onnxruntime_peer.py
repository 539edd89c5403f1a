"""The peer "onnxruntime": a small ONNX model for each row, through one session for each set of weights.

Operators are those that its optimizer knows as fused: SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization,
SkipLayerNormalization, QuickGelu (x sigmoid(a x)), Attention of opset 23; matrices are initializers, which it packs
beforehand. Models are made in Python and run through the C interface, with inputs and outputs bound to memory that
stays.
"""

import ctypes
import glob
import os

import numpy as np
import onnxruntime as ort
from c_calls import POINTER, CCall
from onnx import TensorProto, helper, numpy_helper
from row_tensors import GATES, IN_GRAPHS, BoundRow, eps_of, gate_and_up, layer_vector, matrices_of, vector

VERSION = ort.__version__
TITLE = "ONNX Runtime"
FAMILY = "ONNX Runtime"
HOW = "an ONNX model for the row with all optimizations, in a session; called in C with memory bound beforehand"
INTERFACE = "C"
LACKS = "no bf16 on CPUs, no norms without weight, no blocks; packed units are slices of a tensor"
DTYPES = ["f32", "f16"]
MS = "com.microsoft"
QUICK = {"gelu_sigmoid": 1.702, "silu": 1.0, "swish": 1.0}
UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "softmax": "Softmax"}
OPERATIONS = [*QUICK, *UNARY, "gelu", "gelu_tanh", *IN_GRAPHS]
ONNX_TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}


class Model:
    """An ONNX graph under construction; methods add nodes and return the names of their results."""

    def __init__(self):
        self.nodes, self.constants, self.count = [], [], 0

    def name(self):
        self.count += 1
        return f"t{self.count}"

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), self.name()))
        return self.constants[-1].name

    def node(self, kind, inputs, outputs=None, domain="", **attributes):
        results = outputs or [self.name()]
        self.nodes.append(helper.make_node(kind, inputs, results, domain=domain, **attributes))
        return results[0]

    def activation(self, name, x):
        if name in QUICK:
            return self.node("QuickGelu", [x], domain=MS, alpha=QUICK[name])
        if name in ("gelu", "gelu_tanh"):
            return self.node("Gelu", [x], approximate="tanh" if name == "gelu_tanh" else "none")
        if name == "softmax":
            return self.node("Softmax", [x], axis=-1)
        return self.node(UNARY[name], [x])

    def norm(self, x, request, rms):
        weight, bias = vector(request, "weight"), vector(request, "bias")
        if weight is None:
            raise NotImplementedError("its norms have a weight")
        names = [x, self.constant(weight)] + ([self.constant(bias)] if bias is not None else [])
        kind = "SimplifiedLayerNormalization" if rms else "LayerNormalization"
        return self.node(kind, names, axis=-1, epsilon=eps_of(request))

    def add_norm(self, request, rms):
        parameters = [self.constant(vector(request, "weight"))]
        if not rms:
            parameters.append(self.constant(vector(request, "bias")))
        kind = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
        self.node(kind, ["x0", "x1", *parameters], ["y1", "", "", "y0"], MS, epsilon=eps_of(request))

    def layer(self, request, matrices):
        form = request["layer"]
        x = self.norm("x0", request, form["norm"] == "rms") if form["norm"] != "none" else "x0"
        bias, bias_down = layer_vector(request, "bias"), layer_vector(request, "bias_down")
        weights = {name: self.constant(matrix.T) for name, matrix in matrices.items()}
        y = self.node("MatMul", [x, weights["first"]])
        if bias is not None:
            y = self.node("Add", [y, self.constant(bias)])
        if form["activation"] != "identity":
            y = self.activation(form["activation"], y)
        if form["gated"]:
            y = self.node("Mul", [y, self.node("MatMul", [x, weights["up"]])])
        if form["is_ffn"]:
            y = self.node("MatMul", [y, weights["down"]])
            if bias_down is not None:
                y = self.node("Add", [y, self.constant(bias_down)])
        if form["has_residual"]:
            y = self.node("Add", [y, "x0" if form["is_ffn"] else "x1"])
        return y

    def build(self, request, matrices):
        operation, gate, up = request["operation"], "x0", "x1"
        if operation.endswith("_packed"):
            operation = operation.removesuffix("_packed")
            gate, up = [self.node("Slice", ["x0", *[self.constant(np.array([each])) for each in (start, stop, 1, step)]])
                        for start, stop, step in gate_and_up(request)]
        if operation in ("add_rms_norm", "add_layer_norm"):
            self.add_norm(request, operation == "add_rms_norm")
            return
        if operation in ("rms_norm", "layer_norm"):
            self.norm("x0", request, operation == "rms_norm")
        elif operation in GATES:
            self.node("Mul", [self.activation(GATES[operation], gate), up])
        elif operation in ("add", "bilinear"):
            self.node("Add" if operation == "add" else "Mul", [gate, up])
        elif operation == "cast":
            self.node("Cast", ["x0"], to=ONNX_TYPES[request["output_dtype"]])
        elif operation in ("linear", "ffn"):
            self.layer(request, matrices)
        elif operation == "attention":
            self.node("Attention", ["x0", "x1", "x2"], is_causal=int(request["attention"]["cached"] == 0))
        else:
            self.activation(operation, "x0")
        self.nodes[-1].output[0] = "y0"  # the last node made it

    def serialized(self, row, request):
        def info(name, dtype, shape):
            return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], shape)

        inputs = [info(f"x{i}", request["dtype"], each.shape) for i, each in enumerate(row.inputs[0])]
        outputs = [info(f"y{i}", request["output_dtype"], each.shape) for i, each in enumerate(row.outputs[0])]
        graph = helper.make_graph(self.nodes, "row", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


# ---- its C interface ----
# A table of functions whose places never change.

LIBRARY = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(ort.__file__), "capi", "libonnxruntime.so*"))[0])
PLACES = {
    "GetErrorMessage": 2, "CreateEnv": 3, "CreateSessionFromArray": 8, "CreateSessionOptions": 10,
    "SetSessionGraphOptimizationLevel": 23, "SetIntraOpNumThreads": 24, "CreateTensorWithDataAsOrtValue": 49,
    "CreateCpuMemoryInfo": 69, "ReleaseSession": 95, "ReleaseValue": 96, "ReleaseSessionOptions": 100,
    "RunWithBinding": 133, "CreateIoBinding": 134, "ReleaseIoBinding": 135, "BindInput": 136, "BindOutput": 137,
}  # fmt: skip
API_VERSION, WARNINGS_OF_ERRORS, ALL_OPTIMIZATIONS, ARENA, DEFAULT_MEMORY = 13, 4, 99, 1, 0


class ApiBase(ctypes.Structure):
    _fields_ = [("get_api", ctypes.CFUNCTYPE(POINTER, ctypes.c_uint32)), ("version", POINTER)]


LIBRARY.OrtGetApiBase.restype = ctypes.POINTER(ApiBase)
API = ctypes.cast(LIBRARY.OrtGetApiBase().contents.get_api(API_VERSION), ctypes.POINTER(POINTER))


def api(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(API[PLACES[name]])


def call(name, *arguments):
    status = api(name, POINTER, *[type(each) for each in arguments])(*arguments)
    if status:
        raise RuntimeError(api("GetErrorMessage", ctypes.c_char_p, POINTER)(status).decode())


def made(name, *arguments):
    """What a function makes, whose last argument is where it goes."""
    result = POINTER()
    call(name, *arguments, ctypes.cast(ctypes.byref(result), POINTER))
    return result


def release(kind, each):
    api("Release" + kind, None, POINTER)(each)


ENVIRONMENT = made("CreateEnv", ctypes.c_int(WARNINGS_OF_ERRORS), ctypes.c_char_p(b"halyard-bench"))
MEMORY = made("CreateCpuMemoryInfo", ctypes.c_int(ARENA), ctypes.c_int(DEFAULT_MEMORY))
run_with_binding = api("RunWithBinding", POINTER, POINTER, POINTER, POINTER)


class Session:
    def __init__(self, model, threads):
        options = made("CreateSessionOptions")
        call("SetSessionGraphOptimizationLevel", options, ctypes.c_int(ALL_OPTIMIZATIONS))
        call("SetIntraOpNumThreads", options, ctypes.c_int(threads))
        self.session = made("CreateSessionFromArray", ENVIRONMENT, ctypes.c_char_p(model),
                            ctypes.c_size_t(len(model)), options)
        release("SessionOptions", options)

    def __del__(self):
        release("Session", self.session)


class Binding:
    """A session with the tensors of one operand set."""

    def __init__(self, session, request, inputs, outputs):
        self.kept = session, inputs, outputs
        self.binding = made("CreateIoBinding", session.session)
        for way, name, dtype, arrays in (("Input", "x", "dtype", inputs), ("Output", "y", "output_dtype", outputs)):
            for index, array in enumerate(arrays):
                shape = (ctypes.c_int64 * array.ndim)(*array.shape)
                value = made("CreateTensorWithDataAsOrtValue", MEMORY, POINTER(array.ctypes.data),
                             ctypes.c_size_t(array.nbytes), shape, ctypes.c_size_t(array.ndim),
                             ctypes.c_int(ONNX_TYPES[request[dtype]]))
                call("Bind" + way, self.binding, ctypes.c_char_p(f"{name}{index}".encode()), value)
                release("Value", value)

    def __del__(self):
        release("IoBinding", self.binding)


def prepare(request):
    matrices = matrices_of(request)
    row = BoundRow(request, 2 if request["operation"].startswith("add_") else 1)
    model = Model()
    model.build(request, matrices)
    serialized = model.serialized(row, request)
    # Weights live in a session: as many as there are sets, if they are to come from memory.
    sessions = [Session(serialized, request["threads"]) for _ in range(request["sets"] if matrices else 1)]
    calls = []
    for index, (inputs, outputs) in enumerate(zip(row.inputs, row.outputs)):
        session = sessions[index % len(sessions)]
        binding = Binding(session, request, inputs, outputs)
        calls.append(CCall((run_with_binding, session.session, None, binding.binding), kept=binding))
    return calls, row.results, ""

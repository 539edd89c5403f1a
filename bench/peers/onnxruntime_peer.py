"""The peer "onnxruntime": a small ONNX model for each row, through one session for each set of weights.

Operators are those that its optimizer knows as fused: SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization,
SkipLayerNormalization, QuickGelu (x sigmoid(a x)), Attention of opset 23; matrices are initializers, which it packs
beforehand. Quantized ones are those of MatMulNBits, with the codes and scales of halyard_quantization. Models are made in Python and run through the C interface, with inputs and outputs bound to memory that
stays.
"""

import ctypes
import glob
import os
import weakref

import numpy as np
import onnxruntime as ort
import row_functions
from c_calls import POINTER, CCall
from codes import CODES, quantized
from onnx import TensorProto, helper, numpy_helper
from row_tensors import BoundRow, tensors_of

VERSION = ort.__version__
TITLE = "ONNX Runtime"
FAMILY = "ONNX Runtime"
HOW = "an ONNX model for the row with all optimizations, in sessions that share threads; called in C with memory bound beforehand"
INTERFACE = "C"
LACKS = "no bf16 on CPUs, no norms without weight, no blocks, no Q4_K; packed units are slices of a tensor"
DTYPES = ["f32", "f16"]
MS = "com.microsoft"
QUICK = {"gelu_sigmoid": 1.702, "silu": 1.0, "swish": 1.0}
UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "softmax": "Softmax"}
# MatMulNBits may quantize its activations to 8 bits, by as many as share a scale. That is what models for processors are exported
# with, and faster than f32.
ACTIVATIONS_IN_8_BITS = 4
OPERATIONS = [*QUICK, *UNARY, *CODES, "gelu", "gelu_tanh", *row_functions.OPERATIONS]
ONNX_TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}


def packed(codes, bits):
    """Codes of 8 bits as they are; of 4 two in a byte, the first in its low half."""
    if bits == 8:
        return codes
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], -1)
    return codes[..., ::2] | codes[..., 1::2] << 4


class Model(row_functions.Library):
    """An ONNX graph under construction; methods add nodes and return the names of their results."""

    def __init__(self, request):
        self.request = request
        self.nodes, self.constants, self.count = [], [], 0

    def name(self):
        self.count += 1
        return f"t{self.count}"

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), self.name()))
        return self.constants[-1].name

    def node(self, kind, *inputs, outputs=None, domain="", **attributes):
        results = outputs or [self.name()]
        self.nodes.append(helper.make_node(kind, inputs, results, domain=domain, **attributes))
        return results[0]

    def add(self, x, y):
        return self.node("Add", x, y)

    def multiply(self, x, y):
        return self.node("Mul", x, y)

    def cast(self, x, dtype):
        return self.node("Cast", x, to=ONNX_TYPES[dtype])

    def linear(self, x, weight, bias):
        form = CODES.get(self.request["operation"])
        y = self.node("MatMul", x, self.constant(weight.T)) if form is None else self.product_with_codes(x, weight, *form)
        return y if bias is None else self.add(y, self.constant(bias))

    def product_with_codes(self, x, weight, bits, group, asymmetric):
        codes, scales, zeros = quantized(weight.astype(np.float32), bits, group, asymmetric)
        constants = [packed(codes, bits), scales.astype(weight.dtype)] + ([packed(zeros, bits)] if asymmetric else [])
        return self.node("MatMulNBits", x, *map(self.constant, constants), domain=MS, N=weight.shape[0], K=weight.shape[1],
                         bits=bits, block_size=group, accuracy_level=ACTIVATIONS_IN_8_BITS)

    def attention(self, shape, *inputs):
        return self.node("Attention", *inputs, is_causal=int(shape["cached"] == 0))

    def activation(self, name):
        if name in QUICK:
            return lambda x: self.node("QuickGelu", x, domain=MS, alpha=QUICK[name])
        if name in ("gelu", "gelu_tanh"):
            return lambda x: self.node("Gelu", x, approximate="tanh" if name == "gelu_tanh" else "none")
        return lambda x: self.node(UNARY[name], x)  # Softmax is that of the last axis

    def parameters(self, weight, bias):
        if weight is None:
            raise NotImplementedError("its norms have a weight")
        return [self.constant(each) for each in (weight, bias) if each is not None]

    def norm(self, rms, eps):
        kind = "SimplifiedLayerNormalization" if rms else "LayerNormalization"
        return lambda x, *vectors: self.node(kind, x, *self.parameters(*vectors), axis=-1, epsilon=eps)

    def add_norm(self, rms, eps):
        kind = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"

        def add_norm(x, residual, *vectors):
            y, total = self.name(), self.name()
            self.node(kind, x, residual, *self.parameters(*vectors), outputs=[y, "", "", total], domain=MS, epsilon=eps)
            return [total, y]

        return add_norm

    def halves(self, columns):
        return lambda x: [self.node("Slice", x, *[self.constant(np.array([each])) for each in (start, stop, 1, step)])
                          for start, stop, step in columns]

    def serialized(self, names, row, request):
        def info(name, dtype, shape):
            return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], shape)

        inputs = [info(f"x{i}", request["dtype"], each.shape) for i, each in enumerate(row.inputs[0])]
        outputs = [info(name, request["output_dtype"], each.shape) for name, each in zip(names, row.outputs[0])]
        graph = helper.make_graph(self.nodes, "row", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


# ---- its C interface ----
# A table of functions whose places never change.

LIBRARY = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(ort.__file__), "capi", "libonnxruntime.so*"))[0])
PLACES = {
    "GetErrorMessage": 2, "CreateSessionFromArray": 8, "CreateSessionOptions": 10,
    "SetSessionGraphOptimizationLevel": 23, "SetIntraOpNumThreads": 24, "CreateTensorWithDataAsOrtValue": 49,
    "CreateCpuMemoryInfo": 69, "ReleaseEnv": 92, "ReleaseSession": 95, "ReleaseValue": 96, "ReleaseSessionOptions": 100,
    "CreateEnvWithGlobalThreadPools": 119, "DisablePerSessionThreads": 120, "CreateThreadingOptions": 121,
    "ReleaseThreadingOptions": 122, "SetGlobalIntraOpNumThreads": 147,
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


MEMORY = made("CreateCpuMemoryInfo", ctypes.c_int(ARENA), ctypes.c_int(DEFAULT_MEMORY))
run_with_binding = api("RunWithBinding", POINTER, POINTER, POINTER, POINTER)


class Environment:
    """Its threads serve all sessions of a row, which take turns. A session's own threads would sleep when its turn comes, or wait in
    a loop while another session needs the processor."""

    current = staticmethod(lambda: None)

    @classmethod
    def with_threads(cls, threads):
        """A process has one environment: if another row still has it, it keeps that row's threads."""
        environment = cls.current()
        if environment is None:
            environment = cls(threads)
            cls.current = weakref.ref(environment)
        return environment

    def __init__(self, threads):
        options, self.threads = made("CreateThreadingOptions"), threads
        call("SetGlobalIntraOpNumThreads", options, ctypes.c_int(threads))
        self.environment = made("CreateEnvWithGlobalThreadPools", ctypes.c_int(WARNINGS_OF_ERRORS),
                                ctypes.c_char_p(b"halyard-bench"), options)
        release("ThreadingOptions", options)

    def __del__(self):
        release("Env", self.environment)


class Session:
    def __init__(self, model, threads):
        self.environment = Environment.with_threads(threads)
        options = made("CreateSessionOptions")
        call("SetSessionGraphOptimizationLevel", options, ctypes.c_int(ALL_OPTIMIZATIONS))
        if self.environment.threads == threads:
            call("DisablePerSessionThreads", options)
        else:
            call("SetIntraOpNumThreads", options, ctypes.c_int(threads))
        self.session = made("CreateSessionFromArray", self.environment.environment, ctypes.c_char_p(model),
                            ctypes.c_size_t(len(model)), options)
        release("SessionOptions", options)

    def __del__(self):
        release("Session", self.session)


class Binding:
    """A session with the tensors of one operand set."""

    def __init__(self, session, request, names, inputs, outputs):
        self.kept = session, inputs, outputs
        self.binding = made("CreateIoBinding", session.session)
        for way, names, dtype, arrays in (("Input", ["x0", "x1", "x2"], "dtype", inputs),
                                          ("Output", names, "output_dtype", outputs)):
            for name, array in zip(names, arrays):
                shape = (ctypes.c_int64 * array.ndim)(*array.shape)
                value = made("CreateTensorWithDataAsOrtValue", MEMORY, POINTER(array.ctypes.data),
                             ctypes.c_size_t(array.nbytes), shape, ctypes.c_size_t(array.ndim),
                             ctypes.c_int(ONNX_TYPES[request[dtype]]))
                call("Bind" + way, self.binding, ctypes.c_char_p(name.encode()), value)
                release("Value", value)

    def __del__(self):
        release("IoBinding", self.binding)


def prepare(request):
    row, model, weights = BoundRow(request), Model(request), tensors_of(request)
    names = model.row(request)([f"x{i}" for i in range(len(row.inputs[0]))], weights)
    serialized = model.serialized(names, row, request)
    # Weights live in a session: as many as there are sets, if they are to come from memory.
    sessions = [Session(serialized, request["threads"]) for _ in range(request["sets"] if "layer" in request else 1)]
    calls = []
    for index, (inputs, outputs) in enumerate(zip(row.inputs, row.outputs)):
        session = sessions[index % len(sessions)]
        binding = Binding(session, request, names, inputs, outputs)
        calls.append(CCall((run_with_binding, session.session, None, binding.binding), kept=binding))
    return calls, row.results, "activations in 8 bits" if request["operation"] in CODES else ""

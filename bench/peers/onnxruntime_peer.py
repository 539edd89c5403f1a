"""The peer "onnxruntime": a small ONNX model for each row, through one session for each set of weights.

Inputs and outputs are bound beforehand to memory that stays. Operators are those that its optimizer knows as fused:
SimplifiedLayerNormalization, SkipSimplifiedLayerNormalization, SkipLayerNormalization, QuickGelu (x sigmoid(a x)),
FastGelu, Attention of opset 23; matrices are initializers, which it packs beforehand.
"""

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from row_tensors import DTYPES as NUMPY_TYPES
from row_tensors import attention_inputs, eps_of, inputs_of, layer_vector, matrices_of, vector

VERSION = ort.__version__
DTYPES = ["f32", "f16"]
MS = "com.microsoft"
QUICK = {"gelu_sigmoid": 1.702, "silu": 1.0, "swish": 1.0}
UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "softmax": "Softmax"}
GATES = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu"}
OPERATIONS = [
    *QUICK,
    *UNARY,
    *GATES,
    "gelu",
    "gelu_tanh",
    "rms_norm",
    "layer_norm",
    "add_rms_norm",
    "add_layer_norm",
    "add",
    "bilinear",
    "cast",
    "linear",
    "ffn",
    "attention",
]
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

    def add_norm(self, request, rms, total, y):
        weight, bias = self.constant(vector(request, "weight")), vector(request, "bias")
        if rms:
            self.node(
                "SkipSimplifiedLayerNormalization",
                ["x0", "x1", weight],
                [y, "", "", total],
                MS,
                epsilon=eps_of(request),
            )
        else:
            self.node(
                "SkipLayerNormalization",
                ["x0", "x1", weight, self.constant(bias)],
                [y, "", "", total],
                MS,
                epsilon=eps_of(request),
            )

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
        operation = request["operation"]
        if operation in ("add_rms_norm", "add_layer_norm"):
            self.add_norm(request, operation == "add_rms_norm", "y0", "y1")
            return 2
        if operation in ("rms_norm", "layer_norm"):
            self.norm("x0", request, operation == "rms_norm")
        elif operation in GATES:
            self.node("Mul", [self.activation(GATES[operation], "x0"), "x1"])
        elif operation in ("add", "bilinear"):
            self.node("Add" if operation == "add" else "Mul", ["x0", "x1"])
        elif operation == "cast":
            self.node("Cast", ["x0"], to=ONNX_TYPES[request["output_dtype"]])
        elif operation in ("linear", "ffn"):
            self.layer(request, matrices)
        elif operation == "attention":
            self.node("Attention", ["x0", "x1", "x2"], is_causal=int(request["attention"]["cached"] == 0))
        else:
            self.activation(operation, "x0")
        self.nodes[-1].output[0] = "y0"  # the last node made it
        return 1

    def serialized(self, inputs, request, output_shape, outputs):
        def info(name, dtype, shape):
            return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], shape)

        graph = helper.make_graph(
            self.nodes,
            "row",
            [info(f"x{i}", request["dtype"], each.shape) for i, each in enumerate(inputs)],
            [info(f"y{i}", request["output_dtype"], output_shape) for i in range(outputs)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def sessions(model_bytes, threads, count):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    return [ort.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"]) for _ in range(count)]


def prepare(request):
    is_attention = request["operation"] == "attention"
    inputs = attention_inputs(request) if is_attention else inputs_of(request)
    matrices = matrices_of(request) if "layer" in request else {}
    width = request["d"] if "layer" not in request or request["layer"]["is_ffn"] else request["layer"]["d_out"]
    shape = inputs[0].shape if is_attention else (request["rows"], width)
    model = Model()
    outputs = model.build(request, matrices)
    # Weights live in a session: as many as there are sets, if they are to come from memory.
    made = sessions(
        model.serialized(inputs, request, shape, outputs), request["threads"], request["sets"] if matrices else 1
    )
    bindings, arrays = [], []
    for i in range(request["sets"]):
        session = made[i % len(made)]
        binding = session.io_binding()
        x = [array if i == 0 else array.copy() for array in inputs]
        y = [np.zeros(shape, NUMPY_TYPES[request["output_dtype"]]) for _ in range(outputs)]
        for number, array in enumerate(x):
            binding.bind_ortvalue_input(f"x{number}", ort.OrtValue.ortvalue_from_numpy(array))
        for number, array in enumerate(y):
            binding.bind_output(f"y{number}", "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        arrays.append((x, y))
        bindings.append((session, binding))

    def results():
        y = arrays[0][1]
        return [np.ascontiguousarray(y[0].swapaxes(1, 2))] if is_attention else y

    calls = [
        lambda session=session, binding=binding: session.run_with_iobinding(binding) for session, binding in bindings
    ]
    return calls, results, ""

"""The peer "openvino": a small graph for each row, compiled for the CPU, whose plug-in fuses what it knows.

RMSNorm is written as its formula and becomes one node, as do LayerNorm (MVN with scale and shift), SwiGLU, the scaled
dot product of attention, and the products of an FFN with what follows them. Inputs and outputs are tensors that stay.
"""

import numpy as np
import openvino as ov
from openvino import opset13 as op
from row_tensors import DTYPES as NUMPY_TYPES
from row_tensors import attention_inputs, eps_of, inputs_of, layer_vector, matrices_of, vector

VERSION = ov.get_version().split("-")[0]
DTYPES = ["f32", "f16"]
GATES = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu"}


def swish(x, factor=1.0):
    """x sigmoid(factor x)"""
    return op.swish(x, op.constant(np.array(factor, x.get_element_type().to_dtype())))


ACTIVATIONS = {
    "relu": op.relu,
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "exp": op.exp,
    "silu": swish,
    "swish": swish,
    "gelu": lambda x: op.gelu(x, "erf"),
    "gelu_tanh": lambda x: op.gelu(x, "tanh"),
    "gelu_sigmoid": lambda x: swish(x, 1.702),
    "softmax": lambda x: op.softmax(x, -1),
}
OPERATIONS = [
    *ACTIVATIONS,
    *GATES,
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
CORE = ov.Core()


def norm(x, request, rms):
    weight, bias = vector(request, "weight"), vector(request, "bias")
    kind = x.get_element_type().to_dtype()

    def scalar(value):
        return op.constant(np.array(value, kind))

    axis = op.constant(np.array([-1], np.int64))
    if rms:
        mean = op.reduce_mean(op.power(x, scalar(2.0)), axis, True)
        y = op.multiply(x, op.divide(scalar(1.0), op.sqrt(op.add(mean, scalar(eps_of(request))))))
    else:
        y = op.mvn(x, axis, True, eps_of(request), "INSIDE_SQRT")
    if weight is not None:
        y = op.multiply(y, op.constant(weight))
    return y if bias is None else op.add(y, op.constant(bias))


def layer(inputs, request, matrices):
    form = request["layer"]
    x = norm(inputs[0], request, form["norm"] == "rms") if form["norm"] != "none" else inputs[0]
    bias, bias_down = layer_vector(request, "bias"), layer_vector(request, "bias_down")
    y = op.matmul(x, op.constant(matrices["first"]), False, True)
    if bias is not None:
        y = op.add(y, op.constant(bias))
    if form["activation"] != "identity":
        y = ACTIVATIONS[form["activation"]](y)
    if form["gated"]:
        y = op.multiply(y, op.matmul(x, op.constant(matrices["up"]), False, True))
    if form["is_ffn"]:
        y = op.matmul(y, op.constant(matrices["down"]), False, True)
        if bias_down is not None:
            y = op.add(y, op.constant(bias_down))
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
    if operation in ACTIVATIONS:
        return [ACTIVATIONS[operation](inputs[0])]
    if operation in GATES:
        return [op.multiply(ACTIVATIONS[GATES[operation]](inputs[0]), inputs[1])]
    if operation in ("add", "bilinear"):
        return [(op.add if operation == "add" else op.multiply)(*inputs)]
    if operation == "cast":
        return [op.convert(inputs[0], request["output_dtype"])]
    if operation.startswith("add_"):
        total = op.add(*inputs)
        return [total, norm(total, request, "rms" in operation)]
    if operation == "attention":
        return attention(inputs, request)
    return layer(inputs, request, matrices) if matrices else [norm(inputs[0], request, operation == "rms_norm")]


def compile_model(arrays, request, matrices):
    parameters = [op.parameter(list(array.shape), array.dtype.type) for array in arrays]
    model = ov.Model(build(parameters, request, matrices), parameters)
    return CORE.compile_model(
        model,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": request["threads"],
            "INFERENCE_PRECISION_HINT": request["dtype"],
            "ENABLE_CPU_PINNING": False,
        },
    )


def wait_for(run):
    """Runs it without what `infer` does besides: copying the outputs into new arrays."""
    run.start_async()
    run.wait()


def prepare(request):
    is_attention = request["operation"] == "attention"
    inputs = attention_inputs(request) if is_attention else inputs_of(request)
    matrices = matrices_of(request) if "layer" in request else {}
    width = request["d"] if not matrices or request["layer"]["is_ffn"] else request["layer"]["d_out"]
    shape = inputs[0].shape if is_attention else (request["rows"], width)
    # Weights live in a compiled model: as many as there are sets, if they are to come from memory.
    models = [compile_model(inputs, request, matrices) for _ in range(request["sets"] if matrices else 1)]
    calls, kept = [], []
    for i in range(request["sets"]):
        run = models[i % len(models)].create_infer_request()
        x = [array if i == 0 else array.copy() for array in inputs]
        y = [np.zeros(shape, NUMPY_TYPES[request["output_dtype"]]) for _ in models[0].outputs]
        for number, array in enumerate(x):
            run.set_input_tensor(number, ov.Tensor(array, shared_memory=True))
        for number, array in enumerate(y):
            run.set_output_tensor(number, ov.Tensor(array, shared_memory=True))
        kept.append((run, x, y))
        calls.append(lambda run=run: wait_for(run))

    def results():
        y = kept[0][2]
        return [np.ascontiguousarray(y[0].swapaxes(1, 2))] if is_attention else y

    decodes = is_attention and request["attention"]["cached"]
    return calls, results, "without a cache of its own, which it has for whole models" if decodes else ""

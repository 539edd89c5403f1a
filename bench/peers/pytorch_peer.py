"""The peer "pytorch": PyTorch without a compiler. Outputs are written into given tensors where it can (`out=`)."""

import numpy as np
import torch
import torch_rows
import torch_training
from codes import CODES, quantized
from row_functions import GATES
from row_tensors import as_f32, heads_first, inputs_of, tensor_of
from torch_rows import BACKWARD, DTYPES, F, NumPy, copies, differentiated, in_types_of_row, prepared, row_of, tensor

VERSION = torch.__version__
TITLE = "PyTorch eager"
FAMILY = "PyTorch"
HOW = ("eager, into given outputs where it can; its f32 GEMM is MKL, that of 16-bit types oneDNN; matrices of 4 bits through "
       "_weight_int4pack_mm_for_cpu; gradients are given what a forward call keeps")
LACKS = "has no derivatives of activations apart, no partial norm, no Q8_0 and no Q4_K; without out= it allocates its output"
FOUR_BITS = [name for name, (bits, _, _) in CODES.items() if bits == 4]
OPERATIONS = [*torch_rows.OPERATIONS, *FOUR_BITS, "linear" + BACKWARD, "ffn" + BACKWARD, "attention" + BACKWARD, "block" + BACKWARD,
              "sgd_step", "adamw_step", "cross_entropy", "embedding" + BACKWARD, "training_step"]
CAPS_ISA = True

aten = torch.ops.aten
torch.set_grad_enabled(False)

# Activations into y.
UNARY_INTO = {
    "softmax": lambda x, y: torch.softmax(x, -1, out=y),
    "relu": lambda x, y: aten.relu.out(x, out=y),
    "gelu": lambda x, y: aten.gelu.out(x, out=y),
    "gelu_tanh": lambda x, y: aten.gelu.out(x, approximate="tanh", out=y),
    "silu": lambda x, y: aten.silu.out(x, out=y),
    "swish": lambda x, y: aten.silu.out(x, out=y),
    "sigmoid": lambda x, y: torch.sigmoid(x, out=y),
    "tanh": lambda x, y: torch.tanh(x, out=y),
    "exp": lambda x, y: torch.exp(x, out=y),
    "cast": lambda x, y: y.copy_(x),
}
BINARY_INTO = {"add": torch.add, "bilinear": torch.mul}
IN_PLACE = {
    "identity": lambda x: x,
    "gelu_tanh": lambda x: aten.gelu_(x, approximate="tanh"),
    "silu": aten.silu_,
}


def kernel_into(operation, layout, inputs, y):
    """A call that writes into y; None if PyTorch has none."""
    x = inputs[0]
    if operation in UNARY_INTO:
        return lambda into=UNARY_INTO[operation]: into(x, y)
    if operation in BINARY_INTO:
        return lambda into=BINARY_INTO[operation]: into(x, inputs[1], out=y)
    if operation in GATES:
        activate, up = UNARY_INTO[GATES[operation]], inputs[1]

        def gated():  # the product in place
            activate(x, y)
            torch.mul(y, up, out=y)

        return gated
    if operation == "glu_packed" and layout == "up_gate":  # PyTorch's own gated unit
        return lambda: aten.glu.out(x, -1, out=y)
    return None


def linear_into(module, inputs, y):
    """One product without a gate, with activation and residual in place."""
    x, w, bias, layer = inputs[0], module.first.t(), getattr(module, "bias", None), module.form
    activate, residual = IN_PLACE[layer["activation"]], inputs[1] if layer["has_residual"] else None

    def call():
        torch.mm(x, w, out=y) if bias is None else torch.addmm(bias, x, w, out=y)
        activate(y)
        if residual is not None:
            y.add_(residual)

    if bias is None and residual is None and layer["activation"] == "identity":
        return lambda: torch.mm(x, w, out=y)
    return call


# ---- matrices of 4 bits ----


def products_with_codes(request):
    """In bf16 whatever the row's type is: in f32 and f16 its product is a plain loop, of many times the time."""
    torch.set_num_threads(request["threads"])
    _, group, asymmetric = form = CODES[request["operation"]]
    weight, x = as_f32(tensor_of(request, "first")), tensor(inputs_of(request)[0])
    if weight.shape[1] % group:
        raise NotImplementedError("has whole groups alone")
    codes, scales, zeros = quantized(weight, *form)
    scales = scales.astype(np.float32)
    pairs = np.stack([scales, scales * (8 - zeros.astype(np.float32))], -1).swapaxes(0, 1)  # (code - 8) scale + the second
    matrix = aten._convert_weight_to_int4pack_for_cpu(torch.from_numpy(codes.reshape(weight.shape).astype(np.int32)), 1)
    sets = copies([x, matrix, torch.from_numpy(pairs.copy()).bfloat16()], request["sets"])

    def call_of(x, matrix, pairs):
        return lambda: aten._weight_int4pack_mm_for_cpu(x.bfloat16(), matrix, group, pairs).to(x.dtype)

    calls = [call_of(*each) for each in sets]
    note = "allocates its output" if request["dtype"] == "bf16" else "allocates its output; product in bf16"
    return calls, lambda: [NumPy(calls[0]())], note


# ---- gradients ----

# Gradients of activations are written into dx, from x or from what a forward call returned.
FROM_X = {
    "relu": lambda dy, x, dx: aten.threshold_backward.grad_input(dy, x, 0, grad_input=dx),
    "gelu": lambda dy, x, dx: aten.gelu_backward.grad_input(dy, x, grad_input=dx),
    "gelu_tanh": lambda dy, x, dx: aten.gelu_backward.grad_input(dy, x, approximate="tanh", grad_input=dx),
    "silu": lambda dy, x, dx: aten.silu_backward.grad_input(dy, x, grad_input=dx),
    "swish": lambda dy, x, dx: aten.silu_backward.grad_input(dy, x, grad_input=dx),
}
FROM_Y = {
    "sigmoid": lambda dy, y, dx: aten.sigmoid_backward.grad_input(dy, y, grad_input=dx),
    "tanh": lambda dy, y, dx: aten.tanh_backward.grad_input(dy, y, grad_input=dx),
    "exp": lambda dy, y, dx: torch.mul(dy, y, out=dx),
}
# In 16 bits these are further from the gradient than a result may be: 1 - y is that of a rounded y, and a LayerNorm's sums over
# rows are kept in 16 bits.
ROUGH = ["sigmoid", "gelu_sigmoid", "glu", "glu_packed", "layer_norm"]


def gradient_into(name, layout, inputs, dx):
    """A call that writes into dx; None if PyTorch has none."""
    x, dy = inputs[0], inputs[1]
    if name in FROM_X:
        return lambda into=FROM_X[name]: into(dy, x, dx)
    if name in FROM_Y:
        return lambda into=FROM_Y[name], y=torch_rows.ACTIVATIONS[name](x): into(dy, y, dx)
    if name == "softmax":  # the first input is the result
        return lambda: aten._softmax_backward_data.out(dy, x, -1, x.dtype, grad_input=dx)
    if name == "glu_packed" and layout == "up_gate":
        return lambda: aten.glu_backward.grad_input(dy, x, -1, grad_input=dx)
    return None


def layer_norm_gradients(request, inputs, weights):
    """By the function that autograd would call."""
    x, dy, *residual = inputs
    shape, weight = x.shape[-1:], weights.get("norm_weight")
    has_weight = weight is not None
    bias = torch.zeros_like(weight) if has_weight else None
    _, mean, rstd = aten.native_layer_norm(x, shape, weight, bias, request["eps"])
    wanted = [True, has_weight, has_weight]

    def call():
        dx, dweight, dbias = aten.native_layer_norm_backward(dy, x, shape, mean, rstd, weight, bias, wanted)
        for each in residual:
            dx.add_(each)
        return [dx, dweight, dbias] if has_weight else [dx]

    return call


def graph_gradients(request, inputs, weights):
    """Through the graph of a forward call."""
    forward, variables, of_results = differentiated(request, inputs, weights)
    variables = [each.detach().requires_grad_() for each in variables]
    with torch.enable_grad():
        results = forward(*variables)
    return lambda: torch.autograd.grad(results, variables, of_results, retain_graph=True)


def linear_gradients(request):
    """The products that autograd would call, into given outputs; dz of a gated unit by its elementwise gradients, into given memory."""
    torch.set_num_threads(request["threads"])
    form, names = request["layer"], ("first", "up")[: 2 if request["layer"]["gated"] else 1]
    weights = [tensor(tensor_of(request, name)) for name in names]
    x, dy, *sums = map(tensor, inputs_of(request))
    results = [torch.zeros_like(x), *map(torch.zeros_like, weights)]
    given, written = copies([x, dy, *sums, *weights], request["sets"]), copies(results, request["sets"])
    dgate, dup = torch.empty_like(dy), torch.empty_like(dy)
    activation, derivative = torch_rows.ACTIVATIONS[form["activation"]], FROM_X.get(form["activation"])

    def call_of(x, dy, *rest):
        sums, weights = rest[: len(rest) - len(names)], rest[len(rest) - len(names):]

        def call(dx, *dweights):
            dz = [dy]
            if sums:
                torch.mul(dy, activation(sums[0]), out=dup)
                derivative(dy * sums[1], sums[0], dgate)
                dz = [dgate, dup]
            torch.mm(dz[0], weights[0], out=dx)
            for each, weight in zip(dz[1:], weights[1:]):
                dx.addmm_(each, weight)
            for each, dweight in zip(dz, dweights):
                torch.mm(each.t(), x, out=dweight)

        return call

    calls = [lambda call=call_of(*each), into=into: call(*into) for each, into in zip(given, written)]
    return calls, lambda: map(NumPy, written[0]), ""


def ffn_gradients(request):
    """Through the graph of a forward call, which keeps what lies between."""
    torch.set_num_threads(request["threads"])
    x, dy = map(tensor, inputs_of(request)[:2])
    names = [name for name in ("first", "up", "down", "bias", "bias_down", "norm_weight", "norm_bias") if name in request["tensors"]]
    weights = [tensor(tensor_of(request, name)) for name in names]
    function = torch_rows.LIBRARY.layer(request["layer"], request["eps"])

    def call_of(dy, *tensors):
        variables = [each.requires_grad_() for each in tensors]
        with torch.enable_grad():
            [y] = function(variables[:1], dict(zip(names, variables[1:])))
        return lambda: torch.autograd.grad(y, variables, dy, retain_graph=True)

    calls = [call_of(*each) for each in copies([dy, x, *weights], request["sets"])]
    note = "given what autograd keeps of a forward call; allocates its output"
    return calls, lambda: map(NumPy, calls[0]()), note


def block_steps(request):
    """Forward and backward through a new graph."""
    row = row_of(request)
    dy = tensor(inputs_of(request)[1])

    def call_of(module, x, dy):
        variables = [x.requires_grad_(), *[getattr(module, name).requires_grad_() for name in module.names]]

        def call():
            with torch.enable_grad():
                y = module(x)
            return y.detach(), *torch.autograd.grad(y, variables, dy)

        return call

    calls = [call_of(module, x, own.view(x.shape)) for module, [x], [own] in
             zip(row.modules, row.arguments, copies([dy], request["sets"]))]

    def outputs():
        y, dx, *gradients = calls[0]()
        of_parameters = row.modules[0].in_order(dict(zip(row.modules[0].names, gradients)))
        return [NumPy(each) for each in (y, dx, *of_parameters)]

    return calls, outputs, "allocates its outputs"


def attention_gradients(request):
    """Through the graph of a forward call, which keeps y and the log-sum-exp; dy with heads first, as all tensors."""
    row, shape = row_of(request), request["attention"]
    dy = tensor(heads_first(inputs_of(request)[3], shape, shape["heads"]))

    def call_of(module, inputs, dy):
        variables = [each.detach().requires_grad_() for each in inputs]
        with torch.enable_grad():
            y = module(*variables)
        return lambda: torch.autograd.grad(y, variables, dy, retain_graph=True)

    calls = [call_of(module, inputs, own) for module, inputs, [own] in
             zip(row.modules, row.arguments, copies([dy], request["sets"]))]
    note = "given what autograd keeps of a forward call; allocates its output"
    return calls, lambda: [NumPy(each.transpose(1, 2)) for each in calls[0]()], note


# ---- optimizers ----


def optimizer_steps(request):
    """The kernels that torch.optim calls with fused=True, of the first step again and again."""
    torch.set_num_threads(request["threads"])
    sets = copies(list(map(tensor, inputs_of(request))), request["sets"])
    lr, *numbers = request["numbers"]

    def call_of(p, g, *state):
        if request["operation"] == "sgd_step":
            momentum, weight_decay = numbers
            return lambda: torch._fused_sgd_([p], [g], [state[0]], weight_decay=weight_decay, momentum=momentum, lr=lr,
                                             dampening=0.0, nesterov=False, maximize=False, is_first_step=False)
        m, v = state
        beta1, beta2, eps, weight_decay = numbers
        return lambda step=torch.ones(()): torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=lr, beta1=beta1,
                                                               beta2=beta2, weight_decay=weight_decay, eps=eps,
                                                               amsgrad=False, maximize=False)

    p, _, *state = sets[0]
    return [call_of(*each) for each in sets], lambda: map(NumPy, [p, *state]), "its fused kernel"


# ---- losses and embeddings ----


def losses(request):
    """Losses, and through their graph the gradient of the logits."""
    torch.set_num_threads(request["threads"])
    targets = torch.tensor(request["ids"])
    each_counts = torch.ones(request["rows"])

    def call_of(logits):
        variable = logits.requires_grad_()

        def call():
            with torch.enable_grad():
                of_rows = F.cross_entropy(variable, targets, reduction="none")
            return [*torch.autograd.grad(of_rows, variable, each_counts), of_rows.detach()]

        return call

    calls = [call_of(logits) for [logits] in copies(list(map(tensor, inputs_of(request))), request["sets"])]
    return calls, lambda: map(NumPy, calls[0]()), "allocates its outputs"


def embedding_gradients(request):
    """The function that autograd would call."""
    torch.set_num_threads(request["threads"])
    ids, vocabulary = torch.tensor(request["ids"]), request["vocabulary"]
    calls = [lambda dy=dy: aten.embedding_dense_backward(dy, ids, vocabulary, -1, False)
             for [dy] in copies(list(map(tensor, inputs_of(request))), request["sets"])]
    return calls, lambda: [NumPy(calls[0]())], "allocates its output"


def prepare_gradients(request, row):
    name = request["operation"].removesuffix(BACKWARD)
    if request["dtype"] != "f32" and name in ROUGH:
        raise NotImplementedError("rounds what this gradient is made of, or its sums, to 16 bits")
    calls = [gradient_into(name, request["layout"], inputs, results[0]) for inputs, results in zip(row.inputs, row.results)]
    if calls[0] is not None:
        return calls, lambda: map(NumPy, row.results[0]), "given y of a forward call" if name in FROM_Y else ""
    gradients, given = ((layer_norm_gradients, "mean and deviation") if name == "layer_norm" else
                        (graph_gradients, "what autograd keeps"))
    calls = [gradients(request, inputs, row.weights) for inputs in row.inputs]
    note = f"given {given} of a forward call; allocates its output"
    return calls, lambda: map(NumPy, in_types_of_row(calls[0]())), note


def prepare(request):
    if request["operation"] in FOUR_BITS:
        return products_with_codes(request)
    if request["operation"] == "linear" + BACKWARD:
        return linear_gradients(request)
    if request["operation"] == "ffn" + BACKWARD:
        return ffn_gradients(request)
    if request["operation"] == "block" + BACKWARD:
        return block_steps(request)
    if request["operation"] == "attention" + BACKWARD:
        return attention_gradients(request)
    if request["operation"] in ("sgd_step", "adamw_step"):
        return optimizer_steps(request)
    if request["operation"] == "cross_entropy":
        return losses(request)
    if request["operation"] == "embedding" + BACKWARD:
        return embedding_gradients(request)
    if request["operation"] == "training_step":
        return torch_training.prepare(request, fused=False)
    row = row_of(request)
    if request["operation"].endswith(BACKWARD):
        return prepare_gradients(request, row)
    if "layer" in request and not (request["layer"]["is_ffn"] or request["layer"]["gated"]):
        y = F.linear(row.arguments[0][0], row.modules[0].first)
        calls = [linear_into(module, inputs, y) for module, inputs in zip(row.modules, row.arguments)]
        return calls, lambda: [NumPy(y)], ""
    if isinstance(row, torch_rows.KernelRow):
        calls = [kernel_into(request["operation"], request["layout"], inputs, results[0])
                 for inputs, results in zip(row.inputs, row.results)]
        if calls[0] is not None:
            return calls, lambda: [NumPy(row.results[0][0])], ""
        return row.allocating, lambda: map(NumPy, row.allocating[0]()), "allocates its output"
    return prepared(row, row.modules)

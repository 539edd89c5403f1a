"""Written by python/core/make_stubs.py."""
from typing import Any, Dict, Literal, Optional, Tuple, TypeVar

_Array = TypeVar("_Array")

__version__: str


def add(a: _Array, b: _Array, *, out: Optional[_Array] = None) -> _Array:
    """a + b"""


def add_layer_norm(x: _Array, residual: _Array, weight: Optional[_Array] = None, bias: Optional[_Array] = None, eps: float = 1e-05, *, residual_out: Optional[_Array] = None, out: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """residual_out = x + residual and layer_norm() of it: both"""


def add_rms_norm(x: _Array, residual: _Array, weight: Optional[_Array] = None, eps: float = 1e-06, *, eps_outside_root: bool = False, unit_offset: bool = False, residual_out: Optional[_Array] = None, out: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """residual_out = x + residual and rms_norm() of it: both"""


def bilinear(gate: _Array, up: _Array, *, out: Optional[_Array] = None) -> _Array:
    """gate * up"""


def bilinear_backward(gate: _Array, up: _Array, dy: _Array, *, dgate: Optional[_Array] = None, dup: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """The gradients of bilinear(): dgate and dup."""


def bilinear_packed(x: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """bilinear() of gate and up in one array: [..., 2h] to [..., h]."""


def bilinear_packed_backward(x: _Array, dy: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """The gradient of bilinear_packed()."""


def cast(x: _Array, dtype: Any = None, *, out: Optional[_Array] = None) -> _Array:
    """x rounded to another dtype: that of out, or of a new array. Either is given."""


def exp(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """exp(x)"""


def exp_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = exp(x)."""


def exp_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of exp() at x."""


def geglu(gate: _Array, up: _Array, *, out: Optional[_Array] = None) -> _Array:
    """gelu(gate) * up"""


def geglu_backward(gate: _Array, up: _Array, dy: _Array, *, dgate: Optional[_Array] = None, dup: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """The gradients of geglu(): dgate and dup."""


def geglu_packed(x: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """geglu() of gate and up in one array: [..., 2h] to [..., h]."""


def geglu_packed_backward(x: _Array, dy: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """The gradient of geglu_packed()."""


def geglu_tanh(gate: _Array, up: _Array, *, out: Optional[_Array] = None) -> _Array:
    """gelu_tanh(gate) * up"""


def geglu_tanh_backward(gate: _Array, up: _Array, dy: _Array, *, dgate: Optional[_Array] = None, dup: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """The gradients of geglu_tanh(): dgate and dup."""


def geglu_tanh_packed(x: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """geglu_tanh() of gate and up in one array: [..., 2h] to [..., h]."""


def geglu_tanh_packed_backward(x: _Array, dy: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """The gradient of geglu_tanh_packed()."""


def gelu(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """x/2 * erfc(-x / sqrt(2)), exact GELU"""


def gelu_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = gelu(x)."""


def gelu_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of gelu() at x."""


def gelu_sigmoid(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """x * sigmoid(1.702 x)"""


def gelu_sigmoid_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = gelu_sigmoid(x)."""


def gelu_sigmoid_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of gelu_sigmoid() at x."""


def gelu_tanh(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"""


def gelu_tanh_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = gelu_tanh(x)."""


def gelu_tanh_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of gelu_tanh() at x."""


def get_num_threads() -> int:
    """The bound in force."""


def glu(gate: _Array, up: _Array, *, out: Optional[_Array] = None) -> _Array:
    """sigmoid(gate) * up"""


def glu_backward(gate: _Array, up: _Array, dy: _Array, *, dgate: Optional[_Array] = None, dup: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """The gradients of glu(): dgate and dup."""


def glu_packed(x: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """glu() of gate and up in one array: [..., 2h] to [..., h]."""


def glu_packed_backward(x: _Array, dy: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """The gradient of glu_packed()."""


def info() -> Dict[str, Any]:
    """Version, instruction set in use and those supported, dtypes and operations that are built in, threads."""


def layer_norm(x: _Array, weight: Optional[_Array] = None, bias: Optional[_Array] = None, eps: float = 1e-05, *, out: Optional[_Array] = None) -> _Array:
    """weight * (x - mean) / sqrt(var + eps) + bias over each row"""


def partial_rms_norm(x: _Array, weight: Optional[_Array] = None, eps: float = 1e-06, p: float = 0.0625, *, eps_outside_root: bool = False, unit_offset: bool = False, out: Optional[_Array] = None) -> _Array:
    """rms_norm() with the mean over the first ceil(p * d) features"""


def reglu(gate: _Array, up: _Array, *, out: Optional[_Array] = None) -> _Array:
    """max(0, gate) * up"""


def reglu_backward(gate: _Array, up: _Array, dy: _Array, *, dgate: Optional[_Array] = None, dup: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """The gradients of reglu(): dgate and dup."""


def reglu_packed(x: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """reglu() of gate and up in one array: [..., 2h] to [..., h]."""


def reglu_packed_backward(x: _Array, dy: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', *, out: Optional[_Array] = None) -> _Array:
    """The gradient of reglu_packed()."""


def relu(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """max(0, x)"""


def relu2(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """max(0, x)^2"""


def relu2_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = relu2(x)."""


def relu2_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of relu2() at x."""


def relu_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = relu(x)."""


def relu_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of relu() at x."""


def rms_norm(x: _Array, weight: Optional[_Array] = None, eps: float = 1e-06, *, eps_outside_root: bool = False, unit_offset: bool = False, out: Optional[_Array] = None) -> _Array:
    """weight * x / sqrt(mean(x^2) + eps) over each row"""


def set_num_threads(number: int, /) -> None:
    """Bounds the threads of later calls; 0 restores the default."""


def sigmoid(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """1 / (1 + exp(-x))"""


def sigmoid_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = sigmoid(x)."""


def sigmoid_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of sigmoid() at x."""


def silu(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """x * sigmoid(x)"""


def silu_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = silu(x)."""


def silu_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of silu() at x."""


def softmax(x: _Array, scale: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """exp(scale * (x - m)) / sum(exp(scale * (x - m))) over each row"""


def softmax_backward(y: _Array, dy: _Array, scale: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """scale * y * (dy - sum(y * dy)), the gradient of y = softmax(x)"""


def swiglu(gate: _Array, up: _Array, beta: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """swish(gate, beta) * up"""


def swiglu_backward(gate: _Array, up: _Array, dy: _Array, beta: float = 1.0, *, dgate: Optional[_Array] = None, dup: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """The gradients of swiglu(): dgate and dup."""


def swiglu_packed(x: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', beta: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """swiglu() of gate and up in one array: [..., 2h] to [..., h]."""


def swiglu_packed_backward(x: _Array, dy: _Array, layout: Literal["gate_up", "up_gate", "interleaved"] = 'gate_up', beta: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """The gradient of swiglu_packed()."""


def swish(x: _Array, beta: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """x * sigmoid(beta * x)"""


def swish_backward(x: _Array, dy: _Array, beta: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = swish(x)."""


def swish_derivative(x: _Array, beta: float = 1.0, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of swish() at x."""


def tanh(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """tanh(x)"""


def tanh_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = tanh(x)."""


def tanh_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of tanh() at x."""

"""Written by python/core/make_stubs.py."""
from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, TypeVar, Union

_Array = TypeVar("_Array")

__version__: str


class Block:
    def __init__(self, preset: Optional[Literal["original_2017", "bert", "gpt2", "llama", "qwen", "gemma", "mistral"]], weights: Mapping[str, Any], *, layout: Literal["out_in", "in_out"] = 'out_in', bits: int = 0, group: int = 0, asymmetric: bool = False, scale_dtype: Literal["f32", "f16", "bf16"] = 'f16', hidden_size: Optional[int] = None, intermediate_size: Optional[int] = None, num_attention_heads: Optional[int] = None, num_key_value_heads: Optional[int] = None, head_dim: Optional[int] = None, norm: Optional[Literal["none", "rms", "layer"]] = None, norm_placement: Optional[Literal["pre", "post", "post_sublayer", "sandwich", "double"]] = None, rms_norm_eps: Optional[float] = None, eps_outside_root: Optional[bool] = None, unit_offset: Optional[bool] = None, hidden_act: Optional[Literal["identity", "relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish", "sigmoid", "tanh", "exp", "relu2"]] = None, swish_beta: Optional[float] = None, gated_mlp: Optional[bool] = None, causal: Optional[bool] = None, sliding_window: Optional[int] = None, query_pre_attn_scalar: Optional[float] = None, attn_logit_softcapping: Optional[float] = None, rope_theta: Optional[float] = None, rope_head_dim: Optional[int] = None, rope_rotary_dim: Optional[int] = None, rope_max_positions: Optional[int] = None, rope_interleaved: Optional[bool] = None, rope_scaling: Optional[Literal["unscaled", "linear", "llama3"]] = None, rope_factor: Optional[float] = None, rope_low_freq_factor: Optional[float] = None, rope_high_freq_factor: Optional[float] = None, rope_original_max_position_embeddings: Optional[int] = None, max_position_embeddings: Optional[int] = None) -> None:
        """Attention and a feed-forward network. A field that is None is that of the preset, or 0."""

    def __call__(self, x: _Array, cache: Optional[KVCache] = None, layer: int = 0, sequences: Optional[Sequence[int]] = None, *, out: Optional[_Array] = None) -> _Array:
        """The block of x, [(batch,) T, hidden_size]; with a cache, after the tokens in its layer."""

    @property
    def config(self) -> Dict[str, Any]:
        """The fields that it was made with, zeros filled in."""

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that it packed, of biases and tables."""


class KVCache:
    def __init__(self, n_layers: int, n_kv_heads: int, head_dim: int, max_positions: int, *, n_sequences: int = 1, dtype: Literal["f32", "f16", "bf16"] = 'f32') -> None:
        """An empty cache of keys and values, whose memory is taken as it fills."""

    def __len__(self) -> int:
        """Return len(self)."""

    def append(self, k: Any, v: Any, layer: int = 0, sequences: Optional[Sequence[int]] = None) -> None:
        """Stores more keys and values [(batch,) T, n_kv_heads, head_dim] in a layer."""

    @property
    def dtype(self) -> str:
        """What is stored: 'f32', 'f16' or 'bf16'."""

    @property
    def head_dim(self) -> int:
        """Features of a head."""

    def length(self, layer: int = 0, sequence: int = 0) -> int:
        """The positions of a sequence that are filled in a layer."""

    @property
    def max_positions(self) -> int:
        """Positions that there is room for in each sequence."""

    @property
    def n_kv_heads(self) -> int:
        """Heads of keys and values."""

    @property
    def n_layers(self) -> int:
        """Layers."""

    @property
    def n_sequences(self) -> int:
        """Sequences, which are independent of each other."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes when it is full."""

    def read(self, layer: int = 0, sequence: int = 0, first: int = 0, *, k: Optional[Any] = None, v: Optional[Any] = None) -> None:
        """Copies positions from the first on into k and v, [T, n_kv_heads, head_dim]."""

    def truncate(self, length: int, sequence: int = 0) -> None:
        """Forgets what lies at and after a position of a sequence, in every layer."""


class Model:
    @property
    def config(self) -> Dict[str, Any]:
        """What the files say, by the names of transformers; of the first layer."""

    def forward(self, input_ids: _Array, cache: Optional[KVCache] = None, sequences: Optional[Sequence[int]] = None, *, token_types: Optional[_Array] = None, all_logits: bool = False, out: Optional[_Array] = None) -> _Array:
        """Logits of ids, [(batch,) T]: of each sequence's last token, or of all; in f32 if out is new."""

    def generate(self, ids: Sequence[int], max_tokens: int, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop: Optional[Sequence[int]] = None) -> List[int]:
        """A list of what stream() yields."""

    def hidden_states(self, input_ids: _Array, cache: Optional[KVCache] = None, sequences: Optional[Sequence[int]] = None, *, token_types: Optional[_Array] = None, out: Optional[_Array] = None) -> _Array:
        """What comes out of the last norm for every token; in f32 if out is new."""

    @classmethod
    def load(cls, path: Any, *, max_positions: int = 0, dtype: Optional[Literal["f32", "f16", "bf16"]] = None, bits: int = 0, group: int = 0, asymmetric: bool = False, scale_dtype: Literal["f32", "f16", "bf16"] = 'f16') -> Model:
        """A model in the files of transformers or of GGUF, which must not be changed while it is in use."""

    def make_cache(self, max_positions: int = 0, *, n_sequences: int = 1, dtype: Optional[Literal["f32", "f16", "bf16"]] = None) -> KVCache:
        """An empty cache for this model. Zero positions are all that it has, and no dtype is the embedding's."""

    @property
    def matrix_formats(self) -> Dict[str, int]:
        """How many matrices there are of each format."""

    @property
    def max_positions(self) -> int:
        """Bound of positions."""

    @property
    def nbytes(self) -> int:
        """Bytes of packed weights and tables, without the embedding and lm_head."""

    def stream(self, ids: Sequence[int], max_tokens: int, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop: Optional[Sequence[int]] = None) -> TokenStream:
        """The ids after a prompt, as they come. It ends after one of `stop`, None being the model's own end tokens."""


class Rope:
    def __init__(self, head_dim: int, max_positions: int, rope_theta: float = 10000.0, *, rotary_dim: int = 0, interleaved: bool = False, scaling: Literal["unscaled", "linear", "llama3"] = 'unscaled', factor: float = 1.0, low_freq_factor: float = 1.0, high_freq_factor: float = 4.0, original_max_position_embeddings: int = 8192) -> None:
        """The cosines and sines of positions, by which features are rotated."""

    def apply(self, x: _Array, positions: Optional[_Array] = None, *, out: Optional[_Array] = None) -> _Array:
        """x with each head's features rotated by the angles of its position, an int32 or int64."""

    def apply_backward(self, dy: _Array, positions: Optional[_Array] = None, *, out: Optional[_Array] = None) -> _Array:
        """The gradient of apply(): dy rotated by the negative angles."""

    @property
    def head_dim(self) -> int:
        """Features of a head."""

    @property
    def max_positions(self) -> int:
        """The number of positions."""

    @property
    def rotary_dim(self) -> int:
        """The features that are rotated, from the first on."""


class Stack:
    def __init__(self, blocks: Sequence[Block], weights: Mapping[str, Any], *, vocab_size: int, hidden_size: int, embedding_multiplier: float = 1.0, norm: Literal["none", "rms", "layer"] = 'rms', rms_norm_eps: float = 1e-06, eps_outside_root: bool = False, unit_offset: bool = False, final_logit_softcapping: float = 0.0, embed_norm: Literal["none", "rms", "layer"] = 'none', no_lm_head: bool = False, bits: int = 0, group: int = 0, asymmetric: bool = False, scale_dtype: Literal["f32", "f16", "bf16"] = 'f16') -> None:
        """Token embedding, blocks, a last norm and the output projection."""

    @property
    def config(self) -> Dict[str, Any]:
        """The fields that it was made with, zeros filled in."""

    def forward(self, input_ids: _Array, cache: Optional[KVCache] = None, sequences: Optional[Sequence[int]] = None, *, token_types: Optional[_Array] = None, all_logits: bool = False, out: Optional[_Array] = None) -> _Array:
        """Logits of ids, [(batch,) T]: of each sequence's last token, or of all; in f32 if out is new."""

    def hidden_states(self, input_ids: _Array, cache: Optional[KVCache] = None, sequences: Optional[Sequence[int]] = None, *, token_types: Optional[_Array] = None, out: Optional[_Array] = None) -> _Array:
        """What comes out of the last norm for every token; in f32 if out is new."""


class TokenStream:
    def __iter__(self) -> TokenStream:
        """Implement iter(self)."""

    def __next__(self) -> int:
        """Implement next(self)."""


class Weights:
    def __init__(self, array: Any, gate: Optional[Any] = None, *, layout: Literal["out_in", "in_out"] = 'out_in', norm_weight: Optional[Any] = None, norm_bias: Optional[Any] = None, norm_unit_offset: bool = False, bits: int = 0, group: int = 0, asymmetric: bool = False, scale_dtype: Literal["f32", "f16", "bf16"] = 'f16') -> None:
        """A matrix [outputs, inputs] as linear layers read it; with a gate they compute both."""

    def dequantize(self) -> Any:
        """The numbers of quantized weights, an f32 array of NumPy; a pair with the gate's of gated ones."""

    @property
    def dtype(self) -> str:
        """Type of the matrix: 'f32', 'f16' or 'bf16'; f32 of quantized weights."""

    @classmethod
    def from_bytes(cls, data: Any, /) -> Weights:
        """Weights of what to_bytes() gave, which is copied."""

    @classmethod
    def from_codes(cls, matrix: Any, format: Literal["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "int8", "compressed_tensors", "gptq", "gptq_v2", "awq"], outputs: int, inputs: int, *, bits: int = 0, group: int = 0, scales: Optional[Any] = None, zeros: Optional[Any] = None, g_idx: Optional[Any] = None) -> Weights:
        """Packs a matrix that is quantized already, in the format of a file."""

    @property
    def gated(self) -> bool:
        """Whether there is a gate beside the matrix."""

    @property
    def inputs(self) -> int:
        """The width of what they are multiplied with."""

    @classmethod
    def load(cls, path: Any, /) -> Weights:
        """Maps a file that save() wrote, which must not be changed meanwhile."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed form."""

    @property
    def norm_folded(self) -> bool:
        """Whether a norm's weight or bias is folded."""

    @property
    def outputs(self) -> int:
        """The width of the product."""

    @property
    def quantization(self) -> Optional[Dict[str, Any]]:
        """None, or bits, group and scales of codes."""

    def save(self, path: Any, /) -> None:
        """Writes the packed form to a file, which it replaces at once."""

    def to_bytes(self) -> bytes:
        """The packed form."""

    def update(self, array: Any, gate: Optional[Any] = None, *, layout: Literal["out_in", "in_out"] = 'out_in', norm_weight: Optional[Any] = None, norm_bias: Optional[Any] = None, norm_unit_offset: bool = False) -> None:
        """Packs another matrix into the memory of these weights, which no call may use meanwhile."""


def adamw_step(parameter: Any, gradient: Any, first_moment: Any, second_moment: Any, step: int, *, lr: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-08, weight_decay: float = 0.01, gradient_scale: float = 1.0, decoupled: bool = True) -> None:
    """A step, counted from 1, of torch.optim.AdamW, in place; of Adam where it is not decoupled."""


def add(a: _Array, b: _Array, *, out: Optional[_Array] = None) -> _Array:
    """a + b"""


def add_layer_norm(x: _Array, residual: _Array, weight: Optional[_Array] = None, bias: Optional[_Array] = None, eps: float = 1e-05, *, residual_out: Optional[_Array] = None, out: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """residual_out = x + residual and layer_norm() of it: both"""


def add_rms_norm(x: _Array, residual: _Array, weight: Optional[_Array] = None, eps: float = 1e-06, *, eps_outside_root: bool = False, unit_offset: bool = False, residual_out: Optional[_Array] = None, out: Optional[_Array] = None) -> Tuple[_Array, _Array]:
    """residual_out = x + residual and rms_norm() of it: both"""


def attention(q: _Array, k: _Array, v: _Array, *, scale: float = 0.0, causal: bool = False, sliding_window: int = 0, softcap: float = 0.0, q_norm_weight: Optional[_Array] = None, k_norm_weight: Optional[_Array] = None, qk_norm_eps: float = 1e-06, eps_outside_root: bool = False, unit_offset: bool = False, rope: Optional[Rope] = None, log_sum_exp: Optional[_Array] = None, out: Optional[_Array] = None) -> _Array:
    """softmax(scale q k^T + mask) v, head by head"""


def attention_backward(q: Any, k: Any, v: Any, y: Any, log_sum_exp: Any, dy: Any, *, scale: float = 0.0, causal: bool = False, sliding_window: int = 0, softcap: float = 0.0, dq: Optional[Any] = None, dk: Optional[Any] = None, dv: Optional[Any] = None) -> None:
    """The gradients of attention(), each where it is given."""


def attention_cached(q: _Array, k: _Array, v: _Array, cache: KVCache, layer: int = 0, sequences: Optional[Sequence[int]] = None, *, scale: float = 0.0, causal: bool = False, sliding_window: int = 0, softcap: float = 0.0, q_norm_weight: Optional[_Array] = None, k_norm_weight: Optional[_Array] = None, qk_norm_eps: float = 1e-06, eps_outside_root: bool = False, unit_offset: bool = False, rope: Optional[Rope] = None, log_sum_exp: Optional[_Array] = None, out: Optional[_Array] = None) -> _Array:
    """Appends k and v to a layer of the cache and attends to all that it holds of each sequence."""


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


def cross_entropy(logits: _Array, targets: _Array, *, ignore_index: Optional[int] = None, gradient_scale: float = 1.0, losses: Optional[_Array] = None, dlogits: Optional[_Array] = None) -> _Array:
    """-log(softmax(logits)[target]) of each row; its gradient where dlogits is given, which may be logits."""


def embedding_backward(input_ids: Any, dy: Any, dtable: Any, *, accumulate: bool = False) -> None:
    """Adds the rows of dy to those of their ids in dtable, which begins with zeros or what is there."""


def exp(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """exp(x)"""


def exp_backward(x: _Array, dy: _Array, *, out: Optional[_Array] = None) -> _Array:
    """dx = dy f'(x), the gradient of y = exp(x)."""


def exp_derivative(x: _Array, *, out: Optional[_Array] = None) -> _Array:
    """The derivative of exp() at x."""


def ffn(x: _Array, up: Weights, down: Weights, *, activation: Literal["identity", "relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish", "sigmoid", "tanh", "exp", "relu2"] = 'identity', beta: float = 1.0, bias: Optional[_Array] = None, bias_up: Optional[_Array] = None, bias_down: Optional[_Array] = None, norm: Literal["none", "rms", "layer"] = 'none', norm_weight: Optional[_Array] = None, norm_bias: Optional[_Array] = None, eps: float = 1e-06, eps_outside_root: bool = False, unit_offset: bool = False, deferred_norm: bool = False, residual: bool = False, sums: Optional[_Array] = None, sums_up: Optional[_Array] = None, out: Optional[_Array] = None) -> _Array:
    """[x +] (activation(N(x) up + bias) [* (N(x) V + bias_up)]) down + bias_down"""


def ffn_backward(x: Any, up: Weights, down: Weights, dy: Any, *, activation: Literal["identity", "relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish", "sigmoid", "tanh", "exp", "relu2"] = 'identity', beta: float = 1.0, norm: Literal["none", "rms", "layer"] = 'none', norm_weight: Optional[Any] = None, norm_bias: Optional[Any] = None, eps: float = 1e-06, eps_outside_root: bool = False, unit_offset: bool = False, residual: bool = False, sums: Optional[Any] = None, sums_up: Optional[Any] = None, layout: Literal["out_in", "in_out"] = 'out_in', accumulate: bool = False, dx: Optional[Any] = None, dweight: Optional[Any] = None, dweight_up: Optional[Any] = None, dweight_down: Optional[Any] = None, dbias: Optional[Any] = None, dbias_up: Optional[Any] = None, dbias_down: Optional[Any] = None, dnorm_weight: Optional[Any] = None, dnorm_bias: Optional[Any] = None) -> None:
    """The gradients of ffn(), each where it is given; of gated weights dweight and dbias are the gate's."""


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


def gradient_norm(gradients: Union[List[Any], Tuple[Any, ...]]) -> float:
    """The root of the sum of the squares of all elements."""


def info() -> Dict[str, Any]:
    """Version, instruction set in use and those supported, dtypes and operations that are built in, threads."""


def layer_norm(x: _Array, weight: Optional[_Array] = None, bias: Optional[_Array] = None, eps: float = 1e-05, *, out: Optional[_Array] = None) -> _Array:
    """weight * (x - mean) / sqrt(var + eps) + bias over each row"""


def layer_norm_backward(x: _Array, weight: Optional[_Array], dy: _Array, eps: float = 1e-05, *, dresidual_out: Optional[_Array] = None, accumulate: bool = False, out: Optional[_Array] = None, dweight: Optional[_Array] = None, dbias: Optional[_Array] = None) -> _Array:
    """dx of layer_norm(); dweight and dbias where they are given."""


def linear(x: _Array, weights: Weights, bias: Optional[_Array] = None, *, bias_up: Optional[_Array] = None, activation: Literal["identity", "relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish", "sigmoid", "tanh", "exp", "relu2"] = 'identity', beta: float = 1.0, residual: Optional[_Array] = None, row_scale: Optional[_Array] = None, row_mean: Optional[_Array] = None, sums: Optional[_Array] = None, sums_up: Optional[_Array] = None, out: Optional[_Array] = None) -> _Array:
    """residual + activation(x W + bias); of gated weights residual + activation(gate) * up"""


def linear_backward(x: Any, weights: Weights, dy: Any, *, activation: Literal["identity", "relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish", "sigmoid", "tanh", "exp", "relu2"] = 'identity', beta: float = 1.0, sums: Optional[Any] = None, sums_up: Optional[Any] = None, layout: Literal["out_in", "in_out"] = 'out_in', accumulate: bool = False, dx: Optional[Any] = None, dweight: Optional[Any] = None, dweight_up: Optional[Any] = None, dbias: Optional[Any] = None, dbias_up: Optional[Any] = None) -> None:
    """The gradients of linear(), each where it is given; of gated weights dweight and dbias are the gate's."""


class max_isa:
    def __enter__(self) -> None:
        """Sets it."""

    def __exit__(self, *_: Any) -> None:
        """Sets what was there before."""

    def __init__(self, name: Optional[str]) -> None:
        """To be the subject of a with statement; it is checked there."""


def mean_loss(losses: Any, targets: Any, *, ignore_index: Optional[int] = None) -> Tuple[float, int]:
    """The mean of the losses that count, summed in float64, and their number."""


def partial_rms_norm(x: _Array, weight: Optional[_Array] = None, eps: float = 1e-06, p: float = 0.0625, *, eps_outside_root: bool = False, unit_offset: bool = False, out: Optional[_Array] = None) -> _Array:
    """rms_norm() with the mean over the first ceil(p * d) features"""


def partial_rms_norm_backward(x: _Array, weight: Optional[_Array], dy: _Array, eps: float = 1e-06, p: float = 0.0625, *, eps_outside_root: bool = False, unit_offset: bool = False, dresidual_out: Optional[_Array] = None, accumulate: bool = False, out: Optional[_Array] = None, dweight: Optional[_Array] = None) -> _Array:
    """dx of partial_rms_norm(); dweight where it is given."""


class products:
    def __enter__(self) -> None:
        """Sets it."""

    def __exit__(self, *_: Any) -> None:
        """Sets what was there before."""

    def __init__(self, name: Optional[str]) -> None:
        """To be the subject of a with statement; it is checked there."""


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


def rms_norm_backward(x: _Array, weight: Optional[_Array], dy: _Array, eps: float = 1e-06, *, eps_outside_root: bool = False, unit_offset: bool = False, dresidual_out: Optional[_Array] = None, accumulate: bool = False, out: Optional[_Array] = None, dweight: Optional[_Array] = None) -> _Array:
    """dx of rms_norm(); dweight where it is given."""


def set_num_threads(number: int, /) -> None:
    """Bounds the threads of later calls; 0 restores the default."""


def sgd_step(parameter: Any, gradient: Any, *, momentum_buffer: Optional[Any] = None, lr: float = 0.001, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, gradient_scale: float = 1.0) -> None:
    """A step of torch.optim.SGD, in place; a momentum needs its buffer."""


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

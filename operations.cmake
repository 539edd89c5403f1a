# The table of operations: what HALYARD_OPERATIONS chooses from. An operation brings its kernels, its part of the runtime and
# the operations that it calls.
#
#   name       the operation: HALYARD_HAS_<NAME> in halyard/config.h, and a component of find_package(halyard)
#   GROUP      a name for several
#   NEEDS      operations that it calls, and f32 where it computes in f32 whatever its tensors are of
#   KERNELS    its lines of kernels.cmake, as regular expressions: a line of its name if there are none here; NONE
#   FUNCTIONS  its public functions without their halyard_, likewise
#   SOURCES    its files in runtime/, compiled if one of the operations that name them is built. Files that no operation names
#              always are.
set(unary SOURCES api/activations.cpp cpu/ops/elementwise.cpp)
set(gated SOURCES api/gated_units.cpp cpu/ops/elementwise.cpp)
set(unary_backward SOURCES api/backward/activations_backward.cpp cpu/ops/elementwise.cpp)
set(gated_backward SOURCES api/backward/gated_units_backward.cpp cpu/ops/elementwise.cpp)
foreach(name IN ITEMS relu relu2 gelu gelu_tanh gelu_sigmoid silu sigmoid tanh exp)
    halyard_operation( ${name}             GROUP activations  ${unary} )
    halyard_operation( ${name}_derivative  GROUP derivatives  ${unary} )
    halyard_operation( ${name}_backward    GROUP backward     ${unary_backward} )
endforeach()
# With beta = 1 they are their special case.
halyard_operation( swish             GROUP activations  NEEDS silu             ${unary} )
halyard_operation( swish_derivative  GROUP derivatives  NEEDS silu_derivative  ${unary} )
halyard_operation( swish_backward    GROUP backward     NEEDS silu_backward    ${unary_backward} )

foreach(name IN ITEMS glu bilinear reglu geglu geglu_tanh swiglu)
    halyard_operation( ${name}  GROUP gated_units  KERNELS "${name}(_beta1)?(_interleaved)?"  FUNCTIONS "${name}(_packed)?"  ${gated} )
    halyard_operation( ${name}_backward  GROUP backward  KERNELS "${name}(_beta1)?(_interleaved)?_backward"
                       FUNCTIONS "${name}(_packed)?_backward"  ${gated_backward} )
endforeach()

halyard_operation( add   SOURCES api/add.cpp cpu/ops/elementwise.cpp )
halyard_operation( cast  KERNELS "cast_to_.*"  SOURCES api/cast.cpp cpu/ops/elementwise.cpp )

halyard_operation( rms_norm    GROUP norms  NEEDS add cast
                   KERNELS "rms_norm(_weight|_scale)?"  FUNCTIONS "(add_|partial_)?rms_norm(_scale)?"
                   SOURCES api/rms_norm.cpp cpu/ops/norm.cpp )
halyard_operation( layer_norm  GROUP norms  NEEDS add cast
                   KERNELS "layer_norm(_weight)?(_bias)?" layer_norm_scale  FUNCTIONS "(add_)?layer_norm(_scale)?"
                   SOURCES api/layer_norm.cpp cpu/ops/norm.cpp )
foreach(name IN ITEMS rms_norm layer_norm)
    halyard_operation( ${name}_backward  GROUP backward  NEEDS cast f32  KERNELS "${name}_backward(_weight)?" column_sum
                       FUNCTIONS "(partial_)?${name}_backward"
                       SOURCES api/backward/${name}_backward.cpp cpu/ops/norm_backward.cpp cpu/ops/column_sum.cpp )
endforeach()
halyard_operation( softmax  KERNELS "softmax(_exponentials|_normalize)?"  SOURCES api/softmax.cpp cpu/ops/norm.cpp )
halyard_operation( softmax_backward  GROUP backward  SOURCES api/backward/softmax_backward.cpp cpu/ops/softmax_backward.cpp )

halyard_operation( cross_entropy  NEEDS f32
                   KERNELS "cross_entropy_(statistics|gradient)"  FUNCTIONS cross_entropy mean_loss
                   SOURCES api/cross_entropy.cpp cpu/ops/cross_entropy.cpp )
halyard_operation( embedding_backward  GROUP backward  NEEDS add f32  KERNELS NONE
                   SOURCES api/backward/embedding_backward.cpp cpu/ops/embedding_backward.cpp )

halyard_operation( linear  NEEDS cast f32
                   KERNELS "matmul_.*" "epilogue_.*" "pack_.*" "widen_.*" "expand_scales_.*" "round_to_int8_.*" column_sum
                   FUNCTIONS linear dequantize "weights_.*"
                   SOURCES api/dequantize.cpp api/linear.cpp api/weights.cpp api/weights_file.cpp api/weights_pack.cpp
                           api/weights_pack_codes.cpp core/calls/codes.cpp core/calls/layer_gradients.cpp core/calls/pack.cpp core/code_formats.cpp
                           core/handles/packed_weights.cpp cpu/linear/blocked_rows.cpp cpu/linear/dequantize.cpp
                           cpu/linear/gemm.cpp cpu/linear/gemm_epilogue.cpp cpu/linear/gemm_plan.cpp cpu/linear/linear.cpp
                           cpu/linear/microkernels.cpp cpu/linear/packing/pack.cpp cpu/linear/packing/pack_codes.cpp
                           cpu/linear/packing/ordered_codes.cpp cpu/linear/packing/quantize.cpp
                           cpu/linear/packing/repack.cpp cpu/ops/column_sum.cpp )
halyard_operation( linear_backward  GROUP backward  NEEDS linear
                   KERNELS "(relu2?|gelu(_tanh|_sigmoid)?|silu|swish|sigmoid|tanh|exp)_backward"
                           "(glu|bilinear|reglu|geglu(_tanh)?|swiglu(_beta1)?)_backward"
                   SOURCES api/backward/linear_backward.cpp cpu/linear/linear_backward.cpp )
halyard_operation( ffn  NEEDS linear rms_norm layer_norm
                   KERNELS NONE  FUNCTIONS "ffn(_hidden_size)?"  SOURCES api/ffn.cpp cpu/linear/ffn.cpp )
halyard_operation( ffn_backward  GROUP backward  NEEDS ffn linear_backward activations gated_units rms_norm_backward layer_norm_backward
                   KERNELS NONE  SOURCES api/backward/ffn_backward.cpp cpu/linear/ffn_backward.cpp )

halyard_operation( rope  NEEDS cast f32
                   KERNELS "rope(_interleaved)?"  FUNCTIONS "rope_.*"
                   SOURCES api/rope.cpp core/handles/rope.cpp core/handles/rope_table.cpp cpu/attention/rope.cpp )
halyard_operation( kv_cache  NEEDS cast f32
                   KERNELS "kv_.*"  FUNCTIONS "kv_cache_.*"
                   SOURCES api/kv_cache.cpp core/handles/kv_cache.cpp cpu/attention/kv_cache.cpp cpu/attention/kv_pack.cpp )
halyard_operation( attention  NEEDS linear rms_norm layer_norm rope kv_cache
                   KERNELS "attention_(softmax|softcap|merge|finish|log_sum_exp)"  FUNCTIONS "attention(_cached)?"
                   SOURCES api/attention.cpp cpu/attention/attention.cpp cpu/attention/attention_block.cpp
                           cpu/attention/attention_plan.cpp cpu/attention/attention_products.cpp cpu/attention/hidden_values.cpp
                           cpu/attention/key_packer.cpp cpu/attention/query_rows.cpp cpu/attention/row_tiles.cpp )
halyard_operation( attention_backward  GROUP backward  NEEDS attention
                   KERNELS attention_gradient attention_softcap_gradient row_dot
                   SOURCES api/backward/attention_backward.cpp cpu/attention/backward/attention_backward.cpp
                           cpu/attention/backward/gradient_block.cpp )

halyard_operation( gradient_norm  GROUP optimizers  NEEDS f32  KERNELS square_sum
                   SOURCES api/gradient_norm.cpp cpu/ops/gradient_norm.cpp )
halyard_operation( sgd  GROUP optimizers  NEEDS f32  KERNELS "sgd(_momentum)?"  FUNCTIONS sgd_step
                   SOURCES api/optimizers.cpp cpu/ops/optimizers.cpp )
halyard_operation( adamw  GROUP optimizers  NEEDS f32  FUNCTIONS adamw_step
                   SOURCES api/optimizers.cpp cpu/ops/optimizers.cpp )

set(blocks SOURCES blocks/block.cpp blocks/block_config.cpp blocks/block_create.cpp blocks/matrices.cpp
                   blocks/param_vectors.cpp core/handles/shared_rope.cpp cpu/ops/embedding.cpp)
halyard_operation( block  GROUP blocks  NEEDS attention ffn  KERNELS NONE  FUNCTIONS "block(_config_preset|s?_presets|_create|_update|_destroy|_get_config|_bytes|_forward)"
                   ${blocks} )
halyard_operation( block_backward  GROUP backward  NEEDS block ffn_backward attention_backward
                   KERNELS NONE  FUNCTIONS "block_(backward|forward_saving|saved_size)"
                   SOURCES blocks/block_gradients.cpp blocks/block_training.cpp )
halyard_operation( stack  GROUP blocks  NEEDS block bilinear  KERNELS NONE  FUNCTIONS "stack_(create|update|destroy|get_config|forward|hidden_states)"
                   ${blocks} blocks/stack.cpp blocks/stack_checks.cpp blocks/stack_create.cpp )
halyard_operation( stack_backward  GROUP backward  NEEDS stack block_backward embedding_backward tanh_backward
                   KERNELS NONE  FUNCTIONS "stack_(backward|forward_saving|saved_size)"  SOURCES blocks/stack_training.cpp )

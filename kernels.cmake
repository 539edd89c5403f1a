# The table of kernels. One line makes a kernel: code for every storage type and instruction set, an entry in the
# run-time dispatch, and a line in the lists that tests and benchmarks are made from (kernels/<signature>.inc).
#
#   name        the kernel, and for the public signatures the function halyard_<name>
#   signature   what it is called with:
#                 unary       halyard_<name>(context, x, y)
#                 unary_beta  halyard_<name>(context, x, beta, y)
#                 gated       halyard_<name>(context, gate, up, y) and halyard_<name>_packed(context, x, layout, y)
#                 gated_beta  the same with beta before y
#                 unary_backward, unary_beta_backward, gated_backward, gated_beta_backward
#                             the gradients of the function without the _backward of the name; processors alone have them
#                 matmul      a tile of halyard_linear's products
#                 epilogue    what halyard_linear does to the sums of a product; epilogue_gated of a gated one
#                 internal    called by functions of the runtime that choose among several kernels
#                 internal_f32, internal_f16  the same, for one type alone: what it reads and writes is never stored otherwise
#                 device      the same, on GPUs alone (docs/cuda.md)
#                 written     no generator's, but called like `generator`'s, of the instruction sets that have the family written
#                             (cmake/HalyardTarget.cmake); written_f16 the same, for f16 alone; written_matmul a tile, whose width
#                             schedules/tuned has
#   family      whose schedule and parameters it has: schedules/*/<family>.cpp; statistics are in row.cpp, epilogues in
#               matmul.cpp, and the families of devices say how many threads a block has (cmake/HalyardCuda.cmake)
#   generator   the class in generators/
#   parameters  its GeneratorParams

#               name                      signature   family       generator    parameters
halyard_kernel( relu                      unary       elementwise  activation   function=relu )
halyard_kernel( relu2                     unary       elementwise  activation   function=relu2 )
halyard_kernel( gelu                      unary       elementwise  activation   function=gelu )
halyard_kernel( gelu_tanh                 unary       elementwise  activation   function=gelu_tanh )
halyard_kernel( gelu_sigmoid              unary       elementwise  activation   function=gelu_sigmoid )
halyard_kernel( silu                      unary       elementwise  activation   function=silu )
halyard_kernel( sigmoid                   unary       elementwise  activation   function=sigmoid )
halyard_kernel( tanh                      unary       elementwise  activation   function=tanh )
halyard_kernel( exp                       unary       elementwise  activation   function=exp )
halyard_kernel( swish                     unary_beta  elementwise  activation   function=swish )

halyard_kernel( relu_derivative           unary       elementwise  activation   function=relu_derivative )
halyard_kernel( relu2_derivative          unary       elementwise  activation   function=relu2_derivative )
halyard_kernel( gelu_derivative           unary       elementwise  activation   function=gelu_derivative )
halyard_kernel( gelu_tanh_derivative      unary       elementwise  activation   function=gelu_tanh_derivative )
halyard_kernel( gelu_sigmoid_derivative   unary       elementwise  activation   function=gelu_sigmoid_derivative )
halyard_kernel( silu_derivative           unary       elementwise  activation   function=silu_derivative )
halyard_kernel( sigmoid_derivative        unary       elementwise  activation   function=sigmoid_derivative )
halyard_kernel( tanh_derivative           unary       elementwise  activation   function=tanh_derivative )
halyard_kernel( exp_derivative            unary       elementwise  activation   function=exp_derivative )
halyard_kernel( swish_derivative          unary_beta  elementwise  activation   function=swish_derivative )

halyard_kernel( glu                       gated       elementwise  gated_unit   function=sigmoid )
halyard_kernel( bilinear                  gated       elementwise  gated_unit   function=identity )
halyard_kernel( reglu                     gated       elementwise  gated_unit   function=relu )
halyard_kernel( geglu                     gated       elementwise  gated_unit   function=gelu )
halyard_kernel( geglu_tanh                gated       elementwise  gated_unit   function=gelu_tanh )
halyard_kernel( swiglu                    gated_beta  elementwise  gated_unit   function=swish )

halyard_kernel( swiglu_beta1              internal    elementwise  gated_unit   function=silu )

halyard_kernel( glu_interleaved           internal    elementwise  gated_unit   function=sigmoid interleaved=true )
halyard_kernel( bilinear_interleaved      internal    elementwise  gated_unit   function=identity interleaved=true )
halyard_kernel( reglu_interleaved         internal    elementwise  gated_unit   function=relu interleaved=true )
halyard_kernel( geglu_interleaved         internal    elementwise  gated_unit   function=gelu interleaved=true )
halyard_kernel( geglu_tanh_interleaved    internal    elementwise  gated_unit   function=gelu_tanh interleaved=true )
halyard_kernel( swiglu_interleaved        internal    elementwise  gated_unit   function=swish interleaved=true )
halyard_kernel( swiglu_beta1_interleaved  internal    elementwise  gated_unit   function=silu interleaved=true )

# Gradients: dx = dy f'(x) is a gated unit
foreach(function IN ITEMS relu relu2 gelu gelu_tanh gelu_sigmoid silu sigmoid tanh exp)
    halyard_kernel( ${function}_backward      unary_backward       elementwise  gated_unit  function=${function}_derivative )
endforeach()
halyard_kernel( swish_backward                unary_beta_backward  elementwise  gated_unit  function=swish_derivative )

halyard_kernel( glu_backward                  gated_backward       elementwise  gated_unit_backward  function=sigmoid )
halyard_kernel( bilinear_backward             gated_backward       elementwise  gated_unit_backward  function=identity )
halyard_kernel( reglu_backward                gated_backward       elementwise  gated_unit_backward  function=relu )
halyard_kernel( geglu_backward                gated_backward       elementwise  gated_unit_backward  function=gelu )
halyard_kernel( geglu_tanh_backward           gated_backward       elementwise  gated_unit_backward  function=gelu_tanh )
halyard_kernel( swiglu_backward               gated_beta_backward  elementwise  gated_unit_backward  function=swish )
halyard_kernel( swiglu_beta1_backward         internal             elementwise  gated_unit_backward  function=silu )

halyard_kernel( glu_interleaved_backward           internal  elementwise  gated_unit_backward  function=sigmoid interleaved=true )
halyard_kernel( bilinear_interleaved_backward      internal  elementwise  gated_unit_backward  function=identity interleaved=true )
halyard_kernel( reglu_interleaved_backward         internal  elementwise  gated_unit_backward  function=relu interleaved=true )
halyard_kernel( geglu_interleaved_backward         internal  elementwise  gated_unit_backward  function=gelu interleaved=true )
halyard_kernel( geglu_tanh_interleaved_backward    internal  elementwise  gated_unit_backward  function=gelu_tanh interleaved=true )
halyard_kernel( swiglu_interleaved_backward        internal  elementwise  gated_unit_backward  function=swish interleaved=true )
halyard_kernel( swiglu_beta1_interleaved_backward  internal  elementwise  gated_unit_backward  function=silu interleaved=true )

halyard_kernel( add                       internal    elementwise  add )
halyard_kernel( cast_to_f32               internal    elementwise  cast         to=f32 )
halyard_kernel( cast_to_f16               internal    elementwise  cast         to=f16 )
halyard_kernel( cast_to_bf16              internal    elementwise  cast         to=bf16 )

halyard_kernel( rms_norm                  internal    row          rms_norm     has_weight=false )
halyard_kernel( rms_norm_weight           internal    row          rms_norm     has_weight=true )
halyard_kernel( rms_norm_scale            internal    statistics   rms_norm_scale )
halyard_kernel( layer_norm_scale          internal    statistics   layer_norm_scale )
halyard_kernel( layer_norm                internal    row          layer_norm   has_weight=false has_bias=false )
halyard_kernel( layer_norm_weight         internal    row          layer_norm   has_weight=true has_bias=false )
halyard_kernel( layer_norm_bias           internal    row          layer_norm   has_weight=false has_bias=true )
halyard_kernel( layer_norm_weight_bias    internal    row          layer_norm   has_weight=true has_bias=true )
halyard_kernel( softmax                   internal    row          softmax      normalize=true )
halyard_kernel( softmax_exponentials      internal    row          softmax      normalize=false )
halyard_kernel( softmax_normalize         internal    row          softmax_normalize )

# Gradients of softmax and of the norms
halyard_kernel( softmax_backward            internal    row          softmax_backward )
halyard_kernel( rms_norm_backward           internal    row          rms_norm_backward    has_weight=false )
halyard_kernel( rms_norm_backward_weight    internal    row          rms_norm_backward    has_weight=true )
halyard_kernel( layer_norm_backward         internal    row          layer_norm_backward  has_weight=false )
halyard_kernel( layer_norm_backward_weight  internal    row          layer_norm_backward  has_weight=true )

# Cross entropy
halyard_kernel( cross_entropy_statistics    internal_f32  statistics  cross_entropy_statistics )
halyard_kernel( cross_entropy_gradient      internal_f32  row         cross_entropy_gradient )

# Add and norm in one
halyard_kernel( add_rms_norm                device    device_row   add_rms_norm    has_weight=false )
halyard_kernel( add_rms_norm_weight         device    device_row   add_rms_norm    has_weight=true )
halyard_kernel( add_layer_norm              device    device_row   add_layer_norm  has_weight=false has_bias=false )
halyard_kernel( add_layer_norm_weight       device    device_row   add_layer_norm  has_weight=true has_bias=false )
halyard_kernel( add_layer_norm_bias         device    device_row   add_layer_norm  has_weight=false has_bias=true )
halyard_kernel( add_layer_norm_weight_bias  device    device_row   add_layer_norm  has_weight=true has_bias=true )

# Matrix products on GPUs, of weights [out, in] and [in, out], dtype being that of x and weights
halyard_kernel( product_out_in              device    device_matmul  device_product  transposed=true )
halyard_kernel( product_out_in_to_f32       device    device_matmul  device_product  transposed=true to_f32=true )
halyard_kernel( product_in_out              device    device_matmul  device_product  transposed=false )
halyard_kernel( product_in_out_to_f32       device    device_matmul  device_product  transposed=false to_f32=true )

# In the order of halyard_activation.
set(layer_activations identity relu gelu gelu_tanh gelu_sigmoid silu swish sigmoid tanh exp relu2)

# What is made of their sums, and a norm's weight in the matrix, by inputs as columns or rows
foreach(function IN LISTS layer_activations)
    halyard_kernel( device_epilogue_${function}        device  device_elementwise  device_epilogue  function=${function} )
    halyard_kernel( device_epilogue_${function}_gated  device  device_elementwise  device_epilogue  function=${function} gated=true )
endforeach()
halyard_kernel( device_fold_columns         device    device_fold  device_fold )
halyard_kernel( device_fold_rows            device    device_fold  device_fold  by_row=true )

# Rows of an embedding's table, in f32, dtype being that of the table
halyard_kernel( embed_rows                  device    device_embed embed_rows )

# Matrix products: tiles of 1 to 8 rows of x, dtype being that of the weights. An instruction set has those for which
# schedules/tuned says how many panels they are wide. Calls with many tiles of rows take the tall ones, no taller but with
# fewer prefetches: each tile prefetches a smaller part of the weights that come next.
foreach(rows RANGE 1 8)
    halyard_kernel( matmul_${rows}          matmul    matmul       matmul       rows=${rows} )
endforeach()
foreach(rows RANGE 1 8)
    halyard_kernel( matmul_prefetch4_${rows}     matmul    matmul       matmul       rows=${rows} prefetch_interval=4 )
endforeach()
# A single row of a linear layer reads its weights once: they are prefetched just before that, into the first-level cache
halyard_kernel( matmul_near_1             matmul    matmul       matmul       rows=1 near=true )
# Where x is bf16 as well as the weights, and an instruction set multiplies pairs of them
foreach(rows RANGE 1 8)
    halyard_kernel( matmul_pairs_${rows}         matmul    matmul_pairs matmul_pairs rows=${rows} )
endforeach()
foreach(rows RANGE 1 8)
    halyard_kernel( matmul_pairs_prefetch4_${rows} matmul  matmul_pairs matmul_pairs rows=${rows} prefetch_interval=4 )
endforeach()
halyard_kernel( matmul_pairs_near_1       matmul    matmul_pairs matmul_pairs rows=1 near=true )
# Products by tiles of AMX, which Halide does not multiply: runtime/cpu/linear/amx
halyard_kernel( matmul_tiles              written   matmul_tiles matmul_pairs )
foreach(bits IN ITEMS 4 8)
    halyard_kernel( matmul_tiles_codes${bits}  written   matmul_tiles_codes matmul_codes )
endforeach()

# With quantized weights: codes of 4 or 8 bits, or what they are widened to for many rows, numbers in f32
foreach(rows RANGE 1 8)
    foreach(bits IN ITEMS 4 8)
        halyard_kernel( matmul_codes${bits}_${rows} matmul  matmul_codes          matmul_codes  rows=${rows} bits=${bits} )
    endforeach()
    halyard_kernel( matmul_codes32_${rows}          matmul  matmul_widened_codes  matmul_codes  rows=${rows} bits=32 )
endforeach()

# Where x is bf16, and an instruction set multiplies codes with pairs of it
foreach(rows RANGE 1 8)
    foreach(bits IN ITEMS 4 8)
        halyard_kernel( matmul_pairs_codes${bits}_${rows} written_matmul  matmul_pairs_codes  matmul_codes )
    endforeach()
endforeach()

# With x in 8 bits; dtype is that of scales, as those of codes above
foreach(rows RANGE 1 4)
    foreach(bits IN ITEMS 4 8)
        halyard_kernel( matmul_int8_codes${bits}_${rows} matmul  matmul_int8  matmul_int8  rows=${rows} bits=${bits} )
    endforeach()
endforeach()

# And one row, with scales of two levels as they are stored
foreach(kind IN ITEMS two_levels_codes4 two_levels_codes8 two_levels_signed_codes8)
    halyard_kernel( matmul_int8_${kind}_1           written_f16  matmul_int8       matmul_int8 )
endforeach()

# What is made of their sums; dtype is that of the output. halyard_activation lists the functions in this order.
foreach(function IN LISTS layer_activations)
    halyard_kernel( epilogue_${function}       epilogue        epilogue  epilogue  function=${function} )
    halyard_kernel( epilogue_${function}_gated epilogue_gated  epilogue  epilogue  function=${function} gated=true )
endforeach()

# packing
halyard_kernel( pack_out_in               internal    pack         pack         transposed=true )
halyard_kernel( pack_out_in_folded        internal    pack         pack         transposed=true folded=true )
halyard_kernel( pack_in_out               internal    pack         pack         transposed=false )
halyard_kernel( pack_in_out_folded        internal    pack         pack         transposed=false folded=true )
halyard_kernel( pack_sums                 internal    pack         pack_sums )
halyard_kernel( pack_weighted_sums        internal    pack         pack_sums    weighted=true )
halyard_kernel( widen_panels              internal_f32  pack       widen_panels )  # bf16 ones
halyard_kernel( widen_codes4              internal_f32  pack         widen_codes  bits=4 )
halyard_kernel( widen_codes8              internal_f32  pack         widen_codes  bits=8 )

# rows of x in 8 bits, by the inputs that share a scale
halyard_kernel( round_to_int8_16          internal_f32  pack         round_to_int8  unit=16 )
halyard_kernel( round_to_int8_32          internal_f32  pack         round_to_int8  unit=32 )

# sums over tokens, dtype being that of what is added
halyard_kernel( column_sum                internal    column_reduction  column_sum )

# scales of quantized weights, dtype being theirs
foreach(kind IN ITEMS plain zero minimum)
    halyard_kernel( expand_scales_${kind} internal      pack         expand_scales  kind=${kind} )
endforeach()
foreach(kind IN ITEMS two_levels two_levels_signed)
    halyard_kernel( expand_scales_${kind} internal_f16  pack         expand_scales  kind=${kind} )
endforeach()

# attention, beside its products
halyard_kernel( attention_softmax         internal_f32  attention  attention_softmax )
halyard_kernel( attention_softcap         internal_f32  attention  attention_softcap )
halyard_kernel( attention_merge           internal_f32  attention  attention_merge )
halyard_kernel( attention_log_sum_exp     internal_f32  attention  attention_log_sum_exp )
halyard_kernel( attention_gradient        internal_f32  attention  attention_gradient )
halyard_kernel( attention_softcap_gradient internal_f32  attention  attention_softcap_gradient )
halyard_kernel( row_dot                   internal_f32  statistics row_dot )
halyard_kernel( attention_finish          internal      attention  attention_finish )  # dtype is that of y

# attention on GPUs: splits of the positions, dtype being that of keys and values, and the result of all splits
halyard_kernel( attention_split           device      device_split attention_split )
halyard_kernel( attention_join            device      device_join  attention_join )  # dtype is that of y
# and between the products of a prompt, dtype being that of the weights
halyard_kernel( attention_block_sums      device      statistics          attention_block_sums )
halyard_kernel( attention_block_weights   device      device_elementwise  attention_block_weights )

# steps of optimizers, and the sums of squares of gradients
halyard_kernel( adamw                     internal_f32  optimizer  adamw )
halyard_kernel( sgd                       internal_f32  optimizer  sgd  with_momentum=false )
halyard_kernel( sgd_momentum              internal_f32  optimizer  sgd  with_momentum=true )
halyard_kernel( square_sum                internal_f32  pack       square_sum )

# rotary position embedding; keys and values into the panels of a cache and out of them, dtype being that of the panels
halyard_kernel( rope                      internal    rope         rope )
halyard_kernel( rope_interleaved          internal    rope         rope         interleaved=true )
halyard_kernel( rope_tokens               device      device_heads rope_tokens )
halyard_kernel( rope_tokens_interleaved   device      device_heads rope_tokens  interleaved=true )
halyard_kernel( kv_pack_keys              internal    kv_move      kv_move      transposed=true )
halyard_kernel( kv_pack_values            internal    kv_move      kv_move )
halyard_kernel( kv_unpack_keys            internal    kv_move      kv_move      transposed=true unpack=true )
halyard_kernel( kv_unpack_values          internal    kv_move      kv_move      unpack=true )

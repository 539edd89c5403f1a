# The files of generators. Those of a family are one program that makes kernels (cmake/host/CMakeLists.txt).
#
#   file        generators/<file>.cpp
#   family      whose schedules it calls: the files <family>.cpp in schedules/<processor>/, schedules/cpu/ and schedules/gpu/
#   generators  that it registers

#                   file                     family       generators
halyard_generators( activation               elementwise  activation )
halyard_generators( add                      elementwise  add )
halyard_generators( add_norm                 row          add_rms_norm add_layer_norm )
halyard_generators( attention_block          row          attention_block_sums )
halyard_generators( attention_block_weights  attention    attention_block_weights )
halyard_generators( attention_combine        attention    attention_merge )
halyard_generators( attention_finish         attention    attention_finish )
halyard_generators( attention_join           attention    attention_join )
halyard_generators( attention_softcap        attention    attention_softcap )
halyard_generators( attention_softmax        attention    attention_softmax )
halyard_generators( attention_split          attention    attention_split )
halyard_generators( cast                     elementwise  cast )
halyard_generators( device_layer             elementwise  device_epilogue device_fold )
halyard_generators( device_product           matmul       device_product )
halyard_generators( embed_rows               elementwise  embed_rows )
halyard_generators( epilogue                 matmul       epilogue )
halyard_generators( expand_scales            pack         expand_scales )
halyard_generators( gated_unit               elementwise  gated_unit )
halyard_generators( kv_move                  kv_move      kv_move )
halyard_generators( layer_norm               row          layer_norm )
halyard_generators( matmul                   matmul       matmul matmul_pairs )
halyard_generators( matmul_codes             matmul       matmul_codes )
halyard_generators( norm_scale               row          rms_norm_scale layer_norm_scale )
halyard_generators( pack                     pack         pack )
halyard_generators( pack_sums                pack         pack_sums )
halyard_generators( rms_norm                 row          rms_norm )
halyard_generators( rope                     rope         rope )
halyard_generators( rope_tokens              heads        rope_tokens )
halyard_generators( softmax                  row          softmax )
halyard_generators( softmax_normalize        row          softmax_normalize )
halyard_generators( widen_codes              pack         widen_codes )
halyard_generators( widen_panels             pack         widen_panels )

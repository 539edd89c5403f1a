# What the tuner may choose for the schedules, and files of parameters may hold: the legal values of every parameter. Which
# choices are worth compiling, the source file of the schedule says beside it (search_space.h).
#
#   arch       x86 or arm
#   family     see kernels.cmake
#   parameter  a GeneratorParam of the family's schedule
#   default    that of the GeneratorParam, for kernels whose parameters no file names

#                     arch  family       parameter  default  legal values
halyard_search_space( x86   attention    vectors    2        1 2 4 )
halyard_search_space( x86   attention    passes     0        0 1 2 )
halyard_search_space( x86   column_reduction vectors 8     2 4 8 )
halyard_search_space( x86   column_reduction rows    8     4 8 16 )
halyard_search_space( x86   elementwise  vectors    2        1 2 4 )
halyard_search_space( x86   epilogue     panels     1        1 2 3 4 )
halyard_search_space( x86   kv_move      side       8        4 8 16 )
halyard_search_space( x86   kv_move      rows       1        1 2 4 8 )
halyard_search_space( x86   matmul       panels     1        1 2 3 4 5 6 7 8 )
halyard_search_space( x86   matmul_codes panels     1        1 2 3 4 5 6 7 8 )
halyard_search_space( x86   matmul_widened_codes panels 1    1 2 3 4 5 6 7 8 )
halyard_search_space( x86   matmul_int8  panels     1        1 2 3 4 5 6 7 8 )
halyard_search_space( x86   matmul_pairs_codes panels 1      1 2 3 4 5 6 7 8 )
halyard_search_space( x86   matmul_pairs panels     1        1 2 3 4 5 6 7 8 )
halyard_search_space( x86   pack         side       0        0 8 16 )
halyard_search_space( x86   pack         rows       8        2 4 8 16 )
halyard_search_space( x86   rope         vectors    1        1 2 4 )
halyard_search_space( x86   rope         heads      1        1 2 4 )
halyard_search_space( x86   row          vectors    4        1 2 3 4 6 8 )
halyard_search_space( x86   row          rows       1        1 2 4 )
halyard_search_space( x86   row          passes     0        0 1 2 )
halyard_search_space( x86   statistics   passes     0        0 1 2 )

halyard_search_space( arm   attention    vectors    2        1 2 4 )
halyard_search_space( arm   column_reduction vectors 8     2 4 8 16 )
halyard_search_space( arm   column_reduction rows    8     4 8 16 )
halyard_search_space( arm   elementwise  vectors    2        1 2 4 8 )
halyard_search_space( arm   epilogue     panels     1        1 2 )
halyard_search_space( arm   kv_move      side       8        4 8 )
halyard_search_space( arm   kv_move      rows       1        1 2 4 8 )
halyard_search_space( arm   matmul       panels     1        1 2 3 4 )
halyard_search_space( arm   matmul_pairs panels     1        1 2 3 4 )
halyard_search_space( arm   matmul_codes panels     1        1 2 3 4 )
halyard_search_space( arm   matmul_widened_codes panels 1    1 2 3 4 )
halyard_search_space( arm   matmul_int8  panels     1        1 2 3 4 )
halyard_search_space( arm   pack         side       0        0 4 8 16 )
halyard_search_space( arm   pack         rows       8        2 4 8 16 )
halyard_search_space( arm   rope         vectors    1        1 2 4 )
halyard_search_space( arm   rope         heads      1        1 2 4 )
halyard_search_space( arm   row          vectors    4        1 2 4 )
halyard_search_space( arm   row          rows       1        1 2 4 )

# Objects of a target come from the cache of the user where they are there (cmake/host/compile.cpp), unless another launcher of compilers
# is named. It is a part of the build in which the programs that make kernels are.
function(halyard_cache_objects target)
    if(NOT CMAKE_CXX_COMPILER_LAUNCHER AND TARGET halyard_compile)
        get_target_property(folder halyard_compile BINARY_DIR)
        set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${folder}/halyard_compile")
        add_dependencies(${target} halyard_compile)
    endif()
endfunction()

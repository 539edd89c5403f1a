# Makes one PTX file of several that Halide wrote, and assembles it for each architecture. A kernel that spills registers or
# uses local memory fails.
#
#   cmake -DPTXAS=<program> -DARCHITECTURES=<list> -DTHREADS=<most in a block> -DSOURCES=<list> -DSTEM=<path>
#         -P AssembleDeviceKernel.cmake
#
# Writes <STEM>.ptx, <STEM>.sm_<architecture>.cubin and <STEM>.registers, lines of "kernel architecture registers threads".
#
# What changes in the PTX:
#   - an entry gets the name of its file, as Halide's names are not unique;
#   - .maxntid and .minnctapersm tell the assembler how many registers a thread may take;
#   - shared memory gets a symbol. Halide's PTX takes it to begin at address 0, which later architectures keep for themselves.
set(merged)
foreach(source IN LISTS SOURCES)
    get_filename_component(name "${source}" NAME_WE)
    file(READ "${source}" text)
    string(REGEX MATCHALL "\\.visible \\.entry [A-Za-z0-9_$]+" entries "${text}")
    list(LENGTH entries count)
    if(NOT count EQUAL 1)
        message(FATAL_ERROR "${source}: it has ${count} kernels, but must be one launch.")
    endif()
    string(REPLACE ".visible .entry " "" entry "${entries}")
    string(REPLACE "${entry}" "${name}" text "${text}")
    string(REGEX MATCH "^.*\\.address_size 64\n" header "${text}")
    string(LENGTH "${header}" length)
    string(SUBSTRING "${text}" ${length} -1 text)
    math(EXPR blocks "1024 / ${THREADS}")
    string(REGEX REPLACE "\n\\)\n{\n" "\n)\n.maxntid ${THREADS}\n.minnctapersm ${blocks}\n{\n" text "${text}")
    if(text MATCHES "\t(ld|st)\\.shared")
        string(REGEX REPLACE "\t((ld|st)\\.shared[^\n]*)\\[(%rd[0-9]+)([^]\n]*)\\]"
                             "\tadd.s64 %address, \\3, %shared;\n\t\\1[%address\\4]" text "${text}")
        string(REGEX REPLACE "\n// %bb.0:[^\n]*\n"
                             "\n\t.reg .b64 %shared, %address;\n\tmov.u64 %shared, halyard_shared;\n" text "${text}")
    endif()
    if(text MATCHES "(ld|st)\\.shared[^\n]*\\[%rd")
        message(FATAL_ERROR "${source}: an access to shared memory is not of the form that was expected.")
    endif()
    if(NOT text MATCHES "\\.maxntid")
        message(FATAL_ERROR "${source}: the head of the kernel is not where it was expected.")
    endif()
    string(APPEND merged "${text}")
endforeach()
if(NOT header MATCHES "\\.version 7\\.0\n")
    message(FATAL_ERROR "${STEM}: its PTX is not of version 7.0, which runtime/cuda/driver.cpp takes drivers to compile.")
endif()
file(WRITE "${STEM}.ptx" "${header}\n.extern .shared .align 16 .b8 halyard_shared[];\n${merged}")

set(registers)
foreach(architecture IN LISTS ARCHITECTURES)
    # Sums of products are fused where the generator says so, and nowhere else.
    execute_process(COMMAND "${PTXAS}" -v -fmad=false -arch=sm_${architecture} "${STEM}.ptx" -o
                            "${STEM}.sm_${architecture}.cubin"
                    OUTPUT_VARIABLE log ERROR_VARIABLE log RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "ptxas failed for sm_${architecture}:\n${log}")
    endif()
    if(log MATCHES "[1-9][0-9]* bytes (stack frame|spill stores|spill loads|lmem)")
        message(FATAL_ERROR "Registers were spilled for sm_${architecture}:\n${log}")
    endif()
    string(REGEX MATCHALL "entry function '[^']+'|Used [0-9]+ registers" facts "${log}")
    foreach(fact IN LISTS facts)
        if(fact MATCHES "'(.+)'")
            set(kernel "${CMAKE_MATCH_1}")
        elseif(fact MATCHES "([0-9]+)")
            string(APPEND registers "${kernel} ${architecture} ${CMAKE_MATCH_1} ${THREADS}\n")
        endif()
    endforeach()
endforeach()
file(WRITE "${STEM}.registers" "${registers}")

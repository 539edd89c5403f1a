# Reads the table of generators: HALYARD_FILES_<family> are the files of a family, HALYARD_GENERATORS_<file> the generators
# of a file, HALYARD_GENERATOR_FAMILY_<generator> is the family of a generator. Needs no project.
function(halyard_generators file family)
    foreach(generator IN LISTS ARGN)
        set(HALYARD_GENERATOR_FAMILY_${generator} ${family} PARENT_SCOPE)
    endforeach()
    set(HALYARD_GENERATORS_${file} ${ARGN} PARENT_SCOPE)
    set(HALYARD_FILES_${family} ${HALYARD_FILES_${family}} ${file} PARENT_SCOPE)
endfunction()
include("${CMAKE_CURRENT_LIST_DIR}/../generators/generators.cmake")

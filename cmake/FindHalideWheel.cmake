# Halide, of which builds for other machines need the headers alone. Sets HALIDE_INCLUDE_DIRS.
if(NOT TARGET Halide::Halide)
    # pip builds packages with the wheel beside its own Python, not in it: there the prefix is the folder of packages.
    find_package(Halide 21 QUIET PATH_SUFFIXES halide/lib64/cmake/Halide halide/lib/cmake/Halide)
endif()
if(NOT TARGET Halide::Halide)
    message(FATAL_ERROR "Halide 21 was not found. Install it with 'pip install halide==21.0.0' into a virtual environment "
                        "and configure with that environment active, or run ./run build, which does both.")
endif()
get_target_property(HALIDE_INCLUDE_DIRS Halide::Runtime INTERFACE_INCLUDE_DIRECTORIES)

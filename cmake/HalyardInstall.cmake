# The installed package: both libraries, the headers, find_package(halyard) and pkg-config; programs/CMakeLists.txt adds the
# programs. Relocatable: every path in it
# is relative to where its file lies.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(
    TARGETS halyard_static halyard_shared
    EXPORT halyardTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY runtime/include/halyard "${HALYARD_CONFIG_DIR}/halyard" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
# halyard.h includes "dlpack/dlpack.h", so the copy beside it is found first and a user needs no DLPack package.
install(FILES "${DLPACK_INCLUDE_DIR}/dlpack/dlpack.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/halyard/dlpack")
install(FILES LICENSE LICENSE-xxHash DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(HALYARD_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/halyard")
install(EXPORT halyardTargets NAMESPACE halyard:: DESTINATION "${HALYARD_PACKAGE_DIR}")
if(HALYARD_BUILD_MODELS)
    # In a file of its own: it refers to halyard::halyard, which the package defines after the targets of the core.
    install(TARGETS halyard_models EXPORT halyardModelsTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT halyardModelsTargets NAMESPACE halyard:: DESTINATION "${HALYARD_PACKAGE_DIR}")
    install(DIRECTORY models/include/halyard DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
    install(FILES LICENSE-nlohmann-json DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endif()
set(HALYARD_COMPONENTS ${HALYARD_ISAS} ${HALYARD_DTYPES} ${HALYARD_OPERATIONS})
foreach(group IN LISTS HALYARD_GROUPS)
    set(missing ${HALYARD_GROUP_${group}})
    list(REMOVE_ITEM missing ${HALYARD_OPERATIONS})
    if(NOT missing)
        list(APPEND HALYARD_COMPONENTS ${group})
    endif()
endforeach()
set(HALYARD_KNOWN_COMPONENTS models ${HALYARD_ALL_ISAS} ${HALYARD_ALL_DTYPES} ${HALYARD_GROUPS} ${HALYARD_ALL_OPERATIONS})
configure_package_config_file(
    cmake/halyardConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/halyardConfig.cmake"
    INSTALL_DESTINATION "${HALYARD_PACKAGE_DIR}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/halyardConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/halyardConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/halyardConfigVersion.cmake"
        DESTINATION "${HALYARD_PACKAGE_DIR}")

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(HALYARD_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
    set(HALYARD_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
else()
    file(RELATIVE_PATH HALYARD_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
    string(REGEX REPLACE "/$" "" HALYARD_PC_PREFIX "\${pcfiledir}/${HALYARD_PC_PREFIX}")
    set(HALYARD_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(HALYARD_PC_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
else()
    set(HALYARD_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
set(names halyard)
if(HALYARD_BUILD_MODELS)
    list(APPEND names halyard-models)
endif()
foreach(name IN LISTS names)
    configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

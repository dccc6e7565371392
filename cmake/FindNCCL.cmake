# Finds NVIDIA's NCCL -> NCCL_FOUND, NCCL_VERSION and the target NCCL::nccl.
# Searched in this order: NCCL's own CMake package (since 2.29.7); NCCL_ROOT and NCCL_HOME (environment
# variables; NCCL_ROOT also as a CMake variable); the usual folders; those of the CUDA Toolkit. pip's wheel
# has libnccl.so.2 and no libnccl.so.
find_package(NCCL CONFIG QUIET)
if(NOT TARGET NCCL::nccl)
  find_path(NCCL_INCLUDE_DIR nccl.h
    HINTS ENV NCCL_ROOT ENV NCCL_HOME PATHS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  # The library beside the header: those of two versions would not fit.
  get_filename_component(NCCL_FOLDER "${NCCL_INCLUDE_DIR}" DIRECTORY)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
    HINTS "${NCCL_FOLDER}" PATHS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
  if(NCCL_INCLUDE_DIR)
    set(NCCL_VERSION "")
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" line REGEX "^#define NCCL_${part} +[0-9]+" LIMIT_COUNT 1)
      string(REGEX MATCH "[0-9]+ *$" number "${line}")
      string(APPEND NCCL_VERSION ".${number}")
    endforeach()
    string(SUBSTRING "${NCCL_VERSION}" 1 -1 NCCL_VERSION)
  endif()
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    add_library(NCCL::nccl UNKNOWN IMPORTED)
    set_target_properties(NCCL::nccl PROPERTIES
      IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
  endif()
endif()

set(NCCL_TARGET "")
if(TARGET NCCL::nccl)
  set(NCCL_TARGET NCCL::nccl)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_TARGET VERSION_VAR NCCL_VERSION)

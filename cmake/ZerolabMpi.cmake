# Decides which MPIs are built in -> ZEROLAB_MPIS ("openmpi;mpich"), for each the version, includes and
# libraries in ZEROLAB_MPI_<kind>_…, and ZEROLAB_MPI_SAYS, one line with the result and its reason. Each
# becomes a small library, which a run on MPI opens: the headers of two MPIs cannot be in one program.
set(ZEROLAB_MPI AUTO CACHE STRING
  "MPI between processes: AUTO (each that is found), ON (error with a fix if there is none), OFF")
set_property(CACHE ZEROLAB_MPI PROPERTY STRINGS AUTO ON OFF)
if(NOT ZEROLAB_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ZEROLAB_MPI must be AUTO, ON or OFF, not '${ZEROLAB_MPI}'")
endif()

# Asks one compiler wrapper for its flags, and the header for its kind and version.
function(zerolab_ask_mpi wrapper)
  execute_process(COMMAND "${wrapper}" -show OUTPUT_VARIABLE shown ERROR_QUIET
    RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    return()
  endif()
  separate_arguments(words UNIX_COMMAND "${shown}")
  list(POP_FRONT words)   # the compiler
  set(includes ${words})
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  set(libraries ${words})
  list(FILTER libraries INCLUDE REGEX "^(-L|-l|-Wl,-rpath|-pthread)")
  set(flags ${includes})
  list(TRANSFORM flags PREPEND "-I")
  set(probe "${PROJECT_BINARY_DIR}/CMakeFiles/mpi_probe.c")
  file(WRITE "${probe}" "#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION)
kind openmpi OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
kind mpich MPICH_VERSION
#endif
")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${flags} -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
    -E -P -x c++ "${probe}" OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "\nkind (openmpi|mpich) ([^\n]*)" OR CMAKE_MATCH_1 IN_LIST ZEROLAB_MPIS)
    return()
  endif()
  set(kind "${CMAKE_MATCH_1}")
  string(REGEX REPLACE "[ \"]" "" version "${CMAKE_MATCH_2}")
  set(ZEROLAB_MPIS ${ZEROLAB_MPIS} ${kind} PARENT_SCOPE)
  set(ZEROLAB_MPI_${kind}_VERSION "${version}" PARENT_SCOPE)
  set(ZEROLAB_MPI_${kind}_INCLUDES "${includes}" PARENT_SCOPE)
  set(ZEROLAB_MPI_${kind}_LIBRARIES "${libraries}" PARENT_SCOPE)
endfunction()

set(ZEROLAB_MPIS "")
set(why "ZEROLAB_MPI is OFF")
if(NOT ZEROLAB_MPI STREQUAL "OFF")
  set(why "no mpicc with its mpi.h was found; install Open MPI (apt: openmpi-bin libopenmpi-dev), \
or set MPI_HOME to its folder")
  foreach(name mpicc mpicc.openmpi mpicc.mpich)
    unset(wrapper)
    find_program(wrapper NAMES ${name} HINTS "${MPI_HOME}" ENV MPI_HOME PATH_SUFFIXES bin NO_CACHE)
    if(wrapper)
      zerolab_ask_mpi("${wrapper}")
    endif()
  endforeach()
endif()
if(NOT ZEROLAB_MPIS AND ZEROLAB_MPI STREQUAL "ON")
  message(FATAL_ERROR "ZEROLAB_MPI is ON, but ${why}.")
endif()
set(ZEROLAB_MPI_SAYS "")
set(ZEROLAB_MPI_KINDS "")   # for dist/mpi/library.cpp: "openmpi 4.1.4 mpich 4.0.2"
foreach(kind IN LISTS ZEROLAB_MPIS)
  string(APPEND ZEROLAB_MPI_KINDS "${kind} ${ZEROLAB_MPI_${kind}_VERSION} ")
endforeach()
if(ZEROLAB_MPIS)
  string(STRIP "${ZEROLAB_MPI_KINDS}" ZEROLAB_MPI_SAYS)
  string(REPLACE " mpich" ", mpich" ZEROLAB_MPI_SAYS "${ZEROLAB_MPI_SAYS}")
  string(REPLACE " openmpi" ", openmpi" ZEROLAB_MPI_SAYS "${ZEROLAB_MPI_SAYS}")
  string(REPLACE "openmpi" "Open MPI" ZEROLAB_MPI_SAYS "${ZEROLAB_MPI_SAYS}")
  string(REPLACE "mpich" "MPICH" ZEROLAB_MPI_SAYS "${ZEROLAB_MPI_SAYS}")
else()
  set(ZEROLAB_MPI_SAYS "not built in: ${why}")
endif()

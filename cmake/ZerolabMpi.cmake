# Decides whether MPI is built in, and which one -> ZEROLAB_HAVE_MPI, ZEROLAB_MPI_INCLUDES,
# ZEROLAB_MPI_LIBRARIES, ZEROLAB_MPI_DEFINITIONS (for dist/mpi/mpi_communicator.cpp), and ZEROLAB_MPI_SAYS, one line
# with the result and its reason. The headers of two MPIs cannot be in one program.
set(ZEROLAB_MPI AUTO CACHE STRING
  "MPI between processes: AUTO (where it is found), ON (error with a fix if unavailable), OFF")
set_property(CACHE ZEROLAB_MPI PROPERTY STRINGS AUTO ON OFF)
if(NOT ZEROLAB_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ZEROLAB_MPI must be AUTO, ON or OFF, not '${ZEROLAB_MPI}'")
endif()
set(ZEROLAB_MPI_COMPILER "" CACHE STRING
  "mpicc of the MPI to use (mpicc.mpich), on PATH or below MPI_HOME; empty: the first that is found")

# Asks a compiler wrapper for its flags, and the header for its kind and version. If one fails, sets nothing.
function(zerolab_ask_mpi wrapper)
  execute_process(COMMAND "${wrapper}" -show OUTPUT_VARIABLE shown ERROR_QUIET
    RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    return()
  endif()
  separate_arguments(words UNIX_COMMAND "${shown}")
  list(POP_FRONT words)   # the compiler
  set(libraries ${words})
  list(FILTER libraries INCLUDE REGEX "^(-L|-l|-Wl,-rpath|-pthread)")
  list(FILTER words INCLUDE REGEX "^-I")
  set(probe "${PROJECT_BINARY_DIR}/CMakeFiles/mpi_probe.c")
  file(WRITE "${probe}" "#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION)
kind openmpi OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
kind mpich MPICH_VERSION
#endif
")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${words} -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
    -E -P -x c++ "${probe}" OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "\nkind (openmpi|mpich) ([^\n]*)")
    return()
  endif()
  set(kind "${CMAKE_MATCH_1}")
  string(REGEX REPLACE "[ \"]" "" version "${CMAKE_MATCH_2}")
  get_filename_component(folder "${wrapper}" DIRECTORY)
  find_program(mpirun NAMES mpirun.${kind} mpirun mpiexec HINTS "${folder}" NO_DEFAULT_PATH NO_CACHE)
  string(REPLACE "-NOTFOUND" "" mpirun "${mpirun}")
  string(REPLACE openmpi "Open MPI" kind_says "${kind}")
  string(REPLACE mpich MPICH kind_says "${kind_says}")
  list(TRANSFORM words REPLACE "^-I" "")
  set(ZEROLAB_HAVE_MPI ON PARENT_SCOPE)
  set(ZEROLAB_MPI_SAYS "${kind_says} ${version}" PARENT_SCOPE)
  set(ZEROLAB_MPI_INCLUDES "${words}" PARENT_SCOPE)
  set(ZEROLAB_MPI_LIBRARIES "${libraries}" PARENT_SCOPE)
  set(ZEROLAB_MPI_DEFINITIONS "ZEROLAB_OPEN_MPI=$<STREQUAL:${kind},openmpi>"
    "ZEROLAB_MPI_VERSION=\"${version}\"" "ZEROLAB_MPIRUN=\"${mpirun}\"" PARENT_SCOPE)
endfunction()

set(ZEROLAB_HAVE_MPI OFF)
set(why "ZEROLAB_MPI is OFF")
if(NOT ZEROLAB_MPI STREQUAL "OFF")
  set(names mpicc mpicc.openmpi mpicc.mpich)
  set(why "no mpicc with its mpi.h was found; install Open MPI (apt: openmpi-bin libopenmpi-dev), \
or set MPI_HOME to its folder")
  if(ZEROLAB_MPI_COMPILER)
    set(names "${ZEROLAB_MPI_COMPILER}")
    set(why "ZEROLAB_MPI_COMPILER, '${names}', is no mpicc with its mpi.h")
  endif()
  foreach(name IN LISTS names)
    unset(wrapper)
    find_program(wrapper NAMES ${name} HINTS "${MPI_HOME}" ENV MPI_HOME PATH_SUFFIXES bin NO_CACHE)
    if(wrapper AND NOT ZEROLAB_HAVE_MPI)
      zerolab_ask_mpi("${wrapper}")
    endif()
  endforeach()
endif()
if(NOT ZEROLAB_HAVE_MPI)
  set(ZEROLAB_MPI_SAYS "not built in: ${why}")
  if(ZEROLAB_MPI STREQUAL "ON" OR (ZEROLAB_MPI_COMPILER AND NOT ZEROLAB_MPI STREQUAL "OFF"))
    message(FATAL_ERROR "ZEROLAB_MPI is ${ZEROLAB_MPI}, but ${why}.")
  endif()
endif()

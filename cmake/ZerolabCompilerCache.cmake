# Compiles through ccache where it is installed. CCACHE_BASEDIR makes paths below the source folder
# relative, so that clones of this tree share one cache; CCACHE_ABSSTDERR keeps them absolute in messages.
find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
foreach(language CXX CUDA)
  if(CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_ABSSTDERR=1 "${CCACHE}")
  endif()
endforeach()

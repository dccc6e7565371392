# Catch2 as `zerolab exercise pack` puts it into deps/catch2 of a student's tree: headers, and a library that
# was built on the teacher's machine. For another processor CMake goes on as if it were not here.
get_filename_component(catch2 "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(catch2_library "${catch2}/lib/${CMAKE_SYSTEM_PROCESSOR}/libCatch2.a")
if(NOT EXISTS "${catch2_library}")
  set(Catch2_FOUND FALSE)
elseif(NOT TARGET Catch2::Catch2)
  add_library(Catch2::Catch2 STATIC IMPORTED GLOBAL)
  set_target_properties(Catch2::Catch2 PROPERTIES
    IMPORTED_LOCATION "${catch2_library}" INTERFACE_INCLUDE_DIRECTORIES "${catch2}/include")
endif()

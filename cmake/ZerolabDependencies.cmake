# Finds nlohmann-json, Eigen, CLI11, zlib and Catch2. Each is taken from the first place that has it:
#   1. a target of the embedding project
#   2. an installed package (find_package), also below ZEROLAB_DEPS
#   3. plain headers, or a source tree of Catch2, in or below ZEROLAB_DEPS
#   4. a pinned download into the build folder
# If all are found, the network is not used.
set(ZEROLAB_DEPS "$ENV{ZEROLAB_DEPS}" CACHE PATH
  "Folder that holds dependencies, installed or as plain headers")
find_package(Threads REQUIRED)

set(zerolab_downloads "${PROJECT_BINARY_DIR}/_deps")
set(zerolab_prefix_path "${CMAKE_PREFIX_PATH}")
if(ZEROLAB_DEPS)
  get_filename_component(deps "${ZEROLAB_DEPS}" ABSOLUTE BASE_DIR "${CMAKE_BINARY_DIR}")
  if(NOT IS_DIRECTORY "${deps}")
    message(FATAL_ERROR "ZEROLAB_DEPS is '${ZEROLAB_DEPS}', which is not a folder")
  endif()
  file(GLOB below LIST_DIRECTORIES true "${deps}/*")
  list(PREPEND CMAKE_PREFIX_PATH "${deps}" ${below})
endif()

# Makes ${target} from a folder of headers that holds ${header}, if there is one.
function(zerolab_use_headers target header)
  file(GLOB downloaded LIST_DIRECTORIES true "${zerolab_downloads}/*/*")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH downloaded ITEMS /usr /usr/local)
    foreach(suffix include include/eigen3 src "")
      if(EXISTS "${prefix}/${suffix}/${header}" AND NOT TARGET ${target})
        add_library(${target} INTERFACE IMPORTED GLOBAL)
        target_include_directories(${target} SYSTEM INTERFACE "${prefix}/${suffix}")
      endif()
    endforeach()
  endforeach()
endfunction()

# Builds Catch2 from a source tree, if there is one.
function(zerolab_use_catch2_sources)
  file(GLOB trees LIST_DIRECTORIES true "${deps}/*atch2*" "${zerolab_downloads}/Catch2/*")
  foreach(tree IN LISTS trees)
    if(EXISTS "${tree}/src/catch2/catch_test_macros.hpp" AND NOT TARGET Catch2::Catch2WithMain)
      add_subdirectory("${tree}" "${PROJECT_BINARY_DIR}/catch2" EXCLUDE_FROM_ALL)
      get_target_property(include Catch2 INTERFACE_INCLUDE_DIRECTORIES)
      set_target_properties(Catch2 PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${include}")
    endif()
  endforeach()
endfunction()

function(zerolab_download name url sha256 package)
  get_filename_component(archive "${url}" NAME)
  message(STATUS "${name} is not installed (apt has it as ${package}): downloading ${url}")
  file(DOWNLOAD "${url}" "${zerolab_downloads}/${name}-${archive}" STATUS status INACTIVITY_TIMEOUT 30)
  list(POP_FRONT status code)
  set(found "")
  if(code EQUAL 0)
    file(SHA256 "${zerolab_downloads}/${name}-${archive}" found)
  endif()
  if(NOT found STREQUAL sha256)
    if(code EQUAL 0)
      set(status "its SHA-256 is ${found}, not ${sha256}")
    endif()
    file(REMOVE "${zerolab_downloads}/${name}-${archive}")
    message(FATAL_ERROR "${name} is not installed, and ${url} could not be downloaded: ${status}.\n"
      "How to fix it: install it with apt (${package}), "
      "or put it into a folder and pass -DZEROLAB_DEPS=<folder>.")
  endif()
  # The folder gets its name last: one that is there is complete, also after an interruption.
  set(folder "${zerolab_downloads}/${name}")
  file(REMOVE_RECURSE "${folder}.part")
  file(ARCHIVE_EXTRACT INPUT "${folder}-${archive}" DESTINATION "${folder}.part")
  file(RENAME "${folder}.part" "${folder}")
endfunction()

# zerolab_dependency(name minimum-version target header url sha256 apt-package)
macro(zerolab_dependency name version target header url sha256 package)
  foreach(download NO YES)
    if(NOT TARGET ${target})
      if(${download} AND NOT EXISTS "${zerolab_downloads}/${name}")
        zerolab_download(${name} ${url} ${sha256} ${package})
      endif()
      find_package(${name} ${version} QUIET)
    endif()
    if(${name} STREQUAL "Catch2")
      zerolab_use_catch2_sources()
    else()
      zerolab_use_headers(${target} ${header})
    endif()
  endforeach()
endmacro()

zerolab_dependency(nlohmann_json 3.10 nlohmann_json::nlohmann_json nlohmann/json.hpp
  https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d nlohmann-json3-dev)
zerolab_dependency(Eigen3 3.4 Eigen3::Eigen Eigen/Core
  https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.gz
  8586084f71f9bde545ee7fa6d00288b264a2b7ac3607b974e54d13e7162c1c72 libeigen3-dev)
if(ZEROLAB_BUILD_PROGRAMS)
  zerolab_dependency(CLI11 2.1 CLI11::CLI11 CLI/CLI.hpp
    https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a libcli11-dev)
  find_package(ZLIB QUIET)   # of 'zerolab check', which reads gzip
  if(NOT TARGET ZLIB::ZLIB)
    if(NOT EXISTS "${zerolab_downloads}/zlib")
      zerolab_download(zlib https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz
        9a93b2b7dfdac77ceba5a558a580e74667dd6fede4585b91eefb60f03b72df23 zlib1g-dev)
    endif()
    add_subdirectory("${zerolab_downloads}/zlib/zlib-1.3.1" "${PROJECT_BINARY_DIR}/zlib" EXCLUDE_FROM_ALL)
    target_include_directories(zlibstatic INTERFACE "${zerolab_downloads}/zlib/zlib-1.3.1" "${PROJECT_BINARY_DIR}/zlib")
    add_library(ZLIB::ZLIB ALIAS zlibstatic)
  endif()
endif()
if(ZEROLAB_BUILD_TESTS OR (ZEROLAB_EXERCISES AND ZEROLAB_BUILD_PROGRAMS))
  zerolab_dependency(Catch2 3.4 Catch2::Catch2 catch2/catch_test_macros.hpp
    https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
    c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c "catch2 of version 3")
elseif(ZEROLAB_BUILD_PROGRAMS)   # the checks of exercises are Catch2 cases; without it there are none
  find_package(Catch2 3.4 QUIET)
  zerolab_use_catch2_sources()
endif()
set(CMAKE_PREFIX_PATH "${zerolab_prefix_path}")

# Installs zerolab into an empty folder and lets the project in this folder use it: installed, and as
# a subfolder. Run by CTest with BUILD, SOURCE, WORK, GENERATOR, COMPILER and DEPS.
cmake_minimum_required(VERSION 3.22)

function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}\nended with ${code}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
set(configure ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${COMPILER}")

step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
file(GLOB_RECURSE targets "${WORK}/prefix/*/zerolabTargets.cmake")
file(STRINGS "${targets}" required REGEX "cublas|NCCL|nccl")
if(required)
  message(FATAL_ERROR "zerolab opens these itself; its users must not need them:\n${required}")
endif()

# Headers of mechanisms are private, those that a user's program begins with are there.
file(GLOB_RECURSE headers RELATIVE "${WORK}/prefix/include/zerolab" "${WORK}/prefix/include/*.h")
set(private ${headers})
list(FILTER private INCLUDE REGEX "/(cpu|cuda|threads|nccl|mpi|ordered|processes)/|/deepspeed/")
list(REMOVE_ITEM private stages/deepspeed/config.h)
if(private)
  message(FATAL_ERROR "these headers are private, and must not be installed: ${private}")
endif()
foreach(header tensor/tensor.h autograd/ops.h nn/unit.h optim/flat_optimizer.h dist/run_ranks.h stages/engine.h
    stages/deepspeed/config.h)
  if(NOT header IN_LIST headers)
    message(FATAL_ERROR "${header} is not installed")
  endif()
endforeach()

step(${configure} -B "${WORK}/installed" "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
step(${CMAKE_COMMAND} --build "${WORK}/installed")
step("${WORK}/installed/homework")
step("${WORK}/installed/own_model")

# The installed program grades, also after the folder was moved, and needs nothing of the source tree.
if(EXISTS "${WORK}/prefix/bin/zerolab")
  file(RENAME "${WORK}/prefix" "${WORK}/moved")
  set(program "${WORK}/moved/bin/zerolab")
  step(${program} bench comm --ranks 1 -f 1 -n 1)
  step(${program} exercise start 05 "${WORK}/homework")
  execute_process(COMMAND ${program} exercise check 05 "${WORK}/homework" -q
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 1 OR NOT output MATCHES "not written yet.*0 of 100 points")
    message(FATAL_ERROR "the unfinished file of an exercise was graded with ${code}:\n${output}")
  endif()
  step(${program} exercise check 05 "${SOURCE}/stages/zero1.cpp" -q)
  execute_process(COMMAND ${program} exercise pack "${WORK}/pack.tar.gz"
    RESULT_VARIABLE code ERROR_VARIABLE output)
  if(NOT code EQUAL 2 OR NOT output MATCHES "this zerolab is installed")
    message(FATAL_ERROR "an installed program packed the source tree with ${code}:\n${output}")
  endif()
  file(RENAME "${WORK}/moved" "${WORK}/prefix")
endif()

# As a subfolder it is only configured: building it would compile everything once more.
step(${configure} -B "${WORK}/subfolder" "-DZEROLAB_SOURCE=${SOURCE}" "-DZEROLAB_DEPS=${DEPS}")

# A newer version than ours must be refused.
file(WRITE "${WORK}/newer/CMakeLists.txt"
  "cmake_minimum_required(VERSION 3.22)\nproject(newer NONE)\n
find_package(zerolab 0.3)\nif(zerolab_FOUND)\nmessage(FATAL_ERROR \"0.3 was accepted\")\nendif()\n")
step(${CMAKE_COMMAND} -S "${WORK}/newer" -B "${WORK}/newer/build" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${WORK}/prefix")

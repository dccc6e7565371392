# Installs zerolab into a fresh folder and lets the project beside this script use it, both ways.
# Run by CTest with BUILD, SOURCE, WORK, GENERATOR, COMPILER, LAUNCHER and DEPS.
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}\nended with ${code}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
set(configure ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")

step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
file(GLOB_RECURSE targets "${WORK}/prefix/*/zerolabTargets.cmake")
file(STRINGS "${targets}" demanded REGEX "cublas|NCCL|nccl")   # they are opened when they are used
if(demanded)
  message(FATAL_ERROR "zerolab asks those who use it for libraries that it opens itself:\n${demanded}")
endif()
step(${configure} -B "${WORK}/installed" "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
step(${CMAKE_COMMAND} --build "${WORK}/installed")
step("${WORK}/installed/homework")

# As a subfolder it is only configured: building it would compile everything once more.
step(${configure} -B "${WORK}/subfolder" "-DZEROLAB_SOURCE=${SOURCE}" "-DZEROLAB_DEPS=${DEPS}")

# A newer version than ours must be refused.
file(WRITE "${WORK}/newer/CMakeLists.txt" "cmake_minimum_required(VERSION 3.22)\nproject(newer NONE)\n
find_package(zerolab 0.2)\nif(zerolab_FOUND)\nmessage(FATAL_ERROR \"0.2 was accepted\")\nendif()\n")
step(${CMAKE_COMMAND} -S "${WORK}/newer" -B "${WORK}/newer/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix")

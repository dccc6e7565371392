# Three programs check an exercise: zerolab-exercise compiles the student's file; it starts zerolab-judge, whose
# Catch2 cases are the checks; that starts the student's program, which is their object file and one archive,
# libexercise_NN_name.a. What zerolab-exercise needs to know is written to exercises/exercises.json.
# In tutorials/exercises/NN_name checks.cpp judges, measure.cpp measures, and *_case.h belongs to both. 05 to 07 share
# the folder stages.
set(folder "${PROJECT_SOURCE_DIR}/tutorials/exercises")
set(ZEROLAB_EXERCISES_FOLDER "${PROJECT_BINARY_DIR}/exercises")
file(GLOB exercises RELATIVE "${folder}" CONFIGURE_DEPENDS "${folder}/[0-9][0-9]_*")

# --- the side that measures ---------------------------------------------------------------------------

add_library(zerolab_exercise_child OBJECT "${folder}/judge/program_main.cpp")
add_library(zerolab_exercise_stages OBJECT "${folder}/stages/measure.cpp"
  tutorials/lesson/picture.cpp tutorials/lesson/stepper.cpp tutorials/terminal/terminal.cpp   # these for --step
  tutorials/recording/recording.cpp tutorials/recording/stage_reader.cpp)
foreach(part zerolab_exercise_child zerolab_exercise_stages)
  set_target_properties(${part} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)   # one object
  target_link_libraries(${part} PRIVATE zerolab::zerolab zerolab_flags nlohmann_json::nlohmann_json)
endforeach()
add_custom_target(zerolab_exercises)

# What students get is made in exercises/NN_name: task.md, hints.md, and start.cpp, of tests/exercises/right/NN_name.cpp:
# between "//>" and "//<" students get, instead of the lines that are there, what is behind "//> ". In stages/start.cpp
# lines between "//{ 06 07" and "//}" are of these two.
string(ASCII 1 end)
foreach(name IN LISTS exercises)
  foreach(file task.md hints.md start.cpp)   # a tree of `exercise pack --no-hints` has no hints
    set(made "${ZEROLAB_EXERCISES_FOLDER}/${name}/${file}")
    if(EXISTS "${folder}/${name}/${file}")
      configure_file("${folder}/${name}/${file}" "${made}" COPYONLY)
    elseif(file STREQUAL "start.cpp")
      file(GLOB solution "${PROJECT_SOURCE_DIR}/tests/exercises/right/${name}.cpp")
      list(APPEND solution "${folder}/stages/start.cpp")   # of 05 to 07
      list(GET solution 0 solution)
      set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${solution}")
      file(READ "${solution}" text)
      string(REPLACE "//<\n" "${end}" text "${text}")
      string(REGEX REPLACE "(( *//>[^\n]*\n)+)[^${end}]*${end}" "\\1" text "${text}")
      string(REGEX REPLACE " *//>\n" "" text "${text}")
      string(REPLACE "//> " "" text "${text}")
      string(SUBSTRING "${name}" 0 2 number)
      string(REGEX REPLACE " *//{[ 0-9]*${number}[ 0-9]*\n" "" text "${text}")
      string(REGEX REPLACE " *//}\n" "${end}" text "${text}")
      string(REGEX REPLACE " *//{[^${end}]*${end}" "" text "${text}")
      string(REPLACE "${end}" "" text "${text}")
      file(CONFIGURE OUTPUT "${made}" CONTENT "${text}" @ONLY)
    endif()
  endforeach()
  file(GLOB measuring CONFIGURE_DEPENDS "${folder}/${name}/measure.cpp")
  if(NOT measuring)
    set(measuring $<TARGET_OBJECTS:zerolab_exercise_stages>)
  endif()
  add_library(exercise_${name} STATIC ${measuring} $<TARGET_OBJECTS:zerolab_exercise_child>)
  target_link_libraries(exercise_${name} PRIVATE zerolab::zerolab zerolab_flags)
  set_target_properties(exercise_${name} PROPERTIES
    ARCHIVE_OUTPUT_DIRECTORY "${ZEROLAB_EXERCISES_FOLDER}" LINKER_LANGUAGE CXX)
  add_dependencies(zerolab_exercises exercise_${name})
endforeach()

# --- the side of zerolab-exercise, and the judge ------------------------------------------------------

file(GLOB grader CONFIGURE_DEPENDS "${folder}/grader/*.cpp")
add_library(zerolab_grader OBJECT ${grader})
zerolab_unity(zerolab_grader ${grader})
target_compile_options(zerolab_grader PRIVATE ${of_programs})
target_link_libraries(zerolab_grader PRIVATE zerolab::zerolab zerolab_flags nlohmann_json::nlohmann_json)

file(GLOB checks CONFIGURE_DEPENDS "${folder}/[0-9]*/check*.cpp")   # they use one name for different things
file(GLOB judging CONFIGURE_DEPENDS "${folder}/stages/c*.cpp" "${folder}/judge/[jn]*.cpp" "${folder}/grader/child_process.cpp")
if(TARGET Catch2::Catch2)
  add_executable(zerolab_judge EXCLUDE_FROM_ALL ${checks} ${judging})
  set_target_properties(zerolab_judge PROPERTIES OUTPUT_NAME zerolab-judge UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${judging} PROPERTIES UNITY_GROUP tutorials_exercises_grader)
  target_link_libraries(zerolab_judge PRIVATE
    zerolab::zerolab zerolab_flags nlohmann_json::nlohmann_json Catch2::Catch2)
  add_dependencies(zerolab_exercises zerolab_judge)
  set(judge "$<TARGET_FILE:zerolab_judge>")
  set(catch2 $<TARGET_FILE:Catch2::Catch2> $<TARGET_PROPERTY:Catch2::Catch2,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  message(STATUS "The exercises cannot be graded: Catch2 3.4 is not installed.")
endif()

# --- exercises.json -------------------------------------------------------------------------------------

# The reader drops empty items of lists, which generator expressions leave.
set(or_next "\",\n    \"")
# A comma of a flag would separate arguments of a generator expression.
string(REPLACE "," "$<COMMA>" flags "${CMAKE_CXX_FLAGS}")
separate_arguments(flags UNIX_COMMAND "${flags}")
list(APPEND flags -std=c++20 -pthread $<TARGET_PROPERTY:zerolab_flags,INTERFACE_COMPILE_OPTIONS>)
set(libraries -pthread $<TARGET_PROPERTY:zerolab_flags,INTERFACE_LINK_OPTIONS>)
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE system)
if(ZEROLAB_HAVE_CUDA)
  list(PREPEND system $<TARGET_FILE:CUDA::cudart_static>)
  list(APPEND system -lrt)
endif()
string(REPLACE "," "$<COMMA>" linking "${CMAKE_EXE_LINKER_FLAGS}")
separate_arguments(linking UNIX_COMMAND "${linking}")

function(zerolab_toolchain output include archives library library_folder judge texts source)
  set(link ${linking} "${archives}/libexercise_{exercise}.a" "${library}" ${libraries} ${system})
  if(ZEROLAB_ARCH STREQUAL "portable")
    list(APPEND link "-Wl$<COMMA>-rpath$<COMMA>${library_folder}")
  endif()
  set(all_flags ${flags} "-I${include}")
  file(GENERATE OUTPUT "${output}" CONTENT
"{
  \"compiler\": \"${CMAKE_CXX_COMPILER}\",
  \"launcher\": [\"${ARGN}\"],
  \"flags\": [\"$<JOIN:${all_flags},${or_next}>\"],
  \"link\": [\"$<JOIN:${link},${or_next}>\"],
  \"judge\": \"${judge}\",
  \"catch2\": [\"$<JOIN:${catch2},\", \">\"],
  \"exercises\": \"${texts}\",
  \"source\": \"${source}\"
}
")
endfunction()

zerolab_toolchain("${ZEROLAB_EXERCISES_FOLDER}/exercises.json" "${PROJECT_SOURCE_DIR}"
  "${ZEROLAB_EXERCISES_FOLDER}" $<TARGET_FILE:zerolab> $<TARGET_FILE_DIR:zerolab>
  "${judge}" "${ZEROLAB_EXERCISES_FOLDER}" "${PROJECT_SOURCE_DIR}" "$<$<BOOL:${CCACHE}>:${CCACHE}>")

# --- installed: everything in one folder, which find_toolchain() finds from the program ------------------

if(ZEROLAB_INSTALL)
  set(installed "${CMAKE_INSTALL_DATADIR}/zerolab/exercises")
  set(prefix "${CMAKE_INSTALL_PREFIX}")   # only differences of folders matter: the prefix may be moved
  file(RELATIVE_PATH to_headers "${prefix}/${installed}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}/zerolab")
  file(RELATIVE_PATH to_library "${prefix}/${installed}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  zerolab_toolchain("${ZEROLAB_EXERCISES_FOLDER}/installed/exercises.json" "{here}/${to_headers}" "{here}"
    "{here}/${to_library}/$<TARGET_FILE_NAME:zerolab>" "{here}/${to_library}" "{here}/zerolab-judge" "{here}" "")
  if(judge)
    install(TARGETS zerolab_judge RUNTIME DESTINATION "${installed}")
  endif()
  install(FILES "${ZEROLAB_EXERCISES_FOLDER}/installed/exercises.json" DESTINATION "${installed}")
  foreach(name IN LISTS exercises)
    install(TARGETS exercise_${name} ARCHIVE DESTINATION "${installed}")
    install(DIRECTORY "${ZEROLAB_EXERCISES_FOLDER}/${name}" DESTINATION "${installed}")
    file(GLOB headers "${folder}/${name}/*.h")
    list(FILTER headers EXCLUDE REGEX "_case.h$")   # start.cpp includes the others
    install(FILES ${headers} DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/zerolab/tutorials/exercises/${name}")
  endforeach()
endif()

# The exercises in tutorials/exercises. Three programs take part in a check: zerolab-exercise, which compiles the
# student's file and starts the judge; the judge, zerolab-judge, whose Catch2 cases are the checks; and the
# student's program, which is their object file and one archive, libexercise_NN_name.a, that runs their code
# and records what it does. What zerolab-exercise needs for that is written to exercises/exercises.json.
#
# In a folder NN_name: checks*.cpp judge, measure.cpp measures, *_case.cpp belong to both. 05 to 07 share the
# folder stages: check*.cpp judge, course_training.cpp belongs to both, all others measure.
set(folder "${PROJECT_SOURCE_DIR}/tutorials/exercises")
set(ZEROLAB_EXERCISES_FOLDER "${PROJECT_BINARY_DIR}/exercises")
file(GLOB exercises RELATIVE "${folder}" CONFIGURE_DEPENDS "${folder}/[0-9][0-9]_*")

# --- the side that measures ---------------------------------------------------------------------------

set(stepping lesson/picture lesson/stepper terminal/terminal)   # for --step
list(APPEND stepping recording/holdings recording/rank_recording recording/recording)
list(TRANSFORM stepping REPLACE ".+" "${PROJECT_SOURCE_DIR}/tutorials/\\0.cpp")
add_library(zerolab_exercise_child OBJECT "${folder}/judge/program_main.cpp" "${folder}/judge/record.cpp")
add_library(zerolab_exercise_stages OBJECT ${stepping} "${folder}/stages/measure.cpp"
  "${folder}/stages/watched_stage.cpp" "${folder}/stages/course_training.cpp")
foreach(part zerolab_exercise_child zerolab_exercise_stages)
  target_link_libraries(${part} PRIVATE zerolab::zerolab zerolab_flags)
endforeach()
add_custom_target(zerolab_exercises)

foreach(name IN LISTS exercises)
  file(GLOB measuring CONFIGURE_DEPENDS "${folder}/${name}/measure.cpp" "${folder}/${name}/*_case.cpp")
  if(NOT measuring)
    set(measuring $<TARGET_OBJECTS:zerolab_exercise_stages>)
  endif()
  add_library(exercise_${name} STATIC ${measuring} $<TARGET_OBJECTS:zerolab_exercise_child>)
  target_link_libraries(exercise_${name} PRIVATE zerolab::zerolab zerolab_flags)
  set_target_properties(exercise_${name} PROPERTIES
    ARCHIVE_OUTPUT_DIRECTORY "${ZEROLAB_EXERCISES_FOLDER}" LINKER_LANGUAGE CXX)
  add_dependencies(zerolab_exercises exercise_${name})
  file(GLOB checks CONFIGURE_DEPENDS "${folder}/${name}/checks*.cpp" "${folder}/${name}/*_case.cpp")
  list(APPEND judging ${checks})
endforeach()

# --- the side of zerolab-exercise, and the judge ------------------------------------------------------

file(GLOB grader CONFIGURE_DEPENDS "${folder}/grader/*.cpp")
add_library(zerolab_grader OBJECT ${grader})
zerolab_unity(zerolab_grader ${grader})
target_compile_options(zerolab_grader PRIVATE ${ZEROLAB_UNOPTIMISED})
target_link_libraries(zerolab_grader PRIVATE zerolab::zerolab zerolab_flags nlohmann_json::nlohmann_json)

file(GLOB shared CONFIGURE_DEPENDS "${folder}/stages/check*.cpp")
list(APPEND shared "${folder}/stages/course_training.cpp" "${folder}/grader/child_process.cpp")
foreach(part judge numbers record)
  list(APPEND shared "${folder}/judge/${part}.cpp")
endforeach()
set(judge "")
set(catch2 "")   # the library and its folders of headers, for `exercise pack`
if(TARGET Catch2::Catch2)
  add_executable(zerolab_judge EXCLUDE_FROM_ALL ${judging} ${shared})
  set_target_properties(zerolab_judge PROPERTIES OUTPUT_NAME zerolab-judge)
  target_link_libraries(zerolab_judge PRIVATE
    zerolab::zerolab zerolab_flags nlohmann_json::nlohmann_json Catch2::Catch2)
  add_dependencies(zerolab_exercises zerolab_judge)
  set(judge "$<TARGET_FILE:zerolab_judge>")
  set(catch2 $<TARGET_FILE:Catch2::Catch2> $<TARGET_PROPERTY:Catch2::Catch2,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  message(STATUS "The exercises cannot be graded: Catch2 3.4 is not installed.")
endif()

# --- exercises.json -------------------------------------------------------------------------------------

# Lists keep empty items, which the reader drops: generator expressions leave them.
set(or_next "\",\n    \"")
# A comma of a flag would separate arguments of a generator expression.
string(REPLACE "," "$<COMMA>" flags "${CMAKE_CXX_FLAGS}")
separate_arguments(flags UNIX_COMMAND "${flags}")
list(APPEND flags -std=c++20 -pthread $<TARGET_PROPERTY:zerolab_flags,INTERFACE_COMPILE_OPTIONS>)
set(libraries -pthread $<TARGET_PROPERTY:zerolab_flags,INTERFACE_LINK_OPTIONS>)
set(system ${CMAKE_DL_LIBS})
list(TRANSFORM system PREPEND -l)
if(ZEROLAB_HAVE_CUDA)
  list(PREPEND system $<TARGET_FILE:CUDA::cudart_static>)
  list(APPEND system -lrt)
endif()
string(REPLACE "," "$<COMMA>" linking "${CMAKE_EXE_LINKER_FLAGS}")
separate_arguments(linking UNIX_COMMAND "${linking}")

# zerolab_toolchain(file includes archives library folder-of-the-library judge texts source)
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
  \"flags\": [
    \"$<JOIN:${all_flags},${or_next}>\"
  ],
  \"link\": [
    \"$<JOIN:${link},${or_next}>\"
  ],
  \"judge\": \"${judge}\",
  \"catch2\": [\"$<JOIN:${catch2},\", \">\"],
  \"exercises\": \"${texts}\",
  \"source\": \"${source}\"
}
")
endfunction()

set(ccache "")
if(CCACHE)
  set(ccache "${CCACHE}")
endif()
zerolab_toolchain("${ZEROLAB_EXERCISES_FOLDER}/exercises.json" "${PROJECT_SOURCE_DIR}"
  "${ZEROLAB_EXERCISES_FOLDER}" $<TARGET_FILE:zerolab> $<TARGET_FILE_DIR:zerolab>
  "${judge}" "${folder}" "${PROJECT_SOURCE_DIR}" ${ccache})

# --- installed: everything in one folder, which find_toolchain() finds from the program ------------------

if(ZEROLAB_INSTALL)
  set(installed "${CMAKE_INSTALL_DATADIR}/zerolab/exercises")
  set(prefix "${CMAKE_INSTALL_PREFIX}")   # only differences of folders matter: the prefix may be moved
  file(RELATIVE_PATH to_headers "${prefix}/${installed}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}/zerolab")
  file(RELATIVE_PATH to_library "${prefix}/${installed}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  zerolab_toolchain("${ZEROLAB_EXERCISES_FOLDER}/installed/exercises.json" "{here}/${to_headers}" "{here}"
    "{here}/${to_library}/$<TARGET_FILE_NAME:zerolab>" "{here}/${to_library}"
    "{here}/zerolab-judge" "{here}" "")
  if(judge)
    install(TARGETS zerolab_judge RUNTIME DESTINATION "${installed}")
  endif()
  install(FILES "${ZEROLAB_EXERCISES_FOLDER}/installed/exercises.json" DESTINATION "${installed}")
  foreach(name IN LISTS exercises)
    install(TARGETS exercise_${name} ARCHIVE DESTINATION "${installed}")
    install(FILES "${folder}/${name}/task.md" "${folder}/${name}/start.cpp" DESTINATION "${installed}/${name}")
    # A tree of `exercise pack --no-hints` has none.
    install(FILES "${folder}/${name}/hints.md" DESTINATION "${installed}/${name}" OPTIONAL)
    # The headers of an exercise that its start.cpp includes.
    file(STRINGS "${folder}/${name}/start.cpp" headers REGEX "^#include \"tutorials/")
    foreach(header IN LISTS headers)
      string(REGEX REPLACE ".*\"(.*)\".*" "\\1" header "${header}")
      get_filename_component(place "${header}" DIRECTORY)
      install(FILES "${PROJECT_SOURCE_DIR}/${header}"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/zerolab/${place}")
    endforeach()
  endforeach()
endif()

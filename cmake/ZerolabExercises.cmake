# The exercises in tutorials/exercises. The grader, which judges, is part of the program. The side that
# measures is one archive per exercise, libexercise_NN_name.a; the grader links it with the student's
# object file. What the grader needs for that is written to exercises/exercises.json.
#
# In a folder NN_name: checks*.cpp judge, measure*.cpp measure, *_case.cpp belong to both sides. In the
# folder stages, which three exercises share: judge_*, measure_* and watched_*, and all others.
set(folder "${PROJECT_SOURCE_DIR}/tutorials/exercises")
set(ZEROLAB_EXERCISES_FOLDER "${PROJECT_BINARY_DIR}/exercises")
file(GLOB both CONFIGURE_DEPENDS "${folder}/grader/record.cpp" "${folder}/stages/*.cpp")
set(judging ${both})
set(measuring ${both})
list(FILTER judging EXCLUDE REGEX "/(measure|watched)_[^/]*$")
list(FILTER measuring EXCLUDE REGEX "/judge_[^/]*$")
set(child child_main sandbox heap_count)
list(TRANSFORM child REPLACE ".+" "${folder}/grader/\\0.cpp")

# --- the side that measures ---------------------------------------------------------------------------

set(stepping lesson/picture lesson/stepper terminal/terminal)   # for --step
list(APPEND stepping recording/holdings recording/rank_recording recording/recording)
list(TRANSFORM stepping REPLACE ".+" "${PROJECT_SOURCE_DIR}/tutorials/\\0.cpp")
add_library(zerolab_exercise_child OBJECT ${measuring} ${child} ${stepping})
target_link_libraries(zerolab_exercise_child PRIVATE zerolab::zerolab zerolab_flags)
add_custom_target(zerolab_exercises)

# zerolab_exercise(05_zero1 sources…): the archive with main() and the checks of an exercise.
function(zerolab_exercise name)
  add_library(exercise_${name} STATIC ${ARGN} $<TARGET_OBJECTS:zerolab_exercise_child>)
  target_link_libraries(exercise_${name} PRIVATE zerolab::zerolab zerolab_flags)
  set_target_properties(exercise_${name} PROPERTIES
    ARCHIVE_OUTPUT_DIRECTORY "${ZEROLAB_EXERCISES_FOLDER}" LINKER_LANGUAGE CXX)
endfunction()

file(GLOB exercises RELATIVE "${folder}" CONFIGURE_DEPENDS "${folder}/[0-9][0-9]_*/measure.cpp")
list(TRANSFORM exercises REPLACE "/.*" "")
foreach(name IN LISTS exercises)
  file(GLOB measuring CONFIGURE_DEPENDS "${folder}/${name}/measure*.cpp" "${folder}/${name}/*_case.cpp")
  zerolab_exercise(${name} ${measuring})
  add_dependencies(zerolab_exercises exercise_${name})
  string(SUBSTRING ${name} 0 2 number)
  list(APPEND makers exercise_${number})
endforeach()

# --- the side that judges -----------------------------------------------------------------------------

file(GLOB grader CONFIGURE_DEPENDS "${folder}/grader/*.cpp" "${folder}/grader/rules/*.cpp"
  "${folder}/[0-9][0-9]_*/checks*.cpp" "${folder}/[0-9][0-9]_*/*_case.cpp")
list(REMOVE_ITEM grader ${child} "${folder}/grader/record.cpp")
add_library(zerolab_grader OBJECT ${grader} ${judging})
zerolab_unity(zerolab_grader ${grader} ${judging})
target_compile_options(zerolab_grader PRIVATE ${ZEROLAB_UNOPTIMISED})
target_link_libraries(zerolab_grader PRIVATE zerolab::zerolab zerolab_flags nlohmann_json::nlohmann_json)
list(JOIN makers "," makers)
set_source_files_properties("${folder}/grader/exercises.cpp" PROPERTIES
  COMPILE_DEFINITIONS "ZEROLAB_EXERCISES=${makers}")

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

# zerolab_toolchain(file includes archives library folder-of-the-library texts source)
function(zerolab_toolchain output include archives library library_folder texts source)
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
  "${folder}" "${PROJECT_SOURCE_DIR}" ${ccache})

# --- installed: everything in one folder, which find_toolchain() finds from the program ------------------

if(ZEROLAB_INSTALL)
  set(installed "${CMAKE_INSTALL_DATADIR}/zerolab/exercises")
  set(prefix "${CMAKE_INSTALL_PREFIX}")   # only differences of folders matter: the prefix may be moved
  file(RELATIVE_PATH to_headers "${prefix}/${installed}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}/zerolab")
  file(RELATIVE_PATH to_library "${prefix}/${installed}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  zerolab_toolchain("${ZEROLAB_EXERCISES_FOLDER}/installed/exercises.json" "{here}/${to_headers}" "{here}"
    "{here}/${to_library}/$<TARGET_FILE_NAME:zerolab>" "{here}/${to_library}" "{here}" "")
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

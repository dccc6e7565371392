# Writes a C++ source with a function that returns the texts of the files that match PATTERN, in the
# order of their names. HEADER declares the function.
# cmake -D "PATTERN=stages/predict/machines/*.json" -D FUNCTION=shipped_machine_texts
#   -D HEADER=stages/predict/clock/machine.h -D OUTPUT=machines.cpp -P embed_texts.cmake
file(GLOB files "${PATTERN}")
if(NOT files)
  message(FATAL_ERROR "no file matches ${PATTERN}")
endif()
set(source "#include \"${HEADER}\"\n\nnamespace zl {\n\n")
string(APPEND source "std::vector<std::string> ${FUNCTION}() {\n  return {\n")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  string(APPEND source "R\"text(${text})text\",\n")
endforeach()
file(WRITE "${OUTPUT}" "${source}};\n}\n\n}  // namespace zl\n")

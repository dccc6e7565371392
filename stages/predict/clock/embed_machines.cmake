# Writes shipped_machine_texts() of stages/predict/clock/machine.h: the texts of the files of FOLDER,
# in the order of their names.
# cmake -D FOLDER=stages/predict/machines -D OUTPUT=machines.cpp -P embed_machines.cmake
file(GLOB files "${FOLDER}/*.json")
if(NOT files)
  message(FATAL_ERROR "no machine in ${FOLDER}")
endif()
set(source "#include \"stages/predict/clock/machine.h\"\n\nnamespace zl {\n\n")
string(APPEND source "std::vector<std::string> shipped_machine_texts() {\n  return {\n")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  string(APPEND source "R\"text(${text})text\",\n")
endforeach()
file(WRITE "${OUTPUT}" "${source}};\n}\n\n}  // namespace zl\n")

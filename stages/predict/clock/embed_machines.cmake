# Writes a C++ source that holds the machines of FOLDER, in the order of their names.
# cmake -D FOLDER=stages/predict/machines -D OUTPUT=machines.cpp -P embed_machines.cmake
file(GLOB machines "${FOLDER}/*.json")
if(NOT machines)
  message(FATAL_ERROR "no machines in ${FOLDER}")
endif()
set(source "#include \"stages/predict/clock/machine.h\"\n\nnamespace zl {\n\n")
string(APPEND source "std::vector<std::string> shipped_machine_texts() {\n  return {\n")
foreach(machine IN LISTS machines)
  file(READ "${machine}" text)
  string(APPEND source "R\"machine(${text})machine\",\n")
endforeach()
file(WRITE "${OUTPUT}" "${source}};\n}\n\n}  // namespace zl\n")

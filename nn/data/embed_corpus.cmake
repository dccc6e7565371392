# Writes a C++ source that holds the chapters of FOLDER, in the order of their names.
# cmake -D FOLDER=nn/data/corpus -D OUTPUT=corpus.cpp -P embed_corpus.cmake
file(GLOB chapters "${FOLDER}/*.txt")
if(NOT chapters)
  message(FATAL_ERROR "no chapters in ${FOLDER}")
endif()
set(source "#include \"nn/data/corpus.h\"\n\nnamespace zl {\n\nstd::string_view default_corpus() {\n  return\n")
foreach(chapter IN LISTS chapters)
  file(READ "${chapter}" text)
  string(APPEND source "R\"corpus(${text}\n)corpus\"\n")
endforeach()
file(WRITE "${OUTPUT}" "${source};\n}\n\n}  // namespace zl\n")

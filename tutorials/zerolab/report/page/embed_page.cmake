# Writes a C++ source that holds files of text: those of the page in FOLDER, and the stage files.
# cmake -D FOLDER=tutorials/zerolab/report/page -D STAGES=stages -D OUTPUT=page_files.cpp -P embed_page.cmake
file(GLOB page_files "${FOLDER}/*.html" "${FOLDER}/*.css" "${FOLDER}/*.js")
set(stage_files "")
foreach(stage ddp zero1 zero2 zero3)
  if(EXISTS "${STAGES}/${stage}.cpp")
    list(APPEND stage_files "${STAGES}/${stage}.cpp")
  endif()
endforeach()

set(source "#include \"tutorials/zerolab/report/page/embedded.h\"\n\nnamespace zl::cli {\n")
foreach(kind page stage)
  string(APPEND source "\nconst std::vector<EmbeddedFile>& ${kind}_files() {\n"
    "  static const std::vector<EmbeddedFile> files = {\n")
  foreach(path IN LISTS ${kind}_files)
    get_filename_component(name "${path}" NAME)
    file(READ "${path}" text)
    string(APPEND source "{\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  string(APPEND source "  };\n  return files;\n}\n")
endforeach()
file(WRITE "${OUTPUT}" "${source}\n}  // namespace zl::cli\n")

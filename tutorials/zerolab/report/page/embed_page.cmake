# Writes a C++ source that holds the page in FOLDER, as one text, and the stage files.
# cmake -D FOLDER=tutorials/zerolab/report/page -D STAGES=stages -D OUTPUT=page_files.cpp -P embed_page.cmake
file(READ "${FOLDER}/page.html" page)
file(GLOB parts "${FOLDER}/*.css" "${FOLDER}/*.js")
foreach(path IN LISTS parts)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" text)
  string(REPLACE "{{${name}}}" "${text}" page "${page}")
endforeach()
set(source "#include \"tutorials/zerolab/report/page/embedded.h\"\n\nnamespace zl::cli {\n
std::string_view page_template() {\n  return R\"embedded(${page})embedded\";\n}\n
const std::vector<EmbeddedFile>& stage_files() {
  static const std::vector<EmbeddedFile> files = {\n")
foreach(stage ddp zero1 zero2 zero3)
  if(EXISTS "${STAGES}/${stage}.cpp")
    file(READ "${STAGES}/${stage}.cpp" text)
    string(APPEND source "{\"${stage}\", R\"embedded(${text})embedded\"},\n")
  endif()
endforeach()
file(WRITE "${OUTPUT}" "${source}  };\n  return files;\n}\n\n}  // namespace zl::cli\n")

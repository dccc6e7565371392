# Writes TABLE, which lists the stages that the FILES declare with ZL_STAGE(name, …), unless it says so already.
foreach(file IN LISTS FILES)
  file(STRINGS "${file}" lines REGEX "^ZL_STAGE\\(")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^ZL_STAGE\\(([A-Za-z0-9_]+).*" "\\1" name "${line}")
    string(APPEND declared "StageFile stage_${name}();\n")
    list(APPEND calls "stage_${name}()")
  endforeach()
endforeach()
list(JOIN calls ", " all)
set(text "// Written by CMake.
#include \"stages/stage_file.h\"

namespace zl {

${declared}
std::vector<StageFile> library_stages() { return {${all}}; }

}  // namespace zl
")
file(CONFIGURE OUTPUT "${TABLE}" CONTENT "${text}" @ONLY)

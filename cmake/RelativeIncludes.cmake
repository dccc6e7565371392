# Makes the headers below ${headers} include each other by relative paths, so that <zerolab/nn/unit.h> works.
file(GLOB_RECURSE all RELATIVE "${headers}" "${headers}/*.h")
foreach(header IN LISTS all)
  get_filename_component(folder "${header}" DIRECTORY)
  string(REGEX REPLACE "[^/]+" ".." up "${folder}")
  file(READ "${headers}/${header}" text)
  string(REGEX REPLACE "#include \"(tensor|autograd|nn|optim|dist|stages|tutorials)/" "#include \"${up}/\\1/"
    text "${text}")
  file(WRITE "${headers}/${header}" "${text}")
endforeach()

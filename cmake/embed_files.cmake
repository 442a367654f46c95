# Script: writes OUTPUT, the table of src/base/embedded.h, from the files named in LIST (relative
# to one of FOLDERS). Bytes become character constants: string literals end at 4095 characters in ISO C,
# and 0xe2 does not fit a signed char without a warning while '\xe2' does.
file(READ "${LIST}" files)
set(arrays "")
set(table "")
set(count 0)
foreach(path IN LISTS files)
  foreach(folder IN LISTS FOLDERS)
    if(EXISTS "${folder}/${path}")
      file(READ "${folder}/${path}" hex HEX)
      break()
    endif()
  endforeach()
  string(LENGTH "${hex}" digits)
  math(EXPR length "${digits} / 2")
  string(REGEX REPLACE "(................)" "\\1\n    " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1', " bytes "${hex}")
  string(APPEND arrays "static const char file_${count}[] = {\n    ${bytes}'\\0'};\n")
  string(APPEND table "    {\"${path}\", file_${count}, ${length}},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE "${OUTPUT}" "/* Written by the build (cmake/embed_files.cmake) from data/, src/backend/ and results/. */
#include \"base/embedded.h\"

${arrays}
const struct gd_embedded_file gd_embedded_files[] = {
${table}    {0},
};
const int gd_embedded_file_count = ${count};
")

# Every header must compile alone: one source per header that includes nothing else. The
# declaration is there because a file without any is not C.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
  src/*.h include/*.h tests/*.h bench/*.h)
set(alone_sources "")
foreach(header IN LISTS headers)
  string(REGEX REPLACE "[/.]" "_" name "${header}")
  set(source "${GD_GENERATED_DIR}/alone/${name}.c")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT
    "#include \"@PROJECT_SOURCE_DIR@/@header@\"\nextern int gd_header_compiles_alone;\n")
  list(APPEND alone_sources "${source}")
endforeach()
if(alone_sources)
  add_library(gd_headers_alone OBJECT ${alone_sources})
  add_dependencies(gd_headers_alone gd_generated)
  target_include_directories(gd_headers_alone PRIVATE tests)
  target_link_libraries(gd_headers_alone PRIVATE gpudays_core gd_flags)
endif()

# bench/bench_<name>.c, each a program in <build>/bench. They are built with everything else, so
# that they keep compiling, and never installed.
file(GLOB bench_files CONFIGURE_DEPENDS bench/bench_*.c)
if(GD_SANITIZE)
  set(bench_files "")
endif()
foreach(path IN LISTS bench_files)
  cmake_path(GET path STEM name)
  add_executable(${name} "${path}")
  target_link_libraries(${name} PRIVATE gpudays_core gd_flags)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
endforeach()

# tests/fuzz/fuzz_<name>.c, each a libFuzzer program in <build>/fuzzers. tools/fuzz runs them.
file(GLOB fuzz_files CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(path IN LISTS fuzz_files)
  cmake_path(GET path STEM name)
  add_executable(${name} "${path}" tests/fuzz/initialize.c)
  target_include_directories(${name} PRIVATE tests)
  target_link_libraries(${name} PRIVATE gpudays_core gd_flags)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzzers")
endforeach()

# Fuzzers feed what reads input: texts, presets, files. The kernels behind the backends only have to
# link, and instrumenting their unrolled loops would take most of the build.
set(kernel_sources ${core_sources})
list(FILTER kernel_sources INCLUDE REGEX "/src/backend/")
set_source_files_properties(${kernel_sources} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=all;-O0")

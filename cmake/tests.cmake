# tests/<folder>/test_<name>.c and .sh become the ctest test <folder>/<name>, labelled <folder>.
# Exit 77 is a skip. tests/support/*.c is linked into every C test.
gd_use_package(cmocka)

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
add_library(gd_test_support INTERFACE)
target_include_directories(gd_test_support INTERFACE tests)
target_compile_definitions(gd_test_support INTERFACE "GD_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
target_link_libraries(gd_test_support INTERFACE gpudays_core gd_flags PkgConfig::cmocka)
if(support_sources)
  add_library(gd_test_support_objects STATIC ${support_sources})
  target_link_libraries(gd_test_support_objects PRIVATE gd_test_support)
endif()

# Threads that wait must sleep: ctest runs several tests at once on the same cores.
set(environment OMP_WAIT_POLICY=passive "GD_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
if(TARGET gpudays)
  list(APPEND environment "GPUDAYS=$<TARGET_FILE:gpudays>")
endif()
if(GD_SANITIZE)
  list(APPEND environment "ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()

file(GLOB test_files CONFIGURE_DEPENDS tests/*/test_*.c tests/*/test_*.sh)
foreach(path IN LISTS test_files)
  cmake_path(GET path PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  cmake_path(GET path STEM stem)
  if(GD_TEST_FOLDERS AND NOT folder IN_LIST GD_TEST_FOLDERS)
    continue()
  endif()
  string(REGEX REPLACE "^test_" "" name "${stem}")
  if(path MATCHES "\\.c$")
    set(target "test_${folder}_${name}")
    add_executable(${target} "${path}")
    target_link_libraries(${target} PRIVATE gd_test_support)
    if(TARGET gd_test_support_objects)
      target_link_libraries(${target} PRIVATE gd_test_support_objects)
    endif()
    set_target_properties(${target} PROPERTIES OUTPUT_NAME "${stem}"
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/${folder}")
    set(command "$<TARGET_FILE:${target}>")
  elseif(TARGET gpudays)
    set(command bash "${path}")
  else()
    message(STATUS "${folder}/${name} is left out: there is no src/cli to test")
    continue()
  endif()
  # A test that hangs must end; those that start ranks need room on a machine with few, busy cores.
  set(timeout 300)
  if(folder MATCHES "^(methods|comm|search|op|codegen|gpu)$")
    set(timeout 1200)
  endif()
  add_test(NAME "${folder}/${name}"
    COMMAND bash "${PROJECT_SOURCE_DIR}/tools/run-test" ${command})
  set_tests_properties("${folder}/${name}" PROPERTIES LABELS "${folder}"
    ENVIRONMENT "${environment}" SKIP_RETURN_CODE 77 TIMEOUT ${timeout})
endforeach()

# tests/<folder>/test_<name>.c and .sh become the ctest test <folder>/<name>, labelled <folder>.
# Exit 77 is a skip. tests/support/*.c, and the cases that several tests share (tests/*/cases_*.c), are
# a library that every C test links with.
# Without cmocka the program can still be built (`make quickstart`); building everything says what is missing, and
# CMake looks again the next time, since its cache is newer than what it wrote.
gd_find_package(cmocka)
if(NOT cmocka_FOUND)
  add_custom_target(tests_need_cmocka ALL
    COMMAND "${CMAKE_COMMAND}" -E touch "${PROJECT_BINARY_DIR}/CMakeCache.txt"
    COMMAND "${CMAKE_COMMAND}" -E echo "the tests need cmocka, which was not found by pkg-config: run tools/setup"
    COMMAND "${CMAKE_COMMAND}" -E false VERBATIM)
  return()
endif()

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c tests/*/cases_*.c)
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

# Lines `name argument`: such a test is run once for each of its lines, as <name>_<argument>.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/gpu/parts")
file(STRINGS tests/gpu/parts gpu_parts REGEX "^[a-z]")
set(gpu_cache "${PROJECT_BINARY_DIR}/gpu-cache")

foreach(item IN LISTS GD_TEST_FOLDERS)
  if(NOT IS_DIRECTORY "${PROJECT_SOURCE_DIR}/tests/${item}")
    string(REGEX REPLACE "/([^/]*)$" "/test_\\1" file "${item}")
    if(NOT EXISTS "${PROJECT_SOURCE_DIR}/tests/${file}.c" AND NOT EXISTS "${PROJECT_SOURCE_DIR}/tests/${file}.sh")
      message(FATAL_ERROR "GD_TEST_FOLDERS has ${item}, which is neither a folder of tests/ nor a test")
    endif()
  endif()
endforeach()

# What tests/gpu/test_cuda_failures.sh starts and has loaded: a program that holds memory of a GPU, a
# driver that computes nothing, and one that breaks the real one, which it needs at run time alone.
if(TARGET gpudays AND (NOT GD_TEST_FOLDERS OR "gpu" IN_LIST GD_TEST_FOLDERS))
  add_executable(gd_hold_memory tests/gpu/hold_memory.c)
  target_link_libraries(gd_hold_memory PRIVATE gpudays_core gd_flags)
  set_target_properties(gd_hold_memory PROPERTIES OUTPUT_NAME hold_memory)
  add_library(gd_fake_gpu SHARED tests/gpu/fake_gpu.c)
  set_target_properties(gd_fake_gpu PROPERTIES OUTPUT_NAME fake_gpu NO_SONAME ON)
  target_link_options(gd_fake_gpu PRIVATE -Wl,-soname,libcuda.so.1)
  add_library(gd_broken_gpu MODULE tests/gpu/broken_gpu.c)
  set_target_properties(gd_broken_gpu PROPERTIES OUTPUT_NAME broken_gpu SKIP_BUILD_RPATH ON)
  target_link_options(gd_broken_gpu PRIVATE -Wl,--no-as-needed)
  target_link_libraries(gd_broken_gpu PRIVATE gd_fake_gpu ${CMAKE_DL_LIBS})
  foreach(target IN ITEMS gd_fake_gpu gd_broken_gpu)
    target_include_directories(${target} PRIVATE src)
    target_link_libraries(${target} PRIVATE gd_flags)
  endforeach()
  foreach(target IN ITEMS gd_hold_memory gd_fake_gpu gd_broken_gpu)
    set_target_properties(${target} PROPERTIES PREFIX ""
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/gpu"
      LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/gpu")
  endforeach()
endif()

# Those that take longest, with GD_TEST_ALL=1 too: they begin first, so that none is left alone at the
# end. All others follow in any order; ctest itself remembers how long they took, in the same folder.
set(slowest adding/adding gpu/cuda_failures_fake methods/space comm/ranks parity/reference methods/memory cli/predict
  cli/bench gpu/cuda_kernels codegen/cpu_fused search/slurm comm/collectives cli/files op/cpu_ops cli/held search/search
  search/kill cli/accuracy cli/schema train/end train/train cli/width report/cli export/target train/spikes cli/cost
  cli/own_models cli/results pass/compile report/report cli/manual train/options plan/depth report/curves cli/scaling
  trial/trial report/browser model/registry cli/survey train/sessions train/runs pass/heads base/switches
  train/slurm_run train/parity paper/seeds train/images train/found pass/loss backend/cuda_gemm pass/graph_cache
  model/trim pass/accumulate pass/attention data/tokenizer hw/hw methods/overlap methods/parts)
list(REVERSE slowest)

file(GLOB test_files CONFIGURE_DEPENDS tests/*/test_*.c tests/*/test_*.sh)
foreach(path IN LISTS test_files)
  cmake_path(GET path PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  cmake_path(GET path STEM stem)
  string(REGEX REPLACE "^test_" "" name "${stem}")
  if(GD_TEST_FOLDERS AND NOT folder IN_LIST GD_TEST_FOLDERS
     AND NOT "${folder}/${name}" IN_LIST GD_TEST_FOLDERS)
    continue()
  endif()
  if(path MATCHES "\\.c$")
    set(target "test_${folder}_${name}")
    add_executable(${target} "${path}")
    target_link_libraries(${target} PRIVATE gd_test_support)
    if(TARGET gd_test_support_objects)
      target_link_libraries(${target} PRIVATE gd_test_support_objects)
    endif()
    set_target_properties(${target} PROPERTIES OUTPUT_NAME "${stem}"
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/${folder}")
    set(command ${CMAKE_CROSSCOMPILING_EMULATOR} "$<TARGET_FILE:${target}>")
  elseif(CMAKE_CROSSCOMPILING)
    message(STATUS "${folder}/${name} is left out: the program of another architecture starts no programs here")
    continue()
  elseif(TARGET gpudays)
    set(command bash "${path}")
  else()
    message(STATUS "${folder}/${name} is left out: there is no src/cli to test")
    continue()
  endif()
  # Tests of many cases run a part of them, and all with GD_TEST_ALL (tests/support/sample.h): they are
  # labelled, so that `make check-rest` need not repeat the others.
  set(labels "${folder}")
  file(STRINGS "${path}" samples LIMIT_COUNT 1 REGEX "GD_TEST_ALL|(support/sample|support/fault|op_cases|cuda_cases|cuda_ops)\\.h")
  if(samples)
    list(APPEND labels sampled)
  endif()
  # Under sanitizers, whole walks through commands whose modules have quick tests there are for `make check-rest`.
  if(GD_SANITIZE AND "${folder}/${name}" MATCHES "^(export/target|paper/seeds)$")
    list(APPEND labels sampled rest)
  endif()
  # A test that hangs must end. The longest takes two minutes, and ten times that on a busy machine.
  set(timeout 1800)
  set(test_environment ${environment})
  set(parts "${gpu_parts}")
  list(FILTER parts INCLUDE REGEX "^${name} ")
  if(NOT folder STREQUAL "gpu" OR NOT parts)
    set(parts "${name}")
  endif()
  if(folder STREQUAL "gpu") # kernels that one has compiled are there for all
    list(APPEND test_environment "GD_TEST_CACHE=${gpu_cache}")
  endif()
  foreach(part IN LISTS parts)
    separate_arguments(words UNIX_COMMAND "${part}")
    list(POP_FRONT words)
    string(REGEX REPLACE "[ /]" "_" part "${part}")
    add_test(NAME "${folder}/${part}"
      COMMAND bash "${PROJECT_SOURCE_DIR}/tools/run-test" ${command} ${words})
    set_tests_properties("${folder}/${part}" PROPERTIES LABELS "${labels}"
      ENVIRONMENT "${test_environment}" SKIP_RETURN_CODE 77 TIMEOUT ${timeout})
    list(FIND slowest "${folder}/${part}" place)
    if(place GREATER_EQUAL 0)
      math(EXPR cost "10 + ${place}")
      set_tests_properties("${folder}/${part}" PROPERTIES COST ${cost})
    endif()
    # One takes all of the GPU's memory; the other waits a few seconds for ranks that share it.
    if(part MATCHES "^cuda_(failures_real|rank_lost)$")
      set_tests_properties("${folder}/${part}" PROPERTIES RUN_SERIAL ON)
    endif()
  endforeach()
endforeach()

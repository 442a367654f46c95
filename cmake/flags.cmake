# gd_flags: how our own code is compiled. No -march (fast paths are chosen at run time) and no
# fast-math (results must not depend on the compiler's mood).
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(gd_flags INTERFACE)
target_compile_options(gd_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef
  -Wvla -Wcast-qual -Wwrite-strings -Wformat=2 -Wdouble-promotion
  -fno-math-errno)
# clang's -Wconversion also objects to GD_ASSERT(!"reason"), which is fine.
# A loop that clang does not vectorize at -O1 is no finding: programs are built by -O2 and more.
target_compile_options(gd_flags INTERFACE 
  $<$<C_COMPILER_ID:Clang>:-Wno-string-conversion> $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
if(GD_WERROR)
  target_compile_options(gd_flags INTERFACE -Werror)
endif()

if(GD_SANITIZE OR GD_FUZZ)
  set(sanitizers address,undefined)
  if(GD_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "GD_FUZZ needs clang, not ${CMAKE_C_COMPILER}: use cmake --preset fuzz")
    endif()
    string(APPEND sanitizers ",fuzzer-no-link")
  endif()
  # The first report ends the program: a test that reports must fail.
  target_compile_options(gd_flags INTERFACE
    -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(gd_flags INTERFACE -fsanitize=${sanitizers})
endif()

# A build that is only looked at (GD_TIDY) makes no code: each file is read as by the compiler, with all of its warnings,
# and nothing is linked. Ninja still does anew what changed alone.
if(GD_TIDY)
  set(CMAKE_C_COMPILE_OBJECT "<CMAKE_C_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -fsyntax-only <SOURCE>" "touch <OBJECT>")
  foreach(kind IN ITEMS LINK_EXECUTABLE CREATE_SHARED_LIBRARY CREATE_SHARED_MODULE)
    set(CMAKE_C_${kind} "touch <TARGET>")
  endforeach()
  foreach(kind IN ITEMS "" _IPO)
    set(CMAKE_C_ARCHIVE_CREATE${kind} "touch <TARGET>")
    set(CMAKE_C_ARCHIVE_APPEND${kind} "true")
    set(CMAKE_C_ARCHIVE_FINISH${kind} "true")
  endforeach()
endif()

# gd_tidy(target): clang-tidy runs with each compilation of the target, so it is parallel and
# only looks at what changed. The digest in the arguments makes a change of .clang-tidy count.
function(gd_tidy target)
  if(NOT GD_TIDY)
    return()
  endif()
  find_program(GD_CLANG_TIDY clang-tidy)
  if(NOT GD_CLANG_TIDY)
    message(FATAL_ERROR "clang-tidy was not found: run tools/setup")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS .clang-tidy)
  file(SHA256 "${PROJECT_SOURCE_DIR}/.clang-tidy" digest)
  string(SUBSTRING "${digest}" 0 12 digest)
  set(checks "--checks=-clang-analyzer-*") # the analyzer takes four fifths of the time
  if(GD_TIDY STREQUAL "ALL")
    set(checks "--checks=")
  endif()
  set_target_properties(${target} PROPERTIES
    C_CLANG_TIDY "${GD_CLANG_TIDY};--quiet;${checks};--extra-arg=-DGD_TIDY_CONFIG_${digest}")
endfunction()

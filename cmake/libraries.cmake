# gd_libraries: everything gpudays_core links with. A library that is missing ends the
# configuration with the remedy.
add_library(gd_libraries INTERFACE)

# gd_find_package(module): a library found by pkg-config: <module>_FOUND, and the target PkgConfig::<module>.
# gd_use_package(module): the same, and required. pkg-config also looks where CMake does, conda's folder for one.
find_package(PkgConfig QUIET)
if(DEFINED ENV{CONDA_PREFIX} AND NOT CMAKE_SYSROOT)
  list(APPEND CMAKE_PREFIX_PATH "$ENV{CONDA_PREFIX}")
endif()
macro(gd_find_package module)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${module} QUIET IMPORTED_TARGET GLOBAL ${module})
  endif()
endmacro()
function(gd_use_package module)
  gd_find_package(${module})
  if(NOT ${module}_FOUND)
    message(FATAL_ERROR "${module} was not found by pkg-config: run tools/setup")
  endif()
endfunction()

# gd_use_library(name header): a library without a pkg-config file, linked into gd_libraries.
function(gd_use_library name header)
  find_path(GD_${name}_INCLUDE_DIR ${header})
  find_library(GD_${name}_LIBRARY ${name})
  if(NOT GD_${name}_INCLUDE_DIR OR NOT GD_${name}_LIBRARY)
    message(FATAL_ERROR "lib${name} with ${header} was not found: run tools/setup")
  endif()
  target_include_directories(gd_libraries SYSTEM INTERFACE "${GD_${name}_INCLUDE_DIR}")
  target_link_libraries(gd_libraries INTERFACE "${GD_${name}_LIBRARY}")
endfunction()

# GD_STATIC leaves only glibc's own libraries to the loader: a program that runs wherever there is such a glibc.
# The compiler's libgomp.so may ask for a later one than that of a sysroot, so only its libgomp.a is tried.
option(GD_STATIC "Link everything but the C library statically" OFF)
if(GD_STATIC)
  execute_process(COMMAND "${CMAKE_C_COMPILER}" -print-file-name=libgomp.a
    OUTPUT_VARIABLE gomp OUTPUT_STRIP_TRAILING_WHITESPACE)
  add_library(OpenMP::OpenMP_C INTERFACE IMPORTED)
  target_compile_options(OpenMP::OpenMP_C INTERFACE -fopenmp)
  target_link_libraries(OpenMP::OpenMP_C INTERFACE "${gomp}")
  target_link_options(gd_libraries INTERFACE -static-libgcc -Wl,--as-needed)
else()
  find_package(OpenMP QUIET COMPONENTS C)
  if(NOT OpenMP_C_FOUND)
    message(FATAL_ERROR "OpenMP for ${CMAKE_C_COMPILER} was not found: run tools/setup")
  endif()
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

set(gd_suffixes "${CMAKE_FIND_LIBRARY_SUFFIXES}")
if(GD_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
gd_use_package(jansson)
gd_use_package(smartcols)
gd_use_package(sqlite3)
set(CMAKE_FIND_LIBRARY_SUFFIXES "${gd_suffixes}")
if(EXISTS "${PROJECT_SOURCE_DIR}/src/backend/cpu/gemm_dnnl.c")
  gd_use_library(dnnl dnnl.h)
endif()

target_link_libraries(gd_libraries INTERFACE
  OpenMP::OpenMP_C PkgConfig::jansson PkgConfig::smartcols PkgConfig::sqlite3 Threads::Threads
  ${CMAKE_DL_LIBS} m)

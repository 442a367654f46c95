# Toolchain file: this machine's gcc (or its cross-compiler) with the C library and libraries of tools/sysroot, for
# programs that run on any Linux with glibc 2.31. GD_ARCHITECTURE: amd64 or arm64. What was built for arm64 runs through
# qemu's user emulation.
set(GD_ARCHITECTURE "amd64" CACHE STRING "Architecture of the sysroot, as Debian calls it")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GD_ARCHITECTURE)

get_filename_component(gd_tools "${CMAKE_CURRENT_LIST_DIR}/../tools" ABSOLUTE)
execute_process(COMMAND "${gd_tools}/sysroot" --path "${GD_ARCHITECTURE}"
  OUTPUT_VARIABLE CMAKE_SYSROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT EXISTS "${CMAKE_SYSROOT}/.complete")
  message(FATAL_ERROR "there is no sysroot for ${GD_ARCHITECTURE}: run tools/sysroot ${GD_ARCHITECTURE}")
endif()

execute_process(COMMAND uname -m OUTPUT_VARIABLE gd_machine OUTPUT_STRIP_TRAILING_WHITESPACE)
if(GD_ARCHITECTURE STREQUAL "arm64")
  set(gd_triplet aarch64-linux-gnu)
else()
  set(gd_triplet x86_64-linux-gnu)
endif()
string(REGEX MATCH "^[^-]*" gd_processor "${gd_triplet}")
if(NOT gd_processor STREQUAL gd_machine)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR "${gd_processor}")
  set(CMAKE_C_COMPILER "${gd_triplet}-gcc")
  set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-${gd_processor};-L;${CMAKE_SYSROOT}")
  # A cross-compiler of Debian looks for its own C library first, whatever the sysroot.
  execute_process(COMMAND "${CMAKE_C_COMPILER}" -print-file-name=include
    OUTPUT_VARIABLE gd_include OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(CONCAT CMAKE_C_FLAGS_INIT "-nostdinc -isystem ${gd_include} "
    "-isystem ${CMAKE_SYSROOT}/usr/include/${gd_triplet} -isystem ${CMAKE_SYSROOT}/usr/include")
endif()
# gcc looks next to itself before it looks in the sysroot.
set(gd_lib "${CMAKE_SYSROOT}/usr/lib/${gd_triplet}")
foreach(kind IN ITEMS EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-B${gd_lib} -L${gd_lib} -L${CMAKE_SYSROOT}/lib/${gd_triplet}")
endforeach()
set(CMAKE_LIBRARY_ARCHITECTURE "${gd_triplet}")
# Programs are this machine's, everything else is the sysroot's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/${gd_triplet}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_PATH} "")

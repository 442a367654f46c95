# Script: writes OUTPUT (gd_version.h) and PACKAGES (version.cmake) from VERSION, which is the project's, and what git says
# of SOURCE_DIR; GIT may be empty.
#   GD_VERSION         the project's version
#   GD_COMMIT          the commit, 12 digits; "-dirty" at the end: tracked files differ from it
#   GD_SOURCE          what was built: the tag v0.1.0, or v0.1.0-5-g and the commit five after it, or the commit alone
#   GD_PACKAGE_VERSION for packages, in dpkg's order: 0.1.0~822.gCOMMIT comes before 0.1.0, 0.1.0+5.gCOMMIT after it
# Outside a checkout of our own (one unpacked inside another repository) archived.txt has the commit, which
# `git archive` writes, or it is "unknown". safe.directory: a build as root in a user's checkout is fine here.
cmake_minimum_required(VERSION 3.22)

set(commit "unknown")
set(tag "")
set(since 0)
set(dirty "")
set(git "${GIT}" -c "safe.directory=${SOURCE_DIR}" -C "${SOURCE_DIR}")
if(GIT)
  execute_process(COMMAND ${git} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(REAL_PATH "${SOURCE_DIR}" here)
if(GIT AND top STREQUAL here)
  execute_process(COMMAND ${git} rev-parse --verify --quiet --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${git} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes ERROR_QUIET)
  execute_process(COMMAND ${git} describe --tags --match "v[0-9]*" --long
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(head)
    set(commit "${head}")
    if(changes)
      set(dirty "-dirty")
    endif()
    if(described MATCHES "^v(.*)-([0-9]+)-g[0-9a-f]+$")
      set(tag "${CMAKE_MATCH_1}")
      set(since "${CMAKE_MATCH_2}")
    else()
      execute_process(COMMAND ${git} rev-list --count HEAD
        OUTPUT_VARIABLE since OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
elseif(EXISTS "${SOURCE_DIR}/cmake/archived.txt")
  file(READ "${SOURCE_DIR}/cmake/archived.txt" archived)
  if(archived MATCHES "commit ([0-9a-f]+)")
    string(SUBSTRING "${CMAKE_MATCH_1}" 0 12 commit)
  endif()
  if(archived MATCHES "tag: v([0-9][^,\n]*)")
    set(tag "${CMAKE_MATCH_1}")
  endif()
endif()

set(source "${commit}")
set(package "${VERSION}~${since}.g${commit}")
if(tag AND since EQUAL 0)
  set(source "v${tag}")
  set(package "${VERSION}")
  if(NOT tag STREQUAL VERSION)
    message(FATAL_ERROR "the tag is v${tag} and CMakeLists.txt has project(gpudays VERSION ${VERSION}): "
      "change one of them")
  endif()
elseif(tag)
  set(source "v${tag}-${since}-g${commit}")
  if(NOT tag VERSION_LESS VERSION)
    set(package "${VERSION}+${since}.g${commit}")
  endif()
elseif(commit STREQUAL "unknown")
  set(package "${VERSION}")
endif()
string(APPEND commit "${dirty}")
string(APPEND source "${dirty}")
string(REPLACE "-" "." suffix "${dirty}")
string(APPEND package "${suffix}")

file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
/* Written by the build (cmake/write_version.cmake). */
#ifndef GD_VERSION_H
#define GD_VERSION_H

#define GD_VERSION "@VERSION@"
#define GD_COMMIT "@commit@" /* "-dirty" at the end: tracked files differ from the commit */
#define GD_SOURCE "@source@" /* the tag, the tag and the commit after it, or the commit */

#endif
]])
if(PACKAGES)
  file(CONFIGURE OUTPUT "${PACKAGES}" @ONLY CONTENT "set(GD_PACKAGE_VERSION \"@package@\")\n")
endif()

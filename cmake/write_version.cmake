# Script: writes OUTPUT (gd_version.h) from VERSION and the commit of SOURCE_DIR; GIT may be empty.
# Outside a checkout of our own (a release archive, or one unpacked inside another repository) the
# commit is "unknown". safe.directory: a build as root in a user's checkout is fine here.
set(commit "unknown")
set(git "${GIT}" -c "safe.directory=${SOURCE_DIR}" -C "${SOURCE_DIR}")
if(GIT)
  execute_process(COMMAND ${git} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE_DIR}" here)
  if(top STREQUAL here)
    execute_process(COMMAND ${git} rev-parse --verify --quiet --short=12 HEAD
      OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND ${git} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(head)
      set(commit "${head}")
      if(changes)
        string(APPEND commit "-dirty")
      endif()
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
/* Written by the build (cmake/write_version.cmake). */
#ifndef GD_VERSION_H
#define GD_VERSION_H

#define GD_VERSION "@VERSION@"
#define GD_COMMIT "@commit@" /* "-dirty" at the end: tracked files differ from the commit */

#endif
]])

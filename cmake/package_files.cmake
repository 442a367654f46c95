# Run by cpack between installing and packing: what Debian's policy wants in each package and `make install` has no use
# for: a copyright file, the change logs, a manual page that is compressed, a library without what debuggers read.
set(root "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # that of SOURCE_DATE_EPOCH, where it is set
file(READ "${CPACK_GD_SOURCE_DIR}/NOTICE" notice)
string(REGEX MATCH "Copyright ([^\n]*)" copyright "${notice}")
set(holders "${CMAKE_MATCH_1}")

function(compress path)
  execute_process(COMMAND gzip -9nf "${path}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER "${component}" upper)
  set(package "${CPACK_DEBIAN_${upper}_PACKAGE_NAME}")
  set(doc "${root}/${component}/usr/share/doc/${package}")
  file(WRITE "${doc}/copyright"
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
    "Upstream-Name: gpudays\n\n"
    "Files: *\n"
    "Copyright: ${holders}\n"
    "License: Apache-2.0\n"
    " On Debian systems the text of the Apache License, version 2.0, is in\n"
    " /usr/share/common-licenses/Apache-2.0.\n")
  file(WRITE "${doc}/changelog.Debian"
    "gpudays (${CPACK_DEBIAN_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
    "  * Built from the sources of this version; changelog.gz has its changes.\n\n"
    " -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${now}\n")
  configure_file("${CPACK_GD_SOURCE_DIR}/CHANGELOG.md" "${doc}/changelog" COPYONLY)
  compress("${doc}/changelog.Debian")
  compress("${doc}/changelog")
  file(GLOB archives "${root}/${component}/usr/lib/*/*.a")
  foreach(archive IN LISTS archives)
    execute_process(COMMAND strip --strip-debug "${archive}" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  file(GLOB pages "${root}/${component}/usr/share/man/man*/*.[1-9]")
  foreach(page IN LISTS pages)
    compress("${page}")
  endforeach()
endforeach()

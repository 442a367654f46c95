# libgpudays.so with the API of include/gpudays/gpudays.h and nothing else, libgpudays.a, the header
# and gpudays.pc. The shared library is made of the objects of gpudays_core, which are compiled once.
add_library(gpudays_shared SHARED $<TARGET_OBJECTS:gpudays_core> $<TARGET_OBJECTS:gd_embedded>)
target_link_libraries(gpudays_shared PRIVATE gd_libraries)
target_link_options(gpudays_shared PRIVATE -Wl,--no-undefined -Wl,--as-needed)
# A version below 1 may change in any way, so that the soname has both of its numbers.
set_target_properties(gpudays_shared PROPERTIES OUTPUT_NAME gpudays LINKER_LANGUAGE C
  VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
  INSTALL_RPATH_USE_LINK_PATH ON)

install(TARGETS gpudays_shared LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS gpudays_core ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(DIRECTORY include/gpudays DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)

# Relative to the file itself: the tree may be moved, or installed under DESTDIR.
file(RELATIVE_PATH GD_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" GD_PC_PREFIX "${GD_PC_PREFIX}")
configure_file(cmake/gpudays.pc.in gpudays.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/gpudays.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT development)

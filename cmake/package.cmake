# Debian packages by CPack: gpudays (the program), libgpudays0.1 (the shared library) and libgpudays-dev. What they need
# is what dpkg-shlibdeps finds; what is loaded at run time, where a user asks for it, is recommended or suggested.
# tools/package runs it; package_config.cmake and package_files.cmake are what CPack reads and runs.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gpudays)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}") # package_config.cmake puts git's words to it
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/package_config.cmake")
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/package_files.cmake")
set(CPACK_GD_VERSION_FILE "${GD_GENERATED_DIR}/version.cmake")
set(CPACK_GD_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
  GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(soname "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME gpudays)
set(CPACK_DEBIAN_PROGRAM_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "how long it takes to pre-train a model on given GPUs
Answers how long, how much and with which settings pre-training a model takes
on GPUs that one has, might rent or might buy: it plans the memory to the byte,
runs real training steps or predicts them, and extrapolates to days. It also
trains the model, on the CPU or on NVIDIA GPUs.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "gnuplot-nox | gnuplot")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "openmpi-bin, libturbojpeg0 | libturbojpeg, libpng16-16 | libpng16-16t64, gcc")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "libgpudays${soname}")
set(CPACK_DEBIAN_RUNTIME_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
# A trigger in place of the scripts that CPack would write, which Debian no longer has.
file(WRITE "${PROJECT_BINARY_DIR}/debian/triggers" "activate-noawait ldconfig\n")
file(WRITE "${PROJECT_BINARY_DIR}/debian/shlibs" "libgpudays ${soname} libgpudays${soname} (>= ${PROJECT_VERSION}~)\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
  "${PROJECT_BINARY_DIR}/debian/triggers" "${PROJECT_BINARY_DIR}/debian/shlibs")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "plans and predicts pre-training (shared library)
The library of gpudays: it loads a model, plans its memory, predicts how long
training takes, and trains and verifies steps.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgpudays-dev)
set(CPACK_DEBIAN_DEVELOPMENT_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libjansson-dev, libsmartcols-dev, libsqlite3-dev")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "plans and predicts pre-training (development files)
The header, the static library and the pkg-config file of libgpudays, which
loads a model, plans its memory, predicts how long training takes, and trains
and verifies steps.")
include(CPack)

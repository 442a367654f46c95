# What the build writes: gd_version.h (version and commit) and embedded_data.c (data files and CUDA kernels).
# Target gd_generated makes the header, gd_embedded holds the compiled data.
set(GD_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${GD_GENERATED_DIR}")

# Asked on every build, written only when the answer changed.
find_package(Git QUIET)
add_custom_target(gd_generated
  COMMAND "${CMAKE_COMMAND}"
          "-DVERSION=${PROJECT_VERSION}"
          "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
          "-DGIT=$<IF:$<BOOL:${Git_FOUND}>,${GIT_EXECUTABLE},>"
          "-DOUTPUT=${GD_GENERATED_DIR}/gd_version.h"
          "-DPACKAGES=${GD_GENERATED_DIR}/version.cmake"
          -P "${PROJECT_SOURCE_DIR}/cmake/write_version.cmake"
  BYPRODUCTS "${GD_GENERATED_DIR}/gd_version.h" "${GD_GENERATED_DIR}/version.cmake"
  COMMENT "Asking git for the commit" VERBATIM)

# The list goes through a file: it is a dependency of its own, so a data file that was removed
# leaves the binary too.
file(GLOB_RECURSE data_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/data"
  data/*.json data/*.csv data/*.css data/*.js data/*.py data/completion/gpudays.* docs/gpudays.1.in)
file(GLOB_RECURSE kernel_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src/backend"
  src/backend/*.cu src/backend/*.cuh)
file(GLOB result_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" results/*.csv)
if(EMSCRIPTEN) # a page compiles no kernels, tokenizes nothing and has no results
  set(kernel_files "")
  set(result_files "")
  list(FILTER data_files EXCLUDE REGEX "^(completion|report|survey|tokenizers)/")
endif()
list(APPEND data_files ${kernel_files} ${result_files})
list(SORT data_files)
file(CONFIGURE OUTPUT "${GD_GENERATED_DIR}/embedded_files.txt" CONTENT "${data_files}" @ONLY)
set(data_paths "")
foreach(path IN LISTS data_files)
  if(path IN_LIST kernel_files)
    list(APPEND data_paths "${PROJECT_SOURCE_DIR}/src/backend/${path}")
  elseif(path IN_LIST result_files)
    list(APPEND data_paths "${PROJECT_SOURCE_DIR}/${path}")
  else()
    list(APPEND data_paths "${PROJECT_SOURCE_DIR}/data/${path}")
  endif()
endforeach()
set(embedded_source "${GD_GENERATED_DIR}/embedded_data.c")
if(GD_TIDY) # nothing is linked: there is nothing to find in it
  set(embedded_source "${GD_GENERATED_DIR}/embedded_none.c")
  file(CONFIGURE OUTPUT "${embedded_source}" CONTENT "#include \"base/embedded.h\"\n" @ONLY)
endif()
add_custom_command(
  OUTPUT "${GD_GENERATED_DIR}/embedded_data.c"
  COMMAND "${CMAKE_COMMAND}"
          "-DFOLDERS=${PROJECT_SOURCE_DIR}/data;${PROJECT_SOURCE_DIR}/src/backend;${PROJECT_SOURCE_DIR}"
          "-DLIST=${GD_GENERATED_DIR}/embedded_files.txt"
          "-DOUTPUT=${GD_GENERATED_DIR}/embedded_data.c"
          -P "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake"
  DEPENDS ${data_paths} "${GD_GENERATED_DIR}/embedded_files.txt"
          "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake"
  COMMENT "Embedding the data files" VERBATIM)
add_library(gd_embedded OBJECT "${embedded_source}")
target_include_directories(gd_embedded PRIVATE src)
target_link_libraries(gd_embedded PRIVATE gd_flags)

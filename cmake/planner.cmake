# The planner for browsers (emscripten; tools/planner): the program of src/cli as WebAssembly, without what
# a browser lacks. Of that src/web has the few functions that are still called. The page itself is put
# together by tools/planner.
#
# Code is compiled as for any other system but for its warnings: those of gcc and clang have seen it.
file(GLOB jansson_sources "${GD_JANSSON}/src/*.c")
if(NOT jansson_sources)
  message(FATAL_ERROR "the sources of jansson are not in \"${GD_JANSSON}\": use tools/planner")
endif()
# The configuration that jansson has for systems without autoconf.
configure_file("${GD_JANSSON}/android/jansson_config.h" jansson/jansson_config.h COPYONLY)
configure_file("${GD_JANSSON}/src/jansson.h" jansson/jansson.h COPYONLY)
file(WRITE "${PROJECT_BINARY_DIR}/jansson/jansson_private_config.h" "#define HAVE_STDINT_H 1
#define HAVE_UNISTD_H 1
#define HAVE_LOCALE_H 1
#define HAVE_LOCALECONV 1
#define HAVE_STRTOLL 1
#define INITIAL_HASHTABLE_ORDER 3
")
add_library(jansson STATIC ${jansson_sources})
target_compile_definitions(jansson PRIVATE HAVE_STDINT_H HAVE_CONFIG_H)
target_include_directories(jansson SYSTEM PUBLIC "${PROJECT_BINARY_DIR}/jansson")

file(GLOB_RECURSE planner_sources CONFIGURE_DEPENDS src/*.c)
list(FILTER planner_sources EXCLUDE REGEX "/src/(api|backend/(cpu|cuda|ref)|plot|survey|train)/|/src/backend/host\\.c")
# Of training, what tells the size of a checkpoint and the mask token of a recipe.
list(APPEND planner_sources "${PROJECT_SOURCE_DIR}/src/train/checkpoint.c"
  "${PROJECT_SOURCE_DIR}/src/train/run_settings.c")
list(FILTER planner_sources EXCLUDE REGEX "/src/store/store[a-z_]*\\.c")
list(FILTER planner_sources EXCLUDE REGEX
  "/src/cli/cmd_(accuracy|bench|calibrate|completion|doctor|evaluate|fit|report|results|runs|sample|survey|tokens|train|trial|verify|watch)\\.c")
add_executable(planner ${planner_sources} $<TARGET_OBJECTS:gd_embedded>)
add_dependencies(planner gd_generated)
# src/web has a libsmartcols.h.
target_include_directories(planner PRIVATE src src/web include "${GD_GENERATED_DIR}")
target_link_libraries(planner PRIVATE jansson gd_flags)
# One answer at a time, many of them by the same instance: main() is called again and again.
target_link_options(planner PRIVATE -O3
  -sMODULARIZE=1 -sEXPORT_NAME=gpudays -sENVIRONMENT=worker,node -sINVOKE_RUN=0 -sEXIT_RUNTIME=0
  -sFORCE_FILESYSTEM=1 -sALLOW_MEMORY_GROWTH=1 -sINITIAL_MEMORY=64MB -sTOTAL_STACK=4MB
  -sEXPORTED_FUNCTIONS=_main -sEXPORTED_RUNTIME_METHODS=callMain,FS,stackSave,stackRestore)

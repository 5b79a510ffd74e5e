# The choices of a build, and the one target that carries warnings and sanitizers.
include_guard()

set(PLUMB_WITH_SIM AUTO CACHE STRING "The simulator on SimGrid: AUTO, ON or OFF")
set(PLUMB_WITH_EXEC AUTO CACHE STRING "The executor on LibTorch: AUTO, ON or OFF")
set(PLUMB_WITH_CUDA AUTO CACHE STRING "CUDA kernels and NCCL: AUTO, ON or OFF")
foreach(option PLUMB_WITH_SIM PLUMB_WITH_EXEC PLUMB_WITH_CUDA)
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
endforeach()
option(PLUMB_BUILD_TESTS "Tests and benchmarks" ON)
option(PLUMB_UNITE "Compile the sources of a folder together: all in half the time, a changed one in more" ON)
set(PLUMB_UNITE_MOST 24 CACHE STRING "With PLUMB_UNITE: sources of the programs that compile together, at most")
option(PLUMB_WERROR "Warnings are errors" OFF)
option(PLUMB_FUZZ "Fuzz targets on libFuzzer, under address and undefined; needs clang" OFF)
set(PLUMB_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(PLUMB_CCACHE ccache)
if(PLUMB_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache wants before it takes sources with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${PLUMB_CCACHE})
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# PRIVATE to each of our targets.
add_library(plumb_options INTERFACE)
target_compile_options(plumb_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
# GCC 12's -Wrestrict is wrong about std::string concatenation (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(plumb_options INTERFACE -Wno-restrict)
endif()
if(PLUMB_WERROR)
  target_compile_options(plumb_options INTERFACE -Werror)
endif()
if(PLUMB_SANITIZE)
  target_compile_options(plumb_options INTERFACE -fsanitize=${PLUMB_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(plumb_options INTERFACE -fsanitize=${PLUMB_SANITIZE})
  # Left out of `undefined`: what makes compiling half as long again and finds nothing of its own here. Address tells of
  # a null pointer as well, and there are no casts between classes.
  if(PLUMB_SANITIZE MATCHES "undefined")
    target_compile_options(plumb_options INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  # What sanitizers add confuses g++ 12: it takes libstdc++'s std::regex for uninitialised (GCC bug 105562).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(plumb_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  # Compilers say it each in its own way.
  if(PLUMB_SANITIZE MATCHES "address")
    target_compile_definitions(plumb_options INTERFACE PLUMB_ADDRESS_SANITIZER)
  endif()
endif()

# For code that no loop waits for: it compiles in two thirds of the time. Under address, g++ calls for each access what it
# else writes out there: as much found, and half of the compiling.
if(NOT PLUMB_SANITIZE)
  set(PLUMB_COLD_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O1>)
elseif(PLUMB_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(PLUMB_COLD_OPTIONS --param=asan-instrumentation-with-call-threshold=0)
else()
  set(PLUMB_COLD_OPTIONS)
endif()

if(PLUMB_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "PLUMB_FUZZ=ON needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(plumb_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(plumb_options INTERFACE -fsanitize=address,undefined)
endif()

# plumb_resolve(WITH NAME FOUND PACKAGE): ON fails when the package is missing, AUTO degrades and says so.
# Sets ${NAME} in the caller's scope.
function(plumb_resolve with name found package)
  if(${with} STREQUAL "OFF" OR (${with} STREQUAL "AUTO" AND NOT found))
    set(enabled OFF)
  elseif(NOT found)
    message(FATAL_ERROR "${with}=ON, but ${package} was not found. Install it, or configure with -D${with}=AUTO.")
  else()
    set(enabled ON)
  endif()
  if(${with} STREQUAL "AUTO" AND NOT found)
    message(STATUS "plumb: ${name} is off, because ${package} was not found")
  endif()
  set(${name} ${enabled} PARENT_SCOPE)
  add_feature_info(${name} ${enabled} "needs ${package}")
endfunction()

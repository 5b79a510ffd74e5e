# CUDA where nvcc is found: sets PLUMB_CUDA, and makes one target with the warnings of our .cu files.
include_guard()

# A list as CMAKE_CUDA_ARCHITECTURES takes it.
set(PLUMB_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities to build kernels for, as 90 or \"80;90\"")

# CMake finds nvcc by CUDACXX and PATH; where the toolkit is installed, it often stands in neither.
function(plumb_find_cuda)
  set(found OFF)
  if(NOT PLUMB_WITH_CUDA STREQUAL "OFF")
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES ${PLUMB_CUDA_ARCHITECTURES} CACHE STRING "From PLUMB_CUDA_ARCHITECTURES" FORCE)
    endif()
    find_program(PLUMB_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(PLUMB_NVCC)
    if(PLUMB_NVCC AND NOT CMAKE_CUDA_COMPILER)
      execute_process(COMMAND ${PLUMB_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
      # C++20 came with 12.0.
      if(text MATCHES "release ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 12)
        set(CMAKE_CUDA_COMPILER ${PLUMB_NVCC})
        include(CheckLanguage)
        check_language(CUDA)
      endif()
    endif()
    if(CMAKE_CUDA_COMPILER)
      set(found ON)
    endif()
  endif()
  plumb_resolve(PLUMB_WITH_CUDA PLUMB_CUDA "${found}" "the CUDA Toolkit, 12.0 or later, with an nvcc that takes this C++ compiler")
  set(PLUMB_CUDA ${PLUMB_CUDA} PARENT_SCOPE)
  set(CMAKE_CUDA_COMPILER ${CMAKE_CUDA_COMPILER} PARENT_SCOPE)
endfunction()

# A macro, because a language is enabled for the scope that does it: called once, in the root.
macro(plumb_enable_cuda)
  plumb_find_cuda()
  if(PLUMB_CUDA)
    enable_language(CUDA)
    # CMake 3.25 sets a property of this library whether or not the toolkit has it, and CUDA 13 has it no more.
    if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit REQUIRED)
    if(PLUMB_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${PLUMB_CCACHE})
    endif()
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # starts without a driver, and says so when asked for a device
    # CMake 3.25 knows no C++20 of nvcc, so the option is written out. PRIVATE to each of our targets with .cu files, in place of plumb_options.
    add_library(plumb_cuda_options INTERFACE)
    target_compile_options(plumb_cuda_options INTERFACE -std=c++20 -Xcompiler=-Wall,-Wextra,-Wshadow)
    if(PLUMB_WERROR)
      target_compile_options(plumb_cuda_options INTERFACE --Werror=all-warnings -Xcompiler=-Werror)
    endif()
  endif()
endmacro()

# Precompiled headers: those of the standard library, torch and GoogleTest are read once for all files instead of once for
# each, which halves the time of a clean build. No header of this project is among them, so an edit makes none of them
# again. Every file still includes what it uses: without this option, and under clang-tidy, nothing else is there.
option(TESSERA_PRECOMPILED_HEADERS "Precompile headers of the standard library, torch and GoogleTest" ON)

# Of each kind those that many files include; a header that few need would cost all others the time to load it.
set(headers_standard <algorithm> <array> <chrono> <cstdint> <filesystem> <functional> <map> <memory> <optional> <span>
  <string> <string_view> <unordered_map> <utility> <vector>)
set(headers_torch <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/ops/empty.h> <ATen/ops/zeros.h>
  <ATen/TensorOperators.h>)
set(headers_test <fstream> <thread> <gtest/gtest.h>)

# tessera_use_headers(TARGET [TORCH] [TEST]): the target's files are compiled with the precompiled headers of its kind,
# which a target of their own holds. That one has the same options, for a compiler takes no headers made with other ones.
function(tessera_use_headers target)
  cmake_parse_arguments(ARG "TORCH;TEST" "" "" ${ARGN})
  if(NOT TESSERA_PRECOMPILED_HEADERS)
    return()
  endif()
  set(holder tessera_headers)
  set(headers ${headers_standard})
  set(links tessera_options)
  if(ARG_TORCH)
    string(APPEND holder _torch)
    list(APPEND headers ${headers_torch})
    list(APPEND links tessera_torch)
  endif()
  if(ARG_TEST)
    string(APPEND holder _test)
    list(APPEND headers ${headers_test})
    list(APPEND links tessera_test)
  endif()
  if(NOT TARGET ${holder})
    set(empty ${PROJECT_BINARY_DIR}/generated/empty.cpp)
    file(CONFIGURE OUTPUT ${empty} CONTENT "")
    add_library(${holder} OBJECT ${empty})
    target_link_libraries(${holder} PRIVATE ${links})
    target_precompile_headers(${holder} PRIVATE ${headers})
    if(ARG_TEST)  # programs are compiled with -fPIE, libraries with -fPIC
      set_target_properties(${holder} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${holder} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_PIE})
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()

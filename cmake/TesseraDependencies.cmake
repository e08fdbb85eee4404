# Third-party libraries: Debian's packages, and torch from a Python wheel (docs/dependencies.md says why each).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
# Without Open MPI everything but parallel.transport=mpi is built.
pkg_check_modules(openmpi IMPORTED_TARGET ompi-c)
set(TESSERA_MPI ${openmpi_FOUND})
if(TESSERA_TESTS)
  find_package(GTest REQUIRED)
endif()

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
find_program(TESSERA_MOLD mold)
if(TESSERA_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(tessera_options INTERFACE)
target_compile_options(tessera_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(tessera_options INTERFACE -Wno-restrict -Wno-missing-field-initializers)  # gcc bug 105651: false reports in std::string
endif()
target_include_directories(tessera_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/generated)
if(TESSERA_SANITIZE)
  target_compile_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  # gcc documents that warnings which follow values through inlined code report falsely in instrumented code; the
  # ordinary build has them on.
  # Nor does the thread sanitizer see fences; ours order a flag and a counter, which are atomic themselves.
  target_compile_options(tessera_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-tsan)
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()

# What test programs are compiled with. The code of a test itself is not worth an optimiser's time, which is half of its
# compile time; what it tests is optimised as users get it.
if(TESSERA_TESTS)
  add_library(tessera_test INTERFACE)
  target_compile_options(tessera_test INTERFACE -O0)
  target_link_libraries(tessera_test INTERFACE GTest::gtest_main)
endif()

# The wheel's own CMake package demands a CUDA toolkit in CUDA builds, so headers and libraries are taken directly.
if(TESSERA_ENGINE)
  if(NOT EXISTS ${TESSERA_TORCH_DIR}/include/ATen/ATen.h)
    message(FATAL_ERROR "torch is not at TESSERA_TORCH_DIR='${TESSERA_TORCH_DIR}'. Run 'make build', which finds or "
      "installs it, or configure with -DTESSERA_ENGINE=OFF.")
  endif()
  add_library(tessera_torch INTERFACE)
  target_include_directories(tessera_torch SYSTEM INTERFACE ${TESSERA_TORCH_DIR}/include
    ${TESSERA_TORCH_DIR}/include/torch/csrc/api/include)
  target_link_directories(tessera_torch INTERFACE ${TESSERA_TORCH_DIR}/lib)
  target_link_libraries(tessera_torch INTERFACE torch_cpu c10)
  # Not by a link option: an installed file (TesseraInstall.cmake) must not look into this folder first.
  list(APPEND CMAKE_BUILD_RPATH ${TESSERA_TORCH_DIR}/lib)
  target_compile_options(tessera_torch INTERFACE -fopenmp)
  # One OpenMP runtime: the wheel's, not the compiler's.
  file(GLOB TESSERA_LIBGOMP ${TESSERA_TORCH_DIR}/lib/libgomp*.so*)
  if(TESSERA_LIBGOMP)
    list(GET TESSERA_LIBGOMP 0 TESSERA_LIBGOMP)
    target_link_libraries(tessera_torch INTERFACE ${TESSERA_LIBGOMP})
  endif()
  find_path(TESSERA_GLOO_INCLUDE gloo/context.h)
  if(NOT TESSERA_GLOO_INCLUDE)
    message(FATAL_ERROR "Gloo's headers are not there. Install the package libgloo-dev.")
  endif()
endif()

# A GPU build of torch keeps what it needs of NVIDIA's in Python packages beside it: no toolkit is asked for.
if(TESSERA_GPU)
  get_filename_component(packages ${TESSERA_TORCH_DIR} DIRECTORY)
  file(GLOB gpu_includes ${packages}/nvidia/cu*/include ${packages}/nvidia/nccl/include
    ${packages}/triton/backends/nvidia/include)
  file(GLOB gpu_libraries ${packages}/nvidia/*/lib)
  if(NOT EXISTS ${TESSERA_TORCH_DIR}/lib/libtorch_cuda.so OR NOT EXISTS ${packages}/nvidia/nccl/include/nccl.h)
    message(FATAL_ERROR "TESSERA_GPU is on, and torch at '${TESSERA_TORCH_DIR}' is not a build for NVIDIA GPUs with its "
      "packages beside it. Run 'make cuda', which installs it into a virtual environment of its own.")
  endif()
  find_path(TESSERA_NV_TARGET nv/target PATHS ${gpu_includes} NO_DEFAULT_PATH)
  if(NOT TESSERA_NV_TARGET)
    message(FATAL_ERROR "The header nv/target, which torch's nvidia packages need and do not bring, is not in ${packages}. "
      "Run 'make cuda', or pip install nvidia-cuda-cccl there, of the version of the nvidia-cuda-runtime beside it.")
  endif()
  add_library(tessera_torch_gpu INTERFACE)
  target_include_directories(tessera_torch_gpu SYSTEM INTERFACE ${gpu_includes})
  target_link_directories(tessera_torch_gpu INTERFACE ${gpu_libraries})
  target_link_libraries(tessera_torch_gpu INTERFACE torch_cuda c10_cuda)
  list(APPEND CMAKE_BUILD_RPATH ${gpu_libraries})
endif()

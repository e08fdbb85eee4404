# `make install PREFIX=…`: a folder that runs wherever it lies, without the build tree, and on nodes that have only Debian's
# base system (docs/install.md). Every file finds the others relative to itself:
#   bin/tessera
#   lib/libtessera_engine.so, libtessera_mpi.so   the engine, and its module for MPI where it was built
#   lib/torch/                                    torch's libraries
#   lib/lib{yaml-0,xxhash,zstd,z}.so.*            the other libraries that are not part of the base system
#   share/tessera/configs/
# TORCH_LIBS=copy (default) copies torch's libraries (about 440 MB for the CPU); TORCH_LIBS=link makes lib/torch a link to
# the folder of the torch that was built with, which must then be there on every node. A GPU build needs NVIDIA's packages
# beside torch, which find each other by their real paths: its engine remembers these, and nothing can be copied.
#
# Run paths are the installed ones from the beginning (and the engine's loses its last entry, torch as it was built with,
# when it is installed): what CMake would keep room with, empty entries, means the working folder to the loader.
set_target_properties(tessera PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
install(TARGETS tessera RUNTIME DESTINATION bin)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION share/tessera/configs)
set(installed_from $<TARGET_FILE:tessera>)
if(TARGET tessera_engine)
  set(engine_rpath "$ORIGIN;$ORIGIN/torch")
  if(TESSERA_GPU)
    set(engine_rpath "$ORIGIN")
  endif()
  set_target_properties(tessera_engine PROPERTIES BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "${engine_rpath};${CMAKE_BUILD_RPATH}")
  install(TARGETS tessera_engine LIBRARY DESTINATION lib)
  set(installed_from $<TARGET_FILE:tessera_engine>)
endif()
if(TARGET tessera_mpi)
  # Open MPI itself is the node's: its libraries and its mpirun must be of one version.
  set_target_properties(tessera_mpi PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${openmpi_LIBRARY_DIRS}")
  install(TARGETS tessera_mpi LIBRARY DESTINATION lib)
endif()

# Libraries under the names that programs ask for, as the loader of this machine finds them.
install(CODE "set(binary \"${installed_from}\")")
install(CODE [[
  execute_process(COMMAND ldd "${binary}" OUTPUT_VARIABLE needed RESULT_VARIABLE failed)
  string(REGEX MATCHALL "lib(yaml-0|xxhash|zstd|z)\\.so[.0-9]* => [^ ]+" lines "${needed}")
  if(failed OR NOT lines)
    message(FATAL_ERROR "ldd does not say which libraries ${binary} needs. Build it first: make build")
  endif()
  foreach(line ${lines})
    string(REGEX REPLACE "^([^ ]+) => (.+)$" "\\1;\\2" parts "${line}")
    list(GET parts 0 name)
    list(GET parts 1 found)
    get_filename_component(real "${found}" REALPATH)
    configure_file("${real}" "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/${name}" COPYONLY)
    message(STATUS "Installing: ${CMAKE_INSTALL_PREFIX}/lib/${name}")
  endforeach()
]])

if(TARGET tessera_engine)
  install(CODE "set(torch \"${TESSERA_TORCH_DIR}\")\nset(gpu ${TESSERA_GPU})")
  if(NOT TESSERA_GPU)
    string(REPLACE ";" ":" built "${engine_rpath};${CMAKE_BUILD_RPATH}")
    string(REPLACE ";" ":" installed "${engine_rpath}")
    install(CODE "file(RPATH_CHANGE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/libtessera_engine.so\"
      OLD_RPATH [[${built}]] NEW_RPATH [[${installed}]])")
  endif()
  install(CODE [[
    set(way copy)
    if(gpu)
      set(way link)
    endif()
    if(NOT "$ENV{TORCH_LIBS}" STREQUAL "")
      set(way "$ENV{TORCH_LIBS}")
    endif()
    if(NOT way MATCHES "^(copy|link)$")
      message(FATAL_ERROR "TORCH_LIBS is '${way}': it must be copy or link.")
    endif()
    if(gpu AND way STREQUAL copy)
      message(FATAL_ERROR "A GPU build needs NVIDIA's packages beside torch, which are not copied. Use TORCH_LIBS=link.")
    endif()
    set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/torch")
    file(REMOVE_RECURSE "${folder}")
    if(way STREQUAL link)
      file(CREATE_LINK "${torch}/lib" "${folder}" SYMBOLIC)
      message(STATUS "Installing: ${folder} -> ${torch}/lib")
    else()
      file(GLOB libraries "${torch}/lib/libtorch_cpu.so" "${torch}/lib/libc10.so" "${torch}/lib/libgomp*.so*")
      file(COPY ${libraries} "${torch}/version.py" DESTINATION "${folder}")
      set(bytes 0)
      foreach(library ${libraries})
        file(SIZE "${library}" size)
        math(EXPR bytes "${bytes} + ${size}")
      endforeach()
      math(EXPR megabytes "${bytes} / 1000000")
      message(STATUS "Installing: ${folder} (${megabytes} MB)")
    endif()
  ]])
endif()

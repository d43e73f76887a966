# lsmr_room(NAME SOURCES ... LINKS ...): the library of one top-level folder.
# A folder is included as "memory/error.hpp". Each target carries its own include directory, which holds nothing but a
# link to that folder, so a file can include only folders that its target links: a wrong include fails to build.
set(LSMR_WARNINGS -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND LSMR_WARNINGS -Wno-restrict)  # false alarms on std::string operator+ in GCC 12 (its bug 105651)
endif()
if(LSMR_WERROR)
  list(APPEND LSMR_WARNINGS -Werror)
endif()

function(lsmr_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${LSMR_WARNINGS}>)
  if(LSMR_HAVE_CUDA)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Wall,-Wextra>"
      "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>"
      # By hand: CMake 3.25 does not know that nvcc speaks C++20.
      "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
    if(LSMR_CUDA_LINEINFO)
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>")
    endif()
  endif()
  if(LSMR_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LSMR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${LSMR_SANITIZE})
  endif()
endfunction()

function(lsmr_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(view "${CMAKE_BINARY_DIR}/include/${name}")
  file(MAKE_DIRECTORY "${view}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${view}/${name}" SYMBOLIC)
  add_library(lsmr_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(lsmr_${name} PUBLIC "${view}")
  target_link_libraries(lsmr_${name} PUBLIC ${ROOM_LINKS} PRIVATE ${ROOM_PRIVATE_LINKS})
  lsmr_compile_options(lsmr_${name})
endfunction()

function(lsmr_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_LINKS})
  lsmr_compile_options(${name})
  if(LSMR_HAVE_CUDA)
    # cuSPARSE, cuBLAS and cuSOLVER are shared; the toolkit's folder goes into the run path so that the program starts as built.
    set_target_properties(${name} PROPERTIES BUILD_RPATH "${CUDAToolkit_LIBRARY_DIR};/usr/local/cuda/lib64")
  endif()
endfunction()

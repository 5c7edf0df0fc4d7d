# find_pjrt_header(<variable>): the folder that holds pjrt_c_api.h, any version from 0.81 on.
# Order: -DPJRT_INCLUDE_DIR=..., then the PyPI package xla-cpu-pjrt (a build requirement) as seen by
# ${Python_EXECUTABLE}. Only the header of that package is used; nothing of it is linked.
function(find_pjrt_header variable)
  if(NOT PJRT_INCLUDE_DIR)
    if(NOT Python_EXECUTABLE)
      find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
    endif()
    # Not imported: a namespace package is found without running plugin code.
    execute_process(
      COMMAND
        "${Python_EXECUTABLE}" -c
        "import importlib.util, pathlib
spec = importlib.util.find_spec('xla_plugins')
folders = spec.submodule_search_locations if spec else []
headers = [h for f in folders for h in pathlib.Path(f).glob('*/include/pjrt_c_api.h')]
print(headers[0].parent if headers else '', end='')"
      OUTPUT_VARIABLE found
      RESULT_VARIABLE result)
    if(NOT result EQUAL 0 OR found STREQUAL "")
      message(
        FATAL_ERROR
          "pjrt_c_api.h was not found for ${Python_EXECUTABLE}; run `pip install xla-cpu-pjrt==0.0.1` "
          "or pass -DPJRT_INCLUDE_DIR=<folder of pjrt_c_api.h>")
    endif()
    set(PJRT_INCLUDE_DIR "${found}" CACHE PATH "folder of pjrt_c_api.h")
  endif()
  if(NOT EXISTS "${PJRT_INCLUDE_DIR}/pjrt_c_api.h")
    message(FATAL_ERROR "PJRT_INCLUDE_DIR=${PJRT_INCLUDE_DIR} has no pjrt_c_api.h")
  endif()
  file(STRINGS "${PJRT_INCLUDE_DIR}/pjrt_c_api.h" line REGEX "^#define PJRT_API_MINOR ")
  string(REGEX MATCH "[0-9]+" minor "${line}")
  if(minor STREQUAL "" OR minor LESS 81)
    message(FATAL_ERROR "${PJRT_INCLUDE_DIR}/pjrt_c_api.h is PJRT 0.${minor}; 0.81 or newer is needed")
  endif()
  message(STATUS "PJRT C API header 0.${minor}: ${PJRT_INCLUDE_DIR}")
  set(${variable} "${PJRT_INCLUDE_DIR}" PARENT_SCOPE)
endfunction()

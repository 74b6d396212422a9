# Sets PLACE to the folder of a Python package, or to an empty string: engines that pip installed are found in it.
macro(find_python_package package)
  set(PLACE "")
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c
        "import importlib.util as u; s = u.find_spec('${package}'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE PLACE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endmacro()

# Finds the CMake package NAME of an engine, also where pip installed the Python package.
macro(find_engine name package)
  find_python_package(${package})
  list(APPEND CMAKE_PREFIX_PATH "${PLACE}")
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    message(WARNING "${name} was not found, so nothing is built for it. pip install ${package}, or pass -D${name}_DIR=FOLDER.")
  endif()
endmacro()

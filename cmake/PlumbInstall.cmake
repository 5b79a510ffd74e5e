# What `cmake --install` lays down: the programs, the scenarios to start from, the licence and the guide.
include_guard()
include(GNUInstallDirs)

# Called last, when it is known which programs are on.
function(plumb_install)
  foreach(program plumb plumb-exec)
    if(TARGET ${program})
      # Where SimGrid and LibTorch were found: they are not installed with us.
      set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
  endforeach()
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/scenarios)
    install(DIRECTORY scenarios/ DESTINATION ${CMAKE_INSTALL_DATADIR}/plumb/scenarios)
  endif()
  install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

# `cmake --install`: the programs, their man pages and completions, the scenarios to start from, licence and guide.
include_guard()
include(GNUInstallDirs)

# The program itself prints its pages, when it is installed.
function(plumb_install_pages program)
  set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${pages})
  install(CODE "
    foreach(page \"${program}.1;man\" \"${program};completion;bash\" \"_${program};completion;zsh\")
      list(POP_FRONT page file)
      execute_process(COMMAND $<TARGET_FILE:${program}> \${page} OUTPUT_FILE ${pages}/\${file} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
  install(FILES ${pages}/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${pages}/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${pages}/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endfunction()

# Called last, when it is known which programs are on.
function(plumb_install)
  foreach(program plumb plumb-exec)
    if(TARGET ${program})
      # Where SimGrid and LibTorch were found: they are not installed with us.
      set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
      plumb_install_pages(${program})
    endif()
  endforeach()
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/scenarios)
    install(DIRECTORY scenarios/ DESTINATION ${CMAKE_INSTALL_DATADIR}/plumb/scenarios)
  endif()
  install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

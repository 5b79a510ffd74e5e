// Nothing but a place to compile what all tests include: see CMakeLists.txt.

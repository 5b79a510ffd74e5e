// Ctrl-C and SIGTERM from a program's first instruction on, before its libraries are initialised.
#pragma once

namespace plumb {

// Takes SIGINT and SIGTERM if they have their default action: the program says so in one line and ends with status 3,
// and removes the file that it is writing. Commands that have more to say install handlers of their own later.
//
// For `.preinit_array`, which runs before the constructors of shared libraries:
//   [[gnu::section(".preinit_array"), gnu::used]] static plumb::FirstFunction first = plumb::take_first_signals;
using FirstFunction = void (*)(int, char**, char**);
void take_first_signals(int argc, char** argv, char** environment);

// Static text that follows the reason, on what the program had done; nullptr if there is none.
void set_state_at_signal(const char* text);

// The file to remove if a signal ends the program; nullptr if there is none. Keeps a copy.
void set_unfinished_file(const char* path);
// Removes it, for whoever ends the program otherwise.
void remove_unfinished_file();

}  // namespace plumb

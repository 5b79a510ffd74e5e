#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "common/base/command_line.hpp"
#include "common/base/files.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/fields/reference_pages.hpp"

namespace plumb::sim {

void add_reference(CLI::App& program, Body& body) {
  CLI::App& command = add_command(program, "reference", "Writes the reference pages of all files as Markdown.",
                                  "plumb reference docs/reference");
  const auto folder = std::make_shared<std::string>();
  command.add_option("FOLDER", *folder, "Folder for the pages, which is made if it is missing.")->required();
  command.callback([&body, folder] {
    body = [folder] {
      std::error_code error;
      std::filesystem::create_directories(*folder, error);
      if (error) throw InputError(*folder, "the folder cannot be made: " + error.message());
      for (const ReferencePage& page : reference_pages()) {
        const std::filesystem::path path = std::filesystem::path(*folder) / page.file;
        write_file(path, page.text());
        std::cout << "wrote " << path.string() << "\n";
      }
      return ExitStatus::done;
    };
  });
}

}  // namespace plumb::sim

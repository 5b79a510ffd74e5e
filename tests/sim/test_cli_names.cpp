// Shipped names, standard input and output, and the options that every command takes.
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/sim/answers.hpp"

using plumb::read_file;
using plumb::tests::Folder;
using plumb::tests::Json;
using plumb::tests::json_of;
using plumb::tests::Outcome;
using plumb::tests::run_plumb;
using plumb::tests::scenario;
using plumb::tests::small;

TEST_CASE("a shipped name stands for its file") {
  const Folder folder;
  const std::string models = std::string(PLUMB_SOURCE_DIR) + "/scenarios/models/";
  CHECK(run_plumb(folder, "show deepseek-v3 --json").out ==
        run_plumb(folder, "show --json " + models + "deepseek-v3.yaml").out);
  CHECK(run_plumb(folder, "simulate demo --json").out == run_plumb(folder, "simulate --json " + scenario("demo")).out);
  CHECK(run_plumb(folder, "show roadmap/1-ddp").status == 0);
}

TEST_CASE("a machine is shown with each number's unit and source") {
  const Folder folder;
  const Json shown = json_of(run_plumb(folder, "show dgx-h100 --json"));
  CHECK(shown["name"] == "dgx-h100");
  bool found = false;
  for (const Json& number : shown["numbers"]) {
    if (number["key"] != "device.memory") continue;
    found = true;
    CHECK(number["value"] == "80 GiB");
    CHECK(number["source"] == "datasheet");
  }
  CHECK(found);
  CHECK_THAT(run_plumb(folder, "show dgx-h100").out, ContainsSubstring("989 TFLOP/s") && ContainsSubstring("±12%"));
  CHECK_THAT(run_plumb(folder, "show megatron-2024").out, ContainsSubstring("flash"));
}

TEST_CASE("a file counts before a shipped name, and a note says so") {
  const Folder folder;
  folder.file("demo", small);
  const Outcome outcome = run_plumb(folder, "simulate demo", "cd '" + folder.path.string() + "' &&");
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.err, ContainsSubstring("read the file 'demo'") && ContainsSubstring("scenarios/demo.yaml"));
  CHECK_THAT(outcome.out, ContainsSubstring("small on 2 ranks"));
  CHECK(run_plumb(folder, "simulate --quiet demo", "cd '" + folder.path.string() + "' &&").err.empty());
}

TEST_CASE("lists name what ships, and each name is taken where it stands for a file") {
  const Folder folder;
  for (const std::string kind : {"scenarios", "models", "machines", "software", "schedules"}) {
    const Json list = json_of(run_plumb(folder, "list " + kind + " --json"))[kind];
    INFO(kind);
    REQUIRE(list.size() >= 5);
    const Outcome text = run_plumb(folder, "list " + kind);
    for (const Json& entry : list) {
      CHECK_THAT(text.out, ContainsSubstring(entry["name"].get<std::string>()));
      if (kind == "models" || kind == "machines" || kind == "software") {
        CHECK(run_plumb(folder, "show " + entry["name"].get<std::string>()).status == 0);
      }
    }
  }
}

TEST_CASE("standard input is read in place of a file, and standard output written") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", small);
  const std::string read = "cat " + file + " | ";
  const std::string plumb = "'" + std::string(PLUMB_BINARY_DIR) + "/bin/plumb' ";
  const auto shell = [&](const std::string& command) {
    const int status = std::system((command + " >" + folder.file("out") + " 2>&1").c_str());
    return std::pair(WEXITSTATUS(status), read_file(folder.file("out")));
  };
  const auto [status, out] = shell(read + plumb + "simulate - --json");
  CHECK(status == 0);
  CHECK(out == run_plumb(folder, "simulate --json " + file).out);
  const auto [piped, text] = shell(plumb + "plan " + file + " -o - | " + plumb + "simulate - --json");
  CHECK(piped == 0);
  CHECK(Json::parse(text).contains("iteration_s"));
  const auto [wrong, message] = shell("echo 'model: 1' | " + plumb + "show -");
  CHECK(wrong == 2);
  CHECK_THAT(message, ContainsSubstring("standard input:1:"));
}

TEST_CASE("every command writes to a file with -o") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", small);
  const std::string out = folder.file("out.txt");
  CHECK(run_plumb(folder, "show " + file + " -o " + out).out.empty());
  CHECK(read_file(out) == run_plumb(folder, "show " + file).out);
  CHECK(run_plumb(folder, "schedule export 1f1b --ranks 2 --microbatches 2 -o " + out).status == 0);
  CHECK(read_file(out).starts_with("0F0,"));
  CHECK(run_plumb(folder, "show " + file + " -o " + file).status == 2);
  CHECK(read_file(file) == small);
}

TEST_CASE("options of every command stand before it or behind it") {
  const Folder folder;
  const std::string escape = "\x1b[";
  for (const std::string words :
       {"--color always list models", "list models --color always", "list --color=always models"}) {
    CHECK_THAT(run_plumb(folder, words).out, ContainsSubstring(escape));
  }
  CHECK_THAT(run_plumb(folder, "list models --color never").out, !ContainsSubstring(escape));
  const std::string plan = folder.file("p.json");
  const std::string file = folder.file("s.yaml", small);
  CHECK_THAT(run_plumb(folder, "plan " + file + " -o " + plan).out, ContainsSubstring("wrote " + plan));
  CHECK_THAT(run_plumb(folder, "plan -q " + file + " -o " + plan).out, !ContainsSubstring("wrote"));
}

TEST_CASE("--version names features") {
  const Folder folder;
  const Outcome outcome = run_plumb(folder, "--version");
  CHECK(outcome.status == 0);
  CHECK(outcome.out.starts_with("plumb 0."));
  CHECK_THAT(outcome.out, ContainsSubstring("SimGrid: "));
}

TEST_CASE("a training's time follows from its tokens") {
  const Folder folder;
  const std::string file = folder.file("s.yaml", small);
  const Json predicted = json_of(run_plumb(folder, "simulate --json --tokens 1.5M " + file));
  const double seconds = predicted["training_time_s"];
  CHECK(seconds == Approx(1.5e6 / predicted["tokens_per_s"].get<double>()));
  CHECK(predicted["training_days"] == Approx(seconds / 86400));
  CHECK(predicted["device_hours"] == Approx(2 * seconds / 3600));
  CHECK(predicted["training_steps"] == std::ceil(1.5e6 / (8 * 32)));
  const Json planned = json_of(run_plumb(folder, "plan --json --tokens 15T " + file))["candidates"][0];
  CHECK(planned["training_time_s"] == Approx(15e12 / planned["tokens_per_s"].get<double>()));
  CHECK_THAT(run_plumb(folder, "plan --tokens 300B " + file).out, ContainsSubstring("device-hours on 2 devices"));
}

TEST_CASE("completion offers commands, options, values and shipped names") {
  const Folder folder;
  const auto offered = [&](const std::string& words) { return run_plumb(folder, "__complete " + words).out; };
  CHECK_THAT(offered("si"), ContainsSubstring("simulate\t"));
  CHECK_THAT(offered("simulate de"), ContainsSubstring("demo\t") && ContainsSubstring(":files"));
  CHECK_THAT(offered("show dgx-h"), ContainsSubstring("dgx-h100\t") && ContainsSubstring("dgx-h200\t"));
  CHECK_THAT(offered("schedule show zb-"), ContainsSubstring("zb-h1\t") && !ContainsSubstring("1f1b"));
  CHECK_THAT(offered("simulate demo --eng"), ContainsSubstring("--engine\t"));
  CHECK(offered("simulate demo --engine p") == "path\t\n");
  CHECK_THAT(offered("plan --color= "), !ContainsSubstring("demo"));
  CHECK(offered("--color a") == "auto\t\nalways\t\n");
}

TEST_CASE("bash completes with the script of plumb completion") {
  const Folder folder;
  const std::string script = folder.file("complete.bash", run_plumb(folder, "completion bash").out);
  const std::string command =
      "PATH='" + std::string(PLUMB_BINARY_DIR) + "/bin':$PATH bash -c 'source " + script +
      "; COMP_WORDS=(plumb show deepseek); COMP_CWORD=2; _plumb_complete; echo \"${COMPREPLY[@]}\"' >" +
      folder.file("out");
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(read_file(folder.file("out")) == "deepseek-v3\n");
  CHECK(run_plumb(folder, "completion zsh").out.starts_with("#compdef plumb\n"));
}

TEST_CASE("the reference page is the one that the program prints") {
  const Folder folder;
  // cmake --build does not write it: plumb man --markdown > docs/reference/command-line.md
  CHECK(run_plumb(folder, "man --markdown").out ==
        read_file(std::string(PLUMB_SOURCE_DIR) + "/docs/reference/command-line.md"));
  CHECK(run_plumb(folder, "man").out.starts_with(".TH \"PLUMB\" 1"));
}

TEST_CASE("a signal in the first moments ends with words and status 3") {
  const Folder folder;
  const std::string err = folder.file("err");
  const std::string script = folder.file("kill.bash",
                                         "set -m\n"  // a job of its own group has the default action of SIGINT
                                         "\"$1\" validate \"$2\" >/dev/null 2>\"$3\" &\n"
                                         "until [[ $(grep SigCgt /proc/$!/status) == *[4567cdef]??? ]]; do :; done\n"
                                         "sleep $4\nkill -$5 $!\nwait $!\nexit $?\n");
  for (const auto& [signal, words] : {std::pair{"INT", "interrupted (SIGINT)"}, {"TERM", "told to end (SIGTERM)"}}) {
    for (const std::string pause : {"0", "0.4"}) {
      const std::string command = "bash " + script + " '" + PLUMB_BINARY_DIR + "/bin/plumb' '" + PLUMB_SOURCE_DIR +
                                  "/scenarios/published' " + err + " " + pause + " " + signal + " 2>/dev/null";
      const int status = std::system(command.c_str());
      INFO(signal << " after " << pause << " s: " << read_file(err));
      CHECK(WEXITSTATUS(status) == 3);
      CHECK_THAT(read_file(err), ContainsSubstring(words));
    }
  }
}

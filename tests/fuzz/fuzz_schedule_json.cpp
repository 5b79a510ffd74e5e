// Any text is a schedule in JSON or refused; what was read is written so that it reads back as the same schedule.
#include "common/base/error.hpp"
#include "common/schedule/interchange/schedule_file.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace plumb;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (!text.starts_with('{')) return -1;  // another reader's: not to be kept
  Schedule schedule;
  try {
    schedule = read_schedule_text(text, "fuzz.json").schedule;
  } catch (const InputError&) {
    return 0;
  }
  (void)validate(schedule);
  (void)check_activations(schedule, 1);
  fuzz::require(read_schedule_text(to_schedule_file(schedule), "again.json").schedule == schedule,
                "a schedule survives its JSON");
  return 0;
}

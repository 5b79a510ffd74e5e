// Any text is a CSV of PyTorch or refused; a valid schedule is written so that it reads back as the same text.
#include "common/base/error.hpp"
#include "common/schedule/interchange/pytorch_csv.hpp"
#include "common/schedule/validate/validate.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace plumb;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CsvReading reading;
  try {
    reading = read_pytorch_csv(fuzz::text_of(data, size), "fuzz.csv");
  } catch (const InputError&) {
    return 0;
  }
  (void)check_activations(reading.schedule, 1);
  if (!validate(reading.schedule).empty()) return 0;
  const CsvWriting writing{.form = reading.form, .alphabet = reading.alphabet};
  const std::string text = to_pytorch_csv(reading.schedule, writing);
  const CsvReading again = read_pytorch_csv(text, "again.csv");
  fuzz::require(again.form == reading.form && again.alphabet == reading.alphabet, "form and alphabet are kept");
  fuzz::require(validate(again.schedule).empty(), "what is written is valid");
  fuzz::require(to_pytorch_csv(again.schedule, writing) == text, "what is written reads back");
  return 0;
}

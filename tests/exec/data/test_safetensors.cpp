// The safetensors format, both ways: written piece by piece and read by ranges; files of others are checked before use.
#include "exec/data/safetensors.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "common/base/error.hpp"
#include "exec/data/safetensors_file.hpp"
#include "tests/catch.hpp"
#include "tests/exec/temporary_folder.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// By hand, as the format's description has it.
std::string file_of(const std::string& header, const std::string& data) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text.push_back(static_cast<char>(header.size() >> (8 * byte) & 0xff));
  return text + header + data;
}

std::vector<float> drawn(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::string problem_of(const std::string& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a safetensors file made by hand is read in all three types, scalars and empty tensors too") {
  const TemporaryFolder folder;
  // 1.5, -2.0 as fp32; 1.0, -0.5 as bf16; 65504, 2^-24 as fp16; one integer, which has no fp32.
  const std::string data(
      "\x00\x00\xc0\x3f\x00\x00\x00\xc0\x80\x3f\x00\xbf\xff\x7b\x01\x00\x07\x00\x00\x00\x00\x00\x00\x00", 24);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a/b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("c":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},"d":{"data_offsets":[12,16],"shape":[1,2],"dtype":"F16"},)"
      R"("none":{"dtype":"F32","shape":[0,3],"data_offsets":[16,16]},"n":{"dtype":"I64","shape":[],"data_offsets":[16,24]}}  )";
  const SafetensorsFile file(folder.write("made.safetensors", file_of(header, data)));
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.tensors().size() == 5);
  const auto values = [&](const std::string& name) {
    const StoredTensor& tensor = file.at(name);
    std::vector<float> read(static_cast<std::size_t>(tensor.elements));
    file.read(tensor, 0, read);
    return read;
  };
  CHECK(values("a/b") == std::vector<float>{1.5F, -2.0F});
  CHECK(values("c") == std::vector<float>{1.0F, -0.5F});
  CHECK(values("d") == std::vector<float>{65504.0F, std::ldexp(1.0F, -24)});
  CHECK(values("none").empty());
  CHECK(file.at("n").elements == 1);
  CHECK_THROWS_WITH(values("n"), ContainsSubstring("'I64' is not read"));
  CHECK_THROWS_WITH(file.at("a/c"), ContainsSubstring("has no tensor 'a/c'") && ContainsSubstring("'a/b'"));
  std::vector<float> two(2);
  CHECK_THROWS_AS(file.read(file.at("c"), 1, two), InputError);
  CHECK_THROWS_AS(file.read(file.at("c"), -1, two), InputError);
}

TEST_CASE("writing piece by piece gives the file written at once, and its ranges read back") {
  const TemporaryFolder folder;
  for (const ElementType type : {ElementType::fp32, ElementType::bf16}) {
    // More than is turned into fp32 at once.
    const std::vector<NamedTensor> tensors{{"a", {3, 5}, drawn(15, 1)}, {"b", {700'000}, drawn(700'000, 2)}};
    const std::string whole = to_safetensors(tensors, type, {{"format", "pt"}});
    const std::string path = folder / "pieces.safetensors";
    SafetensorsWriter writer(path, {{"a", {3, 5}, type}, {"b", {700'000}, type}}, {{"format", "pt"}});
    for (const NamedTensor& tensor : tensors) {
      for (std::size_t at = 0; at < tensor.values.size(); at += 1000) {
        const std::span values =
            std::span(tensor.values).subspan(at, std::min<std::size_t>(1000, tensor.values.size() - at));
        std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(element_bytes(type)));
        put_values(type, values, bytes);
        writer.write(bytes);
      }
    }
    writer.finish();
    CHECK(writer.bytes() == static_cast<std::int64_t>(whole.size()));
    CHECK((read_file(path) == whole));
    const SafetensorsFile file(path);
    std::mt19937 random(3);
    for (int draw = 0; draw < 50; ++draw) {
      const NamedTensor& tensor = tensors[draw % 2];
      const std::size_t first = random() % tensor.values.size();
      std::vector<float> read(random() % (tensor.values.size() - first) + 1);
      file.read(file.at(tensor.name), static_cast<std::int64_t>(first), read);
      bool same = true;
      for (std::size_t i = 0; i < read.size(); ++i) {
        const float expected = tensor.values[first + i];
        // bf16 has 8 bits of a number: half a unit in the last place is 2^-9 of it.
        same = same && (type == ElementType::fp32 ? read[i] == expected
                                                  : std::abs(read[i] - expected) <= std::ldexp(std::abs(expected), -8));
      }
      CHECK(same);
    }
  }
}

TEST_CASE("a file that is not finished is removed, and a full disk is said") {
  const TemporaryFolder folder;
  const std::string path = folder / "half.safetensors";
  {
    SafetensorsWriter writer(path, {{"a", {2}}}, {});
    const std::vector<float> one{1};
    writer.write(std::as_bytes(std::span(one)));
    CHECK_THROWS_AS(writer.finish(), RunError);
    CHECK(std::filesystem::exists(path));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  std::filesystem::create_symlink("/dev/full", folder / "full");
  CHECK_THROWS_WITH(SafetensorsWriter(folder / "full", {{"a", {2}}}, {}),
                    ContainsSubstring("could not be written: No space left on device"));
  CHECK_THROWS_AS(SafetensorsWriter(folder / "missing/a", {{"a", {2}}}, {}), InputError);
}

TEST_CASE("damaged headers are refused, each with what is wrong") {
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"([1])", "does not begin with '{'"},
      {R"({"a":)", "truncated"},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "nested more than 3 deep"},
      {"{" + good + "," + good + "}", "'a' stands twice"},
      {R"({"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}})", "'dtype' stands twice"},
      {R"({"a":[]})", "is array, expected an object"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "has no key 'data_offsets'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"at":1}})", "unknown key 'at'"},
      {R"({"a":{"dtype":"FP32","shape":[2],"data_offsets":[0,8]}})", "did you mean 'F32'?"},
      {R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", "no text"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "has '-2', expected a whole number"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "expected a whole number"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "expected a whole number"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}})",
       "more elements than any file"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]}})", "more elements than any file"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", "expected begin and end"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "bytes are 8 to 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "there are 8 behind the header"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "has 8 bytes, its shape and type need 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "begins at byte 4 of the data"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "has 8 bytes of data, its tensors 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "begins at byte 4 of the data"},
      {R"({"__metadata__":[],)" + good + "}", "__metadata__ is no object"},
      {R"({"__metadata__":{"x":1},)" + good + "}", "no text at 'x'"}};
  CHECK(parse_safetensors_header("{" + good + "}", 8, "good").tensors.size() == 1);
  for (const auto& [header, problem] : cases) {
    CAPTURE(header);
    CHECK_THROWS_WITH(parse_safetensors_header(header, 8, "made.safetensors"), ContainsSubstring(problem));
    CHECK_THROWS_AS(parse_safetensors_header(header, 8, "made.safetensors"), InputError);
  }
}

TEST_CASE("a file cut at any byte is refused, and so are folders, pipes' ends and what is no such file") {
  const TemporaryFolder folder;
  const std::string whole = to_safetensors({{"a", {2, 3}, drawn(6, 4)}}, ElementType::fp32, {});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK_FALSE(problem_of(folder.write("cut.safetensors", whole.substr(0, length))).empty());
  }
  CHECK(problem_of(folder.write("whole.safetensors", whole)).empty());
  CHECK_THAT(problem_of(folder.write("longer.safetensors", whole + "x")), ContainsSubstring("has 25 bytes of data"));
  CHECK_THAT(problem_of(folder / ""), ContainsSubstring("is no file"));
  CHECK_THAT(problem_of("/dev/zero"), ContainsSubstring("is no file"));
  CHECK_THAT(problem_of(folder / "missing"), ContainsSubstring("No such file"));
  CHECK_THAT(problem_of(folder.write("text", "just some text, longer than eight bytes")),
             ContainsSubstring("its header has"));
  // A file that becomes shorter while it is open.
  const SafetensorsFile file(folder / "whole.safetensors");
  std::filesystem::resize_file(folder / "whole.safetensors", whole.size() - 4);
  std::vector<float> values(6);
  CHECK_THROWS_WITH(file.read(file.at("a"), 0, values), ContainsSubstring("before it is complete"));
}

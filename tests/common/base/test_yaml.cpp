#include "common/base/yaml.hpp"

#include "tests/catch.hpp"

using namespace plumb;

namespace {

// What the error of `read` says.
template <class Read>
std::string error_of(Read read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

YamlValue value_of(const std::string& text) { return YamlValue::parse("x: " + text + "\n", "a.yaml").require("x"); }

}  // namespace

TEST_CASE("values carry their place, counted from 1, and the path of their keys") {
  const YamlValue file = YamlValue::parse("a: 1\nb:\n  c: [3, four]\n", "run.yaml");
  const YamlValue four = file.require("b").require("c").items()[1];
  CHECK(four.place() == Place{"run.yaml", 3, 10});
  CHECK(four.path() == "b.c[1]");
  CHECK(error_of([&] { (void)four.integer(0); }) ==
        "run.yaml:3:10: b.c[1]: expected a whole number from 0 to 2147483647, not 'four'");
  CHECK(YamlValue::parse("[a, b, {c: 1}]", "run.yaml").items()[2].require("c").path() == "entry 3.c");
  CHECK(file.find("missing") == std::nullopt);
  CHECK_THAT(error_of([&] { (void)file.require("missing"); }), ContainsSubstring("key 'missing' is missing"));
}

TEST_CASE("malformed, empty and double documents are refused with their line") {
  CHECK_THAT(error_of([] { (void)YamlValue::parse("a: [1, 2\nb: 3\n", "a.yaml"); }), ContainsSubstring("a.yaml:2:"));
  CHECK_THAT(error_of([] { (void)YamlValue::parse("{\"a\": 1", "a.json"); }), ContainsSubstring("a.json:1:"));
  CHECK_THAT(error_of([] { (void)YamlValue::parse("", "a.yaml"); }), ContainsSubstring("a.yaml: is empty"));
  CHECK_THAT(error_of([] { (void)YamlValue::parse("a: 1\n---\nb: 2\n", "a.yaml"); }),
             ContainsSubstring("a.yaml:2:") && ContainsSubstring("expected one document"));
  CHECK_THAT(error_of([] { (void)YamlValue::parse("{\"a\": 1},\n \"b\": 2}", "a.json"); }),
             ContainsSubstring("a.json:1:9: something stands after the end"));
  CHECK_THAT(error_of([] { (void)YamlValue::parse(std::string(100000, '['), "a.yaml"); }), ContainsSubstring("a.yaml"));
}

TEST_CASE("an unknown or repeated key is named with its place and the nearest allowed one") {
  const YamlValue file = YamlValue::parse("sequence: 8\nprecison: bf16\n", "run.yaml");
  CHECK(error_of([&] {
          file.check_keys({"sequence", "precision"});
        }) == "run.yaml:2:1: unknown key 'precison' in the file\n  hint: did you mean 'precision'?");
  const YamlValue twice = YamlValue::parse("a: 1\na: 2\n", "run.yaml");
  CHECK_THAT(error_of([&] { twice.check_keys({"a"}); }), ContainsSubstring("run.yaml:2:1: key 'a' stands twice"));
  CHECK_THAT(error_of([&] { (void)twice.find("a"); }), ContainsSubstring("run.yaml:2:1: key 'a' stands twice"));
  CHECK_THAT(error_of([] { value_of("[1]").check_keys({"a"}); }), ContainsSubstring("a.yaml:1:4: x: expected keys"));
}

TEST_CASE("numbers are whole, finite and in range, or refused") {
  CHECK(value_of("-3").integer(-5) == -3);
  CHECK(value_of("1e-3").number(0, 1) == 1e-3);
  for (const char* bad : {"1.5", "9223372036854775808", "\"7\"", "seven", "7 GB", "", "[7]", "~", "11"}) {
    INFO(bad);
    CHECK_THROWS_AS((void)value_of(bad).integer(0, 10), InputError);
  }
  for (const char* bad : {".nan", "NaN", ".inf", "inf", "1e999", "-1", "'0.5'", "half"}) {
    INFO(bad);
    CHECK_THROWS_AS((void)value_of(bad).number(0, 1), InputError);
  }
  CHECK(value_of("true").boolean());
  CHECK_FALSE(value_of("false").boolean());
  CHECK_THROWS_AS((void)value_of("'true'").boolean(), InputError);
  CHECK_THROWS_AS((void)value_of("1").boolean(), InputError);
  CHECK(value_of("gelu").is_text());
  CHECK(value_of("'12'").is_text());
  CHECK_FALSE(value_of("12").is_text());
}

TEST_CASE("a fraction is written as one or as a percentage") {
  CHECK(value_of("0.025").fraction(1) == 0.025);
  CHECK(value_of("2.5%").fraction(1) == Approx(0.025));
  CHECK(value_of("'3 %'").fraction(1) == Approx(0.03));
  for (const char* bad : {"-1%", "101%", "1.5", "5 %%", "nan", "nan%", "some", "%", ""}) {
    INFO(bad);
    CHECK_THROWS_AS((void)value_of(bad).fraction(1), InputError);
  }
}

TEST_CASE("quantities have units, and a missing unit is an error that lists them") {
  CHECK(value_of("80 GB").bytes() == Bytes{80'000'000'000});
  CHECK(value_of("1.5GiB").bytes() == Bytes{1610612736});
  CHECK(value_of("5 us").seconds().value == Approx(5e-6));
  CHECK(value_of("0 s").seconds().value == 0);
  CHECK(value_of("400 Gbit/s").bytes_per_second().value == Approx(50e9));
  CHECK(value_of("312 TFLOP/s").flops_per_second().value == Approx(312e12));
  CHECK_THAT(error_of([] { (void)value_of("80").bytes(); }),
             ContainsSubstring("a.yaml:1:4: x: '80' has no unit") && ContainsSubstring("units: B, KB"));
  CHECK_THAT(error_of([] { (void)value_of("80 gigs").bytes(); }), ContainsSubstring("unknown unit 'gigs'"));
  for (const char* bad : {"-1 GB", "0 GB", "1e300 TB", "nan GB", "GB", "1e12 TB"}) {
    INFO(bad);
    CHECK_THROWS_AS((void)value_of(bad).bytes(), InputError);
  }
  CHECK_THROWS_AS((void)value_of("-1 s").seconds(), InputError);
  CHECK_THROWS_AS((void)value_of("1e12 s").seconds(), InputError);  // a plan with it could not be read back
  CHECK_THROWS_AS((void)value_of("0 GB/s").bytes_per_second(), InputError);
  CHECK_THROWS_AS((void)value_of("1e-300 GB/s").bytes_per_second(), InputError);
  CHECK_THROWS_AS((void)value_of("1e300 GB/s").bytes_per_second(), InputError);
  CHECK_THROWS_AS((void)value_of("1e-300 GFLOP/s").flops_per_second(), InputError);
}

TEST_CASE("a choice gives its index or names the nearest") {
  CHECK(value_of("bf16").choice({"fp32", "bf16"}) == 1);
  CHECK_THAT(error_of([] {
               (void)value_of("bf-16").choice({"fp32", "bf16"});
             }),
             ContainsSubstring("did you mean 'bf16'?"));
}

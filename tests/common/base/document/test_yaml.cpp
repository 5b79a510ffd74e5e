#include "common/base/document/yaml.hpp"

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

// Twelve levels of nine aliases each: 9^12 keys in some hundred bytes.
std::string bomb(const std::string& name) {
  std::string text = name + ":\n  k0: &" + name + "0 {a: 1}\n";
  for (int level = 1; level <= 12; ++level) {
    const std::string alias = ": *" + name + std::to_string(level - 1);
    text += "  k" + std::to_string(level) + ": &" + name + std::to_string(level) + " {";
    for (int key = 0; key < 9; ++key) text += (key == 0 ? "z" : ", z") + std::to_string(key) + alias;
    text += "}\n";
  }
  return text;
}

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

TEST_CASE("all unknown keys of a block are named at once, each with its line") {
  try {
    YamlValue::parse("sequence: 1\nsequenc: 2\nlr: 3\n", "f.yaml").check_keys({"sequence", "learning_rate"});
    FAIL("thrown");
  } catch (const InputError& error) {
    const std::string text = error.what();
    CHECK_THAT(text,
               ContainsSubstring("f.yaml:2:1: unknown key 'sequenc' in the file\n  hint: did you mean 'sequence'?"));
    CHECK_THAT(text, ContainsSubstring("f.yaml:3:1: unknown key 'lr' in the file\n  hint: the key is 'learning_rate'"));
  }
}

TEST_CASE("a key of a map that is merged over another knows its line") {
  const YamlValue over = YamlValue::parse("a:\n  odd: 1\n  x: 2\n", "f.yaml");
  const YamlValue merged = over.merged_over(YamlValue::parse("a: {x: 1, y: 2}\nb: 3\n", "g.yaml"));
  CHECK_THROWS_WITH(merged.require("a").check_keys({"x", "y"}), ContainsSubstring("f.yaml:2:3: unknown key 'odd'"));
  CHECK(merged.require("a").require("x").integer(0) == 2);
  CHECK(merged.require("a").require("y").integer(0) == 2);
  CHECK(merged.require("b").integer(0) == 3);
}

TEST_CASE("TOML is told what it is, whatever its file is called, and YAML is not taken for it") {
  for (const char* text : {"[training]\nsequence = 4096\n", "# a comment\n\nname = \"x\"\n", "sequence=4096\n",
                           "[model.small]\nhidden = 4\n"}) {
    INFO(text);
    CHECK_THROWS_WITH(YamlValue::parse(text, "f.yaml"), ContainsSubstring("f.yaml: looks like TOML"));
  }
  for (const char* text : {"[4, 4]", "[4]", "model: a = b\n", "a: 1\nb = 2: 3\n", "dynamic", "{a: 1}", "- a = b\n"}) {
    INFO(text);
    CHECK_NOTHROW(YamlValue::parse(text, "f.yaml"));
  }
}

TEST_CASE("a map that is merged has what the other has beside it, and within") {
  const YamlValue file = YamlValue::parse("over: {a: 1, b: {c: 2}}\nbase: {a: 3, b: {c: 4, d: 5}, e: 6}\n", "a.yaml");
  const YamlValue merged = file.require("over").merged_over(file.require("base"));
  CHECK(merged.require("a").integer(0) == 1);
  CHECK(merged.require("b").require("c").integer(0) == 2);
  CHECK(merged.require("b").require("d").integer(0) == 5);
  CHECK(merged.require("e").integer(0) == 6);
}

TEST_CASE("a map within itself, and one of more keys than it is written with, are not merged") {
  const auto merge = [](const std::string& text) {
    return error_of([&] {
      const YamlValue file = YamlValue::parse(text, "a.yaml");
      (void)file.require("over").merged_over(file.require("base"));
    });
  };
  CHECK_THAT(merge("over: &o {a: *o}\nbase: &b {a: *b}\n"),
             ContainsSubstring("a.yaml:1:7: is nested more than 32 deep") && ContainsSubstring("alias"));
  CHECK_THAT(merge(bomb("over") + bomb("base")),
             ContainsSubstring("a.yaml:") && ContainsSubstring("has more than 4096 keys"));
  // Where one side alone goes round, the other ends it.
  CHECK(merge("over: &o {a: *o}\nbase: {a: {b: 1}}\n") == "no error");
}

TEST_CASE("units are taken as datasheets and others write them: b is a bit, B a byte") {
  CHECK(value_of("400 Gbps").bytes_per_second() == BytesPerSecond{50e9});
  CHECK(value_of("400 Gb/s").bytes_per_second() == BytesPerSecond{50e9});
  CHECK(value_of("50 GBps").bytes_per_second() == BytesPerSecond{50e9});
  CHECK(value_of("1.6 Tbps").bytes_per_second() == BytesPerSecond{200e9});
  CHECK(value_of("989 TFLOPS").flops_per_second() == FlopsPerSecond{989e12});
  CHECK(value_of("989 TFlops").flops_per_second() == value_of("989 TFLOP/s").flops_per_second());
  CHECK(value_of("5 μs").seconds() == value_of("5 us").seconds());
  CHECK_THAT(error_of([] { (void)value_of("5 Gbps").bytes(); }), ContainsSubstring("unknown unit 'Gbps'"));
  for (const char* bits : {"400 gbps", "0.4 tbps", "400000 mbps", "400 gbit/s", "400 Gbit/S"}) {
    INFO(bits);
    CHECK(value_of(bits).bytes_per_second().value == Approx(50e9));
  }
  for (const char* bytes : {"50 gB/s", "50 GBPS", "50 GB/S", "50e6 kB/s"}) {
    INFO(bytes);
    CHECK(value_of(bytes).bytes_per_second().value == Approx(50e9));
  }
  for (const char* flops : {"989 tflops", "989 Tflop/s", "989 tflop/s", "0.989 pflops", "989000 gflops"}) {
    INFO(flops);
    CHECK(value_of(flops).flops_per_second().value == Approx(989e12));
  }
  CHECK_THAT(
      error_of([] { (void)value_of("50 gb/s").bytes_per_second(); }),
      ContainsSubstring("'gb/s' may mean bits or bytes") && ContainsSubstring("Gb/s for bits, or GB/s for bytes"));
  CHECK_THAT(error_of([] { (void)value_of("5 gigs").bytes_per_second(); }), ContainsSubstring("Gbit/s (Gbps)"));
  for (const char* other : {"50 gib/s", "50 kb/s", "50 b/s"}) {  // no unit that is called so has such a b
    INFO(other);
    CHECK_THROWS_AS((void)value_of(other).bytes_per_second(), InputError);
  }
  CHECK_THROWS_AS((void)value_of("80 gb").bytes(), InputError);
  CHECK_THROWS_AS((void)value_of("5 MS").seconds(), InputError);  // not milliseconds
}

TEST_CASE("a key that is called so elsewhere is answered with ours") {
  const YamlValue file = YamlValue::parse("{pp: 4}\n", "a.yaml");
  CHECK_THAT(error_of([&] {
               file.check_keys({"order", "pipeline", "tensor"});
             }),
             ContainsSubstring("the key is 'pipeline' here"));
  const YamlValue other = YamlValue::parse("{seq_length: 4}\n", "a.yaml");
  CHECK_THAT(error_of([&] {
               other.check_keys({"sequence", "precision"});
             }),
             ContainsSubstring("the key is 'sequence' here"));
}

#include "exec/transport/gloo/gloo_error.hpp"

#include <stdexcept>

#include "tests/catch.hpp"

using namespace plumb::exec;

TEST_CASE("Gloo's errors are reduced to their cause, without source places") {
  CHECK(gloo_cause("[/build/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
                   "[127.0.0.1]:24013") == "Connection closed by peer [127.0.0.1]:24013");
  CHECK(gloo_cause("[/build/gloo/pair.cc:547] Read error [127.0.0.1]:4: Connection reset by peer. GLHF! 🏖️") ==
        "Read error [127.0.0.1]:4: Connection reset by peer");
  CHECK(gloo_cause("Gloo connectFullMesh failed with [/build/gloo/tcp/pair.cc:144] no error") ==
        "Gloo connectFullMesh failed with no error");
  CHECK(gloo_cause("[a.cc:1] GLHF!").empty());
}

TEST_CASE("a text that only looks like Gloo's stays as it is") {
  for (const char* text : {"", "connection closed by peer", "[::1]:29500 refused", "[pair.cc:] x", "[pair.cc:1a] x",
                           "[pair.cc:1", "[", "]", "[enforce fail] x."}) {
    CHECK(gloo_cause(text) == text);
  }
}

TEST_CASE("only the first line of an error with a stack trace is printed") {
  CHECK(gloo_cause(std::runtime_error("[/build/pair.cc:9] Timed out\nframe #0: f")) == "Timed out");
}

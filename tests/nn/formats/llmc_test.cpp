// llm.c's model format: round trips with safetensors, the transposition, and crafted files.

#include "nn/formats/llmc.h"

#include <catch2/catch_test_macros.hpp>

#include "tensor/dtype.h"
#include "tests/nn/model_values.h"

namespace zl {
namespace {

std::string saved(const GptConfig& config,
                  std::vector<float> (*values)(const GptConfig&, const std::string&)) {
  const ScratchFolder folder;
  save_llmc_weights(folder.path("m.bin"), config,
                    [&](const std::string& name) { return values(config, name); });
  return folder.read("m.bin");
}

// The header's ints, and the elements after it.
int32_t header_int(const std::string& bytes, size_t i) {
  int32_t value;
  std::memcpy(&value, bytes.data() + 4 * i, 4);
  return value;
}
std::vector<float> elements(const std::string& bytes) {
  std::vector<float> values((bytes.size() - 1024) / 4);
  std::memcpy(values.data(), bytes.data() + 1024, values.size() * 4);
  return values;
}
std::vector<float> part(const std::vector<float>& v, int64_t first, int64_t n) {
  return {v.begin() + first, v.begin() + first + n};
}

std::string refusal(const std::string& bytes, std::optional<int64_t> heads = {}) {
  const ScratchFolder folder;
  const std::string path = folder.write("m.bin", bytes);
  return sentence_of([&] { open_weights(path, heads); });
}

std::string with_header(std::string bytes, size_t i, int32_t value) {
  std::memcpy(bytes.data() + 4 * i, &value, 4);
  return bytes;
}

constexpr int64_t kRows = 128, C = 4, V = 5,
                  T = 3;  // of kSmallModel; its vocabulary is padded to 128 rows

}  // namespace

TEST_CASE("the header of a saved model is llm.c's", "[nn]") {
  const std::string bytes = saved(kSmallModel, whole_numbers);
  const int32_t expected[] = {20240326, 3, 3, 5, 2, 2, 4, 128, 0};
  for (size_t i = 0; i < std::size(expected); ++i) CHECK(header_int(bytes, i) == expected[i]);
  CHECK(int64_t(bytes.size()) == 1024 + 4 * (kSmallModel.parameters() + (kRows - V) * C));
  CHECK(header_int(saved({1, 1, 2, 3, 256}, whole_numbers), 7) == 256);
  CHECK(header_int(saved({1, 1, 2, 3, 257}, whole_numbers), 7) == 384);
}

TEST_CASE("a linear weight is transposed: one matrix worked out by hand", "[nn]") {
  // Width 2: c_attn.weight is (in 2, out 6) for us, rows 1 … 6 and 7 … 12; llm.c stores (out, in).
  const GptConfig config{.layers = 1, .heads = 1, .width = 2, .block_size = 1, .vocab = 2};
  const ScratchFolder folder;
  save_llmc_weights(folder.path("m.bin"), config, [&](const std::string& name) {
    if (name == "h.0.attn.c_attn.weight")
      return std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    if (name == "h.0.attn.c_proj.weight")
      return std::vector<float>{1, 2, 3, 4};  // square: no shape shows the mistake
    return std::vector<float>(size_t(numel(shape_of(config, name))), 0.f);
  });
  const int64_t c_attn = 128 * 2 + 1 * 2 + 2 + 2,
                c_proj = c_attn + 12 + 6;  // wte, wpe, ln_1 weight and bias before it
  const std::vector<float> stored = elements(folder.read("m.bin"));
  CHECK(part(stored, c_attn, 12) == std::vector<float>{1, 7, 2, 8, 3, 9, 4, 10, 5, 11, 6, 12});
  CHECK(part(stored, c_proj, 4) == std::vector<float>{1, 3, 2, 4});
  const auto weights = open_llmc_weights(folder.path("m.bin"));
  CHECK(weights->load("h.0.attn.c_attn.weight") ==
        std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(weights->load("h.0.attn.c_proj.weight") == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("tables are not transposed, padding is zero, and all layers of a kind are consecutive",
          "[nn]") {
  const std::vector<float> stored = elements(saved(kSmallModel, whole_numbers));
  const auto values = [](const std::string& name) { return whole_numbers(kSmallModel, name); };
  CHECK(part(stored, 0, V * C) == values("wte.weight"));
  CHECK(part(stored, V * C, (kRows - V) * C) == std::vector<float>(size_t((kRows - V) * C), 0.f));
  CHECK(part(stored, kRows * C, T * C) == values("wpe.weight"));
  const int64_t ln_1 = kRows * C + T * C;
  CHECK(part(stored, ln_1, C) == values("h.0.ln_1.weight"));
  CHECK(part(stored, ln_1 + C, C) == values("h.1.ln_1.weight"));
  CHECK(part(stored, ln_1 + 2 * C, C) == values("h.0.ln_1.bias"));
  CHECK(part(stored, int64_t(stored.size()) - C, C) == values("ln_f.bias"));
  CHECK(part(stored, int64_t(stored.size()) - 2 * C, C) == values("ln_f.weight"));
}

TEST_CASE("safetensors to llm.c and back is the same file, bit for bit", "[nn]") {
  const ScratchFolder folder;
  for (const GptConfig& config : {kSmallModel, GptConfig{11, 3, 6, 5, 256}}) {
    save_safetensors_weights(folder.path("a.safetensors"), config,
                             [&](const std::string& name) { return random_bits(config, name); });
    const auto from = open_weights(folder.path("a.safetensors"));
    save_llmc_weights(folder.path("b.bin"), from->config(),
                      [&](const std::string& name) { return from->load(name); });
    const auto back = open_weights(folder.path("b.bin"));
    CHECK(back->config() == config);
    CHECK(back->format() == std::string("llm.c fp32"));
    save_safetensors_weights(folder.path("c.safetensors"), back->config(),
                             [&](const std::string& name) { return back->load(name); });
    CHECK(folder.read("a.safetensors") == folder.read("c.safetensors"));
    // The negative twin: a file without the transposition differs.
    save_safetensors_weights(folder.path("d.safetensors"), config, [&](const std::string& name) {
      std::vector<float> values = back->load(name);
      if (name.ends_with("attn.c_proj.weight")) std::reverse(values.begin(), values.end());
      return values;
    });
    CHECK(folder.read("a.safetensors") != folder.read("d.safetensors"));
  }
  CHECK(folder.names().size() == 4);
}

TEST_CASE("a bf16 model is read as its fp32 twin when its values fit", "[nn]") {
  const std::string bytes = saved(kSmallModel, whole_numbers);
  const std::string half =
      with_header(bytes.substr(0, 1024), 1, 5) + bytes_of<bf16>(elements(bytes));
  const ScratchFolder folder;
  const auto weights = open_weights(folder.write("m.bin", half), 2);
  CHECK(weights->format() == std::string("llm.c bf16"));
  Gpt model(kSmallModel);
  for (const Parameter& p : model.parameters())
    CHECK(weights->load(p.name) == whole_numbers(kSmallModel, p.name));
  check_says(refusal(with_header(half, 1, 3)), "(truncated?)");
}

TEST_CASE("rows of the padding are dropped whatever they hold", "[nn]") {
  std::string bytes = saved(kSmallModel, whole_numbers);
  bytes[1024 + 4 * V * C + 2] = 'x';
  const ScratchFolder folder;
  CHECK(open_weights(folder.write("m.bin", bytes))->load("wte.weight") ==
        whole_numbers(kSmallModel, "wte.weight"));
}

TEST_CASE("a model with a wrong header is refused", "[nn]") {
  const std::string good = saved(kSmallModel, whole_numbers);
  CHECK(refusal(good).empty());
  CHECK(refusal(good, 2).empty());
  check_says(refusal(good, 4), "has 2 heads by its header, but n-head 4 was given");
  check_says(refusal(good.substr(0, good.size() - 1)), "(truncated?)");
  check_says(refusal(good + "x"), str("it has ", good.size() + 1));
  check_says(refusal(good.substr(0, 1024)), "it has 1024 (truncated?)");
  check_says(refusal(good.substr(0, 1023)), "has 1023 bytes; the header");
  check_says(refusal("abc"), "not an llm.c model");
  check_says(refusal(""), "is not an llm.c model");
  check_says(refusal(with_header(good, 0, 20240520)), "its first int32 is 20240520, not 20240326");
  check_says(refusal(with_header(good, 1, 1)), "version 1; supported are 3 (fp32) and 5 (bf16)");
  for (size_t i = 2; i <= 6; ++i) {
    CAPTURE(i);
    CHECK(!refusal(with_header(good, i, 0)).empty());
    CHECK(!refusal(with_header(good, i, -1)).empty());
    CHECK(!refusal(with_header(good, i, INT32_MAX)).empty());
  }
  check_says(refusal(with_header(good, 5, 3)), "cannot be split into 3 heads");
  check_says(refusal(with_header(good, 7, 4)), "padded to 4");
  std::string huge = good;
  for (size_t i = 2; i <= 7; ++i) huge = with_header(huge, i, i == 5 ? 1 : INT32_MAX);
  check_says(refusal(huge), "is more than is counted here");  // and nothing overflows
}

TEST_CASE("missing files and folders are no models", "[nn]") {
  const ScratchFolder folder;
  check_says(sentence_of([&] { open_weights(folder.path("none.bin")); }), "there is no file '");
  std::filesystem::create_directory(folder.path("folder.bin"));
  check_says(sentence_of([&] { open_llmc_weights(folder.path("folder.bin")); }),
             "is not a regular file");
}

TEST_CASE("a model that cannot be saved leaves the old file and nothing else", "[nn]") {
  const ScratchFolder folder;
  folder.write("m.bin", "old");
  CHECK_THROWS_AS(save_llmc_weights(folder.path("m.bin"), kSmallModel,
                                    [](const std::string& name) {
                                      return name == "ln_f.bias" ? throw InputError("interrupted")
                                                                 : whole_numbers(kSmallModel, name);
                                    }),
                  InputError);
  CHECK_THROWS_AS(save_llmc_weights(folder.path("m.bin"), kSmallModel,
                                    [](const std::string&) { return std::vector<float>(1); }),
                  std::invalid_argument);
  CHECK(folder.read("m.bin") == "old");
  CHECK(folder.names() == std::vector<std::string>{"m.bin"});
  const auto values = [](const std::string& name) { return whole_numbers(kSmallModel, name); };
  check_says(
      sentence_of([&] { save_llmc_weights(folder.path("none/m.bin"), kSmallModel, values); }),
      "cannot be written");
}

}  // namespace zl

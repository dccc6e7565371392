#include "nn/formats/llmc.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/io/file_calls.h"
#include "tensor/io/file_kind.h"

namespace zl {

namespace {

constexpr int32_t kMagic = 20240326, kFp32 = 3, kBf16 = 5;
constexpr int64_t kHeaderInts = 256, kHeaderBytes = 4 * kHeaderInts;
using Header = std::array<int32_t, kHeaderInts>;

// The kinds of tensors, in the order of the file.
struct Kind {
  const char* name;
  bool per_block;
  bool transposed;  // (out, in) in the file
};
constexpr Kind kKinds[] = {
    {"wte.weight", false, false},       {"wpe.weight", false, false},
    {"ln_1.weight", true, false},       {"ln_1.bias", true, false},
    {"attn.c_attn.weight", true, true}, {"attn.c_attn.bias", true, false},
    {"attn.c_proj.weight", true, true}, {"attn.c_proj.bias", true, false},
    {"ln_2.weight", true, false},       {"ln_2.bias", true, false},
    {"mlp.c_fc.weight", true, true},    {"mlp.c_fc.bias", true, false},
    {"mlp.c_proj.weight", true, true},  {"mlp.c_proj.bias", true, false},
    {"ln_f.weight", false, false},      {"ln_f.bias", false, false},
};

// The position of one parameter in the file.
struct Location {
  std::string name;
  Shape shape;  // ours
  bool transposed;
  int64_t first;    // [n] from the end of the header
  int64_t padding;  // [n] zeros after it
};

std::vector<Location> locate_parameters(const GptConfig& config, int64_t padded_rows) {
  Gpt model(config);
  std::vector<Location> locations;
  int64_t first = 0;
  for (const Kind& kind : kKinds)
    for (int64_t block = 0; block < (kind.per_block ? config.layers : 1); ++block) {
      const std::string name = kind.per_block ? str("h.", block, ".", kind.name) : kind.name;
      const Unit& unit = model.units()[kind.per_block ? size_t(block) + 1 : 0];
      const auto p = std::find_if(unit.parameters.begin(), unit.parameters.end(),
                                  [&](Parameter* q) { return q->name == name; });
      // wte is the first.
      const int64_t padding = first == 0 ? (padded_rows - config.vocab) * config.width : 0;
      locations.push_back({name, (*p)->shape, kind.transposed, first, padding});
      first += (*p)->numel() + padding;
    }
  return locations;
}

// (rows, columns) -> (columns, rows)
std::vector<float> transpose(const std::vector<float>& from, int64_t rows, int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[size_t(c * rows + r)] = from[size_t(r * columns + c)];
  return to;
}

// Elements [first, first + n) as fp32.
template <class T>
std::vector<float> read_elements(const std::string& path, int64_t first, int64_t n) {
  std::vector<T> stored(static_cast<size_t>(n));
  std::ifstream file(path, std::ios::binary);
  file.seekg(kHeaderBytes + first * int64_t(sizeof(T)));
  file.read(reinterpret_cast<char*>(stored.data()), std::streamsize(stored.size() * sizeof(T)));
  require_input(bool(file), "cannot read '", path,
                "' any more: it has been removed or become shorter since it was opened");
  return std::vector<float>(stored.begin(), stored.end());
}

class LlmcWeights : public GptWeights {
 public:
  LlmcWeights(std::string path, int32_t version, GptConfig config, std::vector<Location> locations)
      : GptWeights(path, config,
                   {.types = version == kFp32 ? "F32" : "BF16",
                    .bytes = int64_t(std::filesystem::file_size(path))}),
        version_(version),
        locations_(std::move(locations)) {}
  const char* format() const override { return version_ == kFp32 ? "llm.c fp32" : "llm.c bf16"; }
  std::vector<float> load(const std::string& name) const override {
    const auto at = std::find_if(locations_.begin(), locations_.end(),
                                 [&](const Location& l) { return l.name == name; });
    require(at != locations_.end(), "the model has no parameter '", name, "'");
    const auto values = version_ == kFp32
                            ? read_elements<float>(path(), at->first, numel(at->shape))
                            : read_elements<bf16>(path(), at->first, numel(at->shape));
    return at->transposed ? transpose(values, at->shape[1], at->shape[0]) : values;
  }

 private:
  int32_t version_;
  std::vector<Location> locations_;
};

Header read_header(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require_input(status.type() != std::filesystem::file_type::not_found, "there is no file '", path,
                "'");
  require_input(status.type() == std::filesystem::file_type::regular, "'", path,
                "' is not a regular file");
  refuse_other_file(recognise_file_at(path), path, kLlmcModel);
  std::ifstream file(path, std::ios::binary);
  require_input(file.is_open(), "cannot open '", path, "': ", std::strerror(errno));
  Header header{};
  file.read(reinterpret_cast<char*>(header.data()), kHeaderBytes);
  require_input(file.gcount() >= 4 && header[0] == kMagic, "'", path,
                "' is not an llm.c model: its first int32 is ",
                file.gcount() >= 4 ? str(header[0]) : "missing", ", not ", kMagic);
  require_input(file.gcount() == kHeaderBytes, "'", path, "' has ", file.gcount(),
                " bytes; the header of an llm.c model alone has ", kHeaderBytes);
  require_input(header[1] == kFp32 || header[1] == kBf16, "'", path,
                "' is an llm.c model of version ", header[1],
                "; supported are 3 (fp32) and 5 (bf16)");
  return header;
}

GptConfig config_of(const std::string& path, const Header& header) {
  const GptConfig config{.layers = header[4],
                         .heads = header[5],
                         .width = header[6],
                         .block_size = header[2],
                         .vocab = header[3]};
  try {
    config.check();
  } catch (const InputError& error) {
    throw InputError(str("'", path, "': ", error.what()));
  }
  require_input(header[7] >= header[3], "'", path, "' has ", header[3], " tokens, padded to ",
                header[7], " by its header, which is smaller");
  return config;
}

// Throws unless the file has exactly the size that its header implies.
void check_size(const std::string& path, const GptConfig& config, const Header& header) {
  const double C = double(config.width);
  const double about = 12.0 * double(config.layers) * C * C +
                       (double(header[7]) + double(config.block_size)) * C;  // [n]
  require_input(about < 0x1p59, "'", path, "' has ", about,
                " parameters by its header, which is more than a file can contain");
  const int64_t expected =
      kHeaderBytes + (header[1] == kFp32 ? 4 : 2) *
                         (config.parameters() + (header[7] - config.vocab) * config.width);
  std::error_code error;
  const int64_t bytes = int64_t(std::filesystem::file_size(path, error));
  require_input(!error && bytes == expected, "'", path, "' must have ", expected,
                " bytes by its header (", config.layers, " layers, width ", config.width,
                ", block-size ", config.block_size, ", ", header[7], " rows of tokens); it has ",
                bytes, bytes < expected ? " (truncated?)" : "");
}

}  // namespace

std::unique_ptr<GptWeights> open_llmc_weights(const std::string& path,
                                              std::optional<int64_t> heads) {
  const Header header = read_header(path);
  const GptConfig config = config_of(path, header);
  require_input(!heads || *heads == config.heads, "'", path, "' has ", config.heads,
                " heads by its header, but n-head ", heads.value_or(0), " was given");
  check_size(path, config, header);
  return std::make_unique<LlmcWeights>(path, header[1], config,
                                       locate_parameters(config, header[7]));
}

void save_llmc_weights(const std::string& path, const GptConfig& config,
                       const ParameterValues& values) {
  config.check();
  const int64_t rows = round_up(config.vocab, 128);
  for (const int64_t size : {config.layers, config.width, config.block_size, rows})
    require_input(size <= INT32_MAX, "llm.c's format holds sizes up to ", INT32_MAX, ", not ",
                  size);
  Header header{kMagic,
                kFp32,
                int32_t(config.block_size),
                int32_t(config.vocab),
                int32_t(config.layers),
                int32_t(config.heads),
                int32_t(config.width),
                int32_t(rows)};
  PendingFile file(path);
  file.write(header.data(), kHeaderBytes);
  for (const Location& l : locate_parameters(config, rows)) {
    std::vector<float> all = values(l.name);
    require(int64_t(all.size()) == numel(l.shape), "parameter '", l.name, "' has ", numel(l.shape),
            " values, but ", all.size(), " were given");
    if (l.transposed) all = transpose(all, l.shape[0], l.shape[1]);
    all.resize(all.size() + size_t(l.padding));  // zeros
    file.write(all.data(), all.size() * sizeof(float));
  }
  file.commit();
}

}  // namespace zl

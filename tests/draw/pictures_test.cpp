// The pictures in tutorials/pictures/ are shown by pages, can be read by everyone, and state the
// numbers that follow from the sizes of the models.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <stdexcept>

#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace draw {
namespace {

std::string in_tree(const std::string& path) {
  return std::string(ZEROLAB_SOURCE_DIR) + "/" + path;
}

std::string picture(const std::string& name) {
  return cli::read_file(in_tree("tutorials/pictures/" + name + ".svg"));
}

std::vector<std::string> pictures() {
  std::vector<std::string> names;
  for (const std::string& file : cli::files_in(in_tree("tutorials/pictures")))
    if (file.ends_with(".svg")) names.push_back(file.substr(0, file.size() - 4));
  return names;
}

// Whether a page shows the picture, with a text of some length for those who cannot see it.
bool shows(const std::string& page, const std::string& text, const std::string& name) {
  const std::string path = std::filesystem::path("tutorials/pictures/" + name + ".svg")
                               .lexically_relative(std::filesystem::path(page).parent_path());
  return std::regex_search(text, std::regex("!\\[[^\\]]{40,}\\]\\(" + path + "\\)"));
}

// An element without its children; `text` is directly inside it.
struct Element {
  std::string name, attributes, text;
};

// All elements in the order of their begin tags. Throws std::runtime_error where the text is not
// well-formed XML: tags nest, attributes are quoted and given once, every & begins an entity.
std::vector<Element> parse_xml(const std::string& text) {
  static const std::regex token(
      "<(/?)([A-Za-z][A-Za-z0-9]*)((?:\\s+[A-Za-z][A-Za-z0-9:-]*=(?:\"[^\"<]*\"|'[^'<]*'))*)"
      "\\s*(/?)>|[^<]+"),
      twice("\\s([A-Za-z][A-Za-z0-9:-]*)=.*\\s\\1="), no_entity("&(?!(amp|lt|gt|quot|#[0-9]+);)");
  std::vector<Element> elements;
  std::vector<size_t> open;
  auto at = text.begin();
  const auto require = [&](bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what + " at byte " + std::to_string(at - text.begin()));
  };
  for (std::smatch match; at != text.end(); at = match[0].second) {
    const auto from_here = std::regex_constants::match_continuous;
    require(std::regex_search(at, text.end(), match, token, from_here), "neither tag nor text");
    const std::string all = match[0], name = match[2], attributes = match[3];
    require(!std::regex_search(all, no_entity), "a & that is no entity");
    require(!std::regex_search(attributes, twice), "an attribute is given twice");
    if (name.empty()) {
      require(!open.empty() || all == "\n", "text outside the document");
      if (!open.empty()) elements[open.back()].text += all;
    } else if (match[1].length() > 0) {
      require(!open.empty() && elements[open.back()].name == name, "an unexpected end tag");
      open.pop_back();
    } else {
      require(!open.empty() || elements.empty(), "a second document");
      if (match[4].length() == 0) open.push_back(elements.size());
      elements.push_back({name, attributes, ""});
    }
  }
  require(open.empty() && !elements.empty(), "an element is not closed, or there is none");
  return elements;
}

// What is wrong with one file, or "".
std::string complaint(const std::string& svg) {
  std::vector<Element> all;
  try {
    all = parse_xml(svg);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  if (svg.size() > 40'000) return "it has more than 40,000 bytes";
  if (all[0].name != "svg" || !cli::contains(all[0].attributes, " role=\"img\""))
    return "it is not an image";
  if (all.size() < 3 || all[1].name != "title" || all[1].text.size() < 10) return "it has no title";
  if (all[2].name != "desc" || all[2].text.size() < 80) return "it has no description";
  if (!cli::contains(svg, "prefers-color-scheme: dark")) return "it has no dark scheme";
  for (const Element& element : all)
    if (element.name == "script" || element.name == "image") return "it holds a " + element.name;
  static const std::regex size("font(-size)?: ([0-9]+)px"), x("<text[^>]* x=\"([^\"]*)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), size), end; it != end; ++it)
    if (std::stoi((*it)[2]) < 12) return "text of " + it->str();
  for (std::sregex_iterator it(svg.begin(), svg.end(), x), end; it != end; ++it)
    if (std::stod((*it)[1]) < 0 || std::stod((*it)[1]) > 760) return "text outside: " + it->str();
  return "";
}

// The texts that readers see, and those that a browser shows when the mouse is over a shape.
std::vector<std::string> texts(const std::string& name) {
  std::vector<std::string> found;
  for (const Element& element : parse_xml(picture(name)))
    if (element.name == "text" || element.name == "title") found.push_back(element.text);
  return found;
}

std::string commas(int64_t n) {
  std::string text = std::to_string(n);
  for (int at = int(text.size()) - 3; at > 0; at -= 3) text.insert(size_t(at), ",");
  return text;
}
std::string bytes(int64_t n) { return commas(n) + " B"; }
std::string kib(int64_t n) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f KiB", double(n) / 1024);
  return text;
}
std::string power_of_2(int exponent) {
  static const char* const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "2⁻" : "2";
  for (const char c : std::to_string(std::abs(exponent))) text += digits[c - '0'];
  return text;
}

// The model of the lessons, whose V is 65; `stages` has V = 256. N ranks.
constexpr int64_t T = 32, C = 32, H = 2, N = 4, kBlock = 12 * C * C + 13 * C;
constexpr int64_t padded(int64_t n) { return (n + 16 * N - 1) / (16 * N) * 16 * N; }
constexpr int64_t root(int64_t V) { return padded(V * C + T * C + 2 * C); }
constexpr int64_t model(int64_t V, int64_t L) { return root(V) + L * padded(kBlock); }
// [B] Activations of L blocks at the peak, for B windows: tests/tutorials/lessons_12_to_15_test.cpp
// says what they are, and that the lesson measures them. Where no output is recomputed, the peak is
// in the head.
enum class Keep { all, selective, inputs, parts_of_inputs };
constexpr int64_t activations(Keep keep, int64_t B, int64_t L) {
  const int64_t all = 16 * C + 4 + H;  // of a block
  const int64_t full = (L - 1) * C + all + 6 * C;
  return 4 * (B * T *
                  (2 + (keep == Keep::all         ? L * all + 3 * C + 2 + 65
                        : keep == Keep::selective ? L * (all - 6 * C) + 5 * C
                        : keep == Keep::inputs    ? full
                                                  : full + L * C / N + C - L * C)) +
              1);
}

// The picture has so many texts that are this and nothing else; with kSome one or more.
constexpr int64_t kSome = -1;
void states(const std::string& name, const std::string& text, int64_t times = 1) {
  CAPTURE(name, text);
  const int64_t found = std::ranges::count(texts(name), text);
  CHECK((times == kSome ? found > 0 : found == times));
}

}  // namespace

TEST_CASE("each picture is shown by a page, with a text for those who cannot see it", "[draw]") {
  std::vector<std::string> pages{"README.md"};
  for (const std::string folder : {"tutorials/", "tutorials/reference/"})
    for (const std::string& name : cli::files_in(in_tree(folder)))
      if (name.ends_with(".md") && name.find('/') == std::string::npos)
        pages.push_back(folder + name);
  for (const std::string& name : pictures()) {
    CAPTURE(name);
    CHECK(std::ranges::any_of(pages, [&](const std::string& page) {
      return shows(page, cli::read_file(in_tree(page)), name);
    }));
  }
  const std::string alt(40, 'a');
  CHECK(shows("tutorials/a.md", "![" + alt + "](pictures/b.svg)", "b"));
  CHECK(shows("README.md", "![" + alt + "](tutorials/pictures/b.svg)", "b"));
  CHECK_FALSE(shows("tutorials/a.md", "[" + alt + "](pictures/b.svg)", "b"));
  CHECK_FALSE(shows("tutorials/a.md", "![a](pictures/b.svg)", "b"));
  CHECK_FALSE(shows("README.md", "![" + alt + "](pictures/b.svg)", "b"));
}

TEST_CASE("each picture is well-formed XML with a title, a description and a dark scheme",
          "[draw]") {
  for (const std::string& name : pictures()) {
    CAPTURE(name);
    CHECK(complaint(picture(name)) == "");
  }
  const std::string good = picture("shards");
  for (const std::string change :
       {"</svg>|", "</desc>|", "</text>|</rect>", "role=\"img\"|role=img", "role=\"img\"|",
        "<title id=\"title\">|<title id=\"title\" id=\"title\">", " one | a & b ",
        "font: 13px|font: 11px", "prefers-color-scheme: dark|print", "<style>|<script/><style>",
        "x=\"16\"|x=\"961\""}) {
    const size_t bar = change.find('|'), at = good.find(change.substr(0, bar));
    CAPTURE(change);
    REQUIRE(at != std::string::npos);
    CHECK(complaint(good.substr(0, at) + change.substr(bar + 1) + good.substr(at + bar)) != "");
  }
}

TEST_CASE("pictures state the model states of each rank that the paper's formulas give", "[draw]") {
  const struct {
    std::string stage;
    int64_t parameter, gradient, optimizer;  // by how many ranks each is divided
  } rows[] = {{"ddp", 1, 1, 1}, {"zero1", 1, 1, N}, {"zero2", 1, N, N}, {"zero3", N, N, N}};
  for (const auto& [stage, parameter, gradient, optimizer] : rows) {
    const int64_t p = 4 * model(256, 2) / parameter, g = 4 * model(256, 2) / gradient,
                  o = 8 * model(256, 2) / optimizer;
    states("stages", kib(p + g + o));
    for (int rank = 0; rank < N; ++rank)
      for (const auto& [use, size] :
           {std::pair{"parameter ", p}, {"gradient ", g}, {"optimizer_state ", o}})
        states("stages", stage + " rank " + std::to_string(rank) + ": " + use + bytes(size));
  }
  states("ranks", bytes(16 * model(65, 2)), N);

  const int64_t shard = model(65, 2) / N;  // in offload, where a parameter has 2 bytes
  for (const std::string part :
       {"no offload: device parameter", "no offload: device gradient",
        "no offload: device optimizer_state", "optimizer: cpu: device parameter",
        "optimizer: cpu: host gradient", "optimizer: cpu: host optimizer_state",
        "both: cpu: host parameter", "both: cpu: host gradient", "both: cpu: host optimizer_state",
        "nvme, param: cpu: host parameter"})
    states("offload", part + " " + bytes((part.ends_with("optimizer_state") ? 12 : 2) * shard));
  const auto blocks_of_1024 = [](int64_t n) { return (n + 1023) / 1024 * 1024; };
  const int64_t stored = blocks_of_1024(root(65) / N) + 2 * blocks_of_1024(padded(kBlock) / N);
  states("offload", "nvme, param: cpu: disk optimizer_state " + bytes(12 * stored));
  states("offload", bytes(12 * stored), 1 + 2);  // in the file, read, written
  // Up, where parameters are on the host; down and up, down, down, and one device keeps as much.
  states("offload", bytes(2 * (shard + 2 * padded(kBlock) / N)), 2);
  states("offload", bytes(2 * shard), 2 + 2 + 1);
  states("offload", bytes(16 * shard), 2);  // of one memory: the device, the host with both
  states("offload", bytes(14 * shard));
  states("offload", bytes(4 * shard));
}

TEST_CASE("pictures state the peaks that model states and activations add up to", "[draw]") {
  const int64_t states_bytes = 16 * (65 * C + T * C + 2 * C + 2 * kBlock);  // one rank: no padding
  const int64_t some = activations(Keep::selective, 4, 2);
  states("step_memory", "activation at most " + bytes(some));
  states("step_memory", "peak " + bytes(states_bytes + some));
  states("step_memory",
         "peak = " + bytes(states_bytes) + " of model states + " + bytes(some) + " of activations");
  for (const auto& [panel, keep] : {std::pair{"none", Keep::all},
                                    {"selective", Keep::selective},
                                    {"full", Keep::inputs},
                                    {"full, partitioned", Keep::parts_of_inputs}})
    for (const char* const what : {": peak ", ": activation at most "})
      states("activations", panel + (what + bytes(activations(keep, 4, 4))));

  // With one large bucket the peak is in the first block, where one input less is kept.
  const int64_t P = model(65, 2), block = padded(kBlock);
  for (const auto& [panel, gradients, moments, inputs_less] :
       {std::tuple{"ddp", P, P, 0},
        {"zero1", P, P / N, 0},
        {"zero2, a bucket per unit", P / N + root(65) + block, P / N, 0},
        {"zero2, one bucket for all units", P / N + P, P / N, 1}}) {
    const std::string begin = std::string(panel) + ": ";
    const int64_t peak =
        4 * (P + gradients + 2 * moments - inputs_less * T * C) + activations(Keep::inputs, 1, 2);
    states("bucket_peaks", begin + "parameter at most " + bytes(4 * P));
    states("bucket_peaks", begin + "gradient at most " + bytes(4 * gradients));
    states("bucket_peaks", begin + "optimizer_state at most " + bytes(8 * moments));
    states("bucket_peaks", "gradients at most " + bytes(4 * gradients), gradients == P ? 2 : 1);
    states("bucket_peaks", begin + "activation at most " + bytes(activations(Keep::inputs, 1, 2)));
    states("bucket_peaks", begin + "peak " + bytes(peak));
    states("bucket_peaks", bytes(peak));
  }
  // Root is full once, from before the first block to after the last; each block twice.
  for (const std::string what : {"peak ", "parameter at most "})
    states("full_parameters", "zero3: " + what + bytes(4 * (model(65, 4) / N + root(65) + block)));
  states("full_parameters", "ddp: " + bytes(4 * model(65, 4)));
  states("full_parameters", "root: full");
  for (const std::string unit : {"h.0", "h.1", "h.2", "h.3"})
    states("full_parameters", unit + ": full", 2);
  for (const int64_t ahead : {0, 1})
    states("prefetch", "stage3_prefetch_bucket_size " + std::to_string(ahead) +
                           ": parameters at most " +
                           bytes(4 * (model(65, 3) / N + root(65) + (1 + ahead) * block)));
}

TEST_CASE("pictures state the bytes that each call sends", "[draw]") {
  const int64_t n = 28'576, full = 4 * padded(kBlock), once = (N - 1) * full / N;
  states("ring", bytes((N - 1) * n * 4 / N));
  states("ring", bytes(2 * (N - 1) * n * 4 / N));
  states("unit_calls", "sends " + bytes(2 * once));  // ddp's all-reduce
  // Reduce-scatters; gathers after and before. Full gradients of zero2 and zero3, parameters of
  // zero3.
  states("unit_calls", "sends " + bytes(once), 3 + 2 + 2);
  for (const std::string sign : {"+ ", "− "}) states("unit_calls", sign + bytes(full), 2 + 2);
  states("unit_calls", "Adam on " + commas(padded(kBlock)));  // ddp
  states("unit_calls", "Adam on " + commas(padded(kBlock) / N), 3);
  states("buckets", "all_reduce of h.1 gradient: " + bytes(2 * once) + " sent", 2);
  states("in_flight", "reduce_scatter of h.1 gradient: " + bytes(once) + " sent", 2);
  states("prefetch", "all_gather of h.1 parameter: " + bytes(once) + " sent", 4);
}

TEST_CASE("pictures state the borders of shards and parameters, and the ranges of types",
          "[draw]") {
  const auto piece = [](const std::string& who, int64_t begin, int64_t end) {
    return who + ": " + commas(end - begin) + " elements from " + commas(begin);
  };
  int64_t begin = 0;  // of a parameter in its unit
  const char* const names[] = {"ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
                               "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                               "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
                               "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
  const int64_t sizes[] = {1, 1, 3 * C, 3, C, 1, 1, 1, 4 * C, 4, 4 * C, 1};  // times C
  for (int i = 0; i < 12; ++i) {
    const std::string name = names[i];
    const int64_t size = sizes[i] * C;
    states("shards", piece(name, begin, begin + size), kSome);
    // 4 ranks write it, 3 ranks read it: each the part that its shard of the unit has.
    for (const auto& [verb, shard] :
         {std::pair{" writes h.0.", padded(kBlock) / N}, {" reads h.0.", int64_t(4240)}})
      for (int64_t rank = 0; rank * shard < kBlock; ++rank) {
        const int64_t from = std::max(rank * shard, begin) - begin,
                      to = std::min((rank + 1) * shard, begin + size) - begin;
        if (from < to)
          states("checkpoint", piece("rank " + std::to_string(rank) + verb + name, from, to));
      }
    begin += size;
  }
  states("shards", piece("padding", kBlock, padded(kBlock)), kSome);
  for (int64_t rank = 0; rank < N; ++rank)
    states("shards",
           piece("rank " + std::to_string(rank), rank * padded(kBlock) / N,
                 (rank + 1) * padded(kBlock) / N),
           kSome);
  for (const auto& [type, exponent_bits, mantissa_bits] :
       {std::tuple{"f32", 8, 23}, {"bf16", 8, 7}, {"f16", 5, 10}}) {
    const int end = 1 << (exponent_bits - 1), normal = 2 - end;
    const std::string who = std::string(type) + ": ", least = power_of_2(normal - mantissa_bits);
    states("number_ranges", who + "all bits from " + power_of_2(normal) + " to " + power_of_2(end));
    states("number_ranges", who + "fewer bits from " + least);
    states("number_ranges", "1 + " + power_of_2(-mantissa_bits));
  }
}

TEST_CASE("live_bytes and ring state their numbers in the order of the steps", "[draw]") {
  const auto numbers = [](const std::string& name, const std::string& pattern) {
    std::string found;
    for (const std::string& text : texts(name))
      if (std::regex_match(text, std::regex(pattern))) found += text + "\n";
    return found;
  };
  std::string levels, cells;
  for (const int64_t elements : {4, 4, 4, 8, 8, 8, 4, 0, 4, 6, 0, 4})  // bytes per R x C, 8 x 4
    levels += std::to_string(elements * 8 * 4) + "\n";
  CHECK(numbers("live_bytes", "[0-9]+") == levels);
  for (int step = 0; step < 7; ++step)
    for (int rank = 0; rank < N; ++rank)
      for (int chunk = 0; chunk < N; ++chunk) {
        // In step s rank r receives chunk r - s; it then sums s + 1 values, or is complete.
        int terms = 1;
        for (int s = 1; s <= step; ++s)
          if ((rank - s + 2 * N) % N == chunk) terms = std::min(s + 1, int(N));
        cells += "rank " + std::to_string(rank) + " chunk " + std::to_string(chunk) + ": " +
                 std::to_string(terms) + "\n";
      }
  CHECK(numbers("ring", "rank .*") == cells);
}

TEST_CASE("failures: rank 2 differs in each panel, and no other rank does", "[draw]") {
  const std::vector<std::string> all = texts("failures");
  const auto count = [&](const std::string& pattern) {
    return std::ranges::count_if(
        all, [&](const std::string& text) { return std::regex_match(text, std::regex(pattern)); });
  };
  CHECK(count("mismatch, rank [013]: norm waits") == 3);
  CHECK(count("mismatch, rank 2: log waits") == 1);
  for (const std::string fault : {"hang", "dead rank"}) {
    CHECK(count(fault + ", rank [013]: norm waits") == 3);
    CHECK(count(fault + ", rank 2: .* done") == 3);
    CHECK(count(fault + ", rank 2: norm.*") == 0);
  }
  CHECK(count("straggler, rank [013]: .* done after a wait") == 12);
  CHECK(count("straggler, rank 2: .* done") == 4);
  CHECK(count(".* waits") == 4 + 3 + 3);
}

}  // namespace draw

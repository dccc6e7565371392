#include "tutorials/lesson/model_m.h"

#include <cmath>
#include <set>

#include "nn/data/corpus.h"
#include "stages/train/weights.h"
#include "tensor/kernels.h"
#include "tutorials/recording/stage_reader.h"

namespace zl::lesson {
namespace {

constexpr int kTokens = 65;

std::string in_65_tokens(std::string text) {
  for (char& c : text) c = char(uint8_t(c) % kTokens);
  return text;
}

void append(const Tensor& tensor, std::vector<float>& values) {
  const std::vector<float> more = kernel::download_floats(tensor);
  values.insert(values.end(), more.begin(), more.end());
}

}  // namespace

GptConfig model_m(int64_t layers) {
  return {.layers = layers, .heads = 2, .width = 32, .block_size = 32, .vocab = kTokens};
}

SizesM sizes_m(int ranks, int64_t layers) {
  const GptConfig m = model_m(layers);
  const int64_t V = m.vocab, T = m.block_size, C = m.width, multiple = 16 * ranks;
  const auto pad = [&](int64_t n) { return (n + multiple - 1) / multiple * multiple; };
  const int64_t root = V * C + T * C + 2 * C;  // token embedding, positions, last norm
  const int64_t block = 12 * C * C + 13 * C;   // norms 4C, attention 4C^2 + 4C, mlp 8C^2 + 5C
  return {root, block, pad(root), pad(block), layers};
}

const Windows& text_m() {
  static const Windows windows(TokenData::of_text("the text that ships, in 65 tokens",
                                                  in_65_tokens(std::string(default_corpus()))),
                               model_m().block_size);
  return windows;
}

TrainingSpec training_m(Lesson& lesson, StageKind stage, int64_t layers) {
  TrainingSpec spec;
  spec.make_model = [layers] { return std::make_unique<Gpt>(model_m(layers)); };
  spec.data = &text_m();
  spec.engine.stage = stage;
  spec.engine.seed = lesson.seed();
  spec.micro_batch = kRowsM;
  spec.steps = 1;
  spec.ranks = lesson.ranks();
  if (lesson.on_reference()) use_reference(spec);
  spec.run_ranks = [&lesson](int size, const auto& body, RankOptions options) {
    lesson.run_ranks(size, body, options);
  };
  return spec;
}

void watch(Lesson& lesson, Trainer& rank) {
  lesson.recording().watch(
      rank.comm(), rank.memory(),
      recording::holdings(rank.engine().stage(), rank.model().units(), rank.comm().events()));
}

RunM train_m(Lesson& lesson, const TrainingSpec& spec, bool recorded,
             const std::function<void(Trainer&)>& after_step, const EventStream::Listener& rank0) {
  RunM run;
  run.weights.resize(size_t(spec.ranks));
  TrainingCallbacks callbacks;
  callbacks.after_step = after_step;
  callbacks.at_start = [&](Trainer& rank) {
    if (recorded) watch(lesson, rank);
    if (rank0 && rank.comm().rank() == 0) rank.comm().events().listen(rank0);
  };
  callbacks.after_backward = [&](Trainer& rank) {
    if (rank.steps() != 1 || rank.comm().rank() != 0) return;
    for (const Unit& unit : rank.model().units()) {
      const UnitState& u = rank.engine().stage().state(unit);
      if (!u.full_gradient.defined()) continue;
      for (const Partition::Piece& piece : u.partition.pieces(0, u.partition.full()))
        append(u.full_gradient.slice(piece.at, {piece.count}), run.gradient);
    }
  };
  callbacks.at_end = [&](Trainer& rank) {
    lesson.recording().stop(rank.comm().rank());
    if (rank.comm().rank() == 0) run.position = rank.position();
    std::vector<float>& weights = run.weights[size_t(rank.comm().rank())];
    visit_weights(rank.engine().stage(),
                  [&](const Parameter&, const Tensor& full) { append(full, weights); });
  };
  static_cast<TrainingResult&>(run) = run_training(spec, callbacks);
  return run;
}

int64_t different_weights(const RunM& run) {
  return int64_t(std::set(run.weights.begin(), run.weights.end()).size());
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    norm += std::pow(double(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

int64_t sent_bytes(const RankReport& rank, Collective collective, Purpose purpose) {
  const auto row = rank.log.rows().find({collective, purpose});
  return row == rank.log.rows().end() ? 0 : row->second.sent_bytes();
}

int64_t sent_for_states(const RankReport& rank) {
  int64_t sent = 0;
  for (const auto& [call, traffic] : rank.log.rows())
    if (call.purpose == Purpose::parameter || call.purpose == Purpose::gradient)
      sent += traffic.sent_bytes();
  return sent;
}

}  // namespace zl::lesson

// Which ranks write and read which part of a file of a checkpoint.
#include <array>

#include "stages/partition.h"
#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

using cli::with_commas;

constexpr double kLeft = 16, kWidth = 728;
// Darker from rank to rank.
constexpr std::array kShades = {"owner sum1", "owner sum2", "owner sum3", "owner"};

SafetensorsLayout file_of(const Unit& unit) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const Parameter* p : unit.parameters) tensors.emplace_back(p->name, p->shape);
  return SafetensorsLayout(std::move(tensors));
}

void draw_rank(Svg& svg, const Box& box, int rank, const std::string& hover) {
  svg.box(box, kShades[size_t(rank)], hover);
  svg.line({box.x, box.y}, {box.x, box.y + box.height}, "faint");
  if (box.width > 14)
    svg.text({box.x + box.width / 2, box.y + box.height / 2 + 5}, str(rank),
             rank == 3 ? "middle on" : "middle");
}

// The shards of all ranks in the order of the unit.
void draw_shards_row(Svg& svg, const Partition& partition, double y, const std::string& verb) {
  const auto ranks = int(partition.full() / partition.shard());
  for (int r = 0; r < ranks; ++r)
    draw_rank(svg, {kLeft + kWidth * r / ranks, y, kWidth / ranks, 30}, r,
              str("rank ", r, " ", verb, ": ", with_commas(partition.shard()), " elements"));
}

// The same elements in the order of the file, in which padding has no place.
void draw_pieces(Svg& svg, const SafetensorsLayout& file, const Partition& partition, double y,
                 const std::string& verb) {
  const double header = double(file.header().size()), data = double(file.bytes()) - header;
  for (int r = 0; r * partition.shard() < partition.full(); ++r)
    for (const auto& piece : partition.pieces(r * partition.shard(), partition.shard())) {
      const int64_t at = file.item(piece.parameter->name).at + 4 * piece.first;
      draw_rank(svg,
                {kLeft + kWidth * (double(at) - header) / data, y,
                 kWidth * 4 * double(piece.count) / data, 30},
                r,
                str("rank ", r, " ", verb, " ", piece.parameter->name, ": ",
                    with_commas(piece.count), " elements from ", with_commas(piece.first)));
    }
}

void draw_tensors(Svg& svg, const SafetensorsLayout& file, double y) {
  const double header = double(file.header().size()), data = double(file.bytes()) - header;
  for (const auto& item : file.items()) {
    const double x = kLeft + kWidth * (double(item.at) - header) / data,
                 width = kWidth * double(item.bytes()) / data;
    svg.box({x, y, width, 30}, "panel", str(item.name, ": ", with_commas(item.bytes()), " B"));
    svg.line({x, y - 30}, {x, y + 60}, "soft");
    const std::string label = item.name.substr(item.name.find('.', 2) + 1);
    if (7.2 * double(label.size()) < width) svg.text({x + width / 2, y + 20}, label, "mono middle");
  }
}

}  // namespace

std::string draw_checkpoint() {
  Gpt model(lesson_model());
  const Unit& block = model.units()[1];
  const SafetensorsLayout file = file_of(block);
  const Partition four(block, 4), three(block, 3);
  Svg svg("One block in a checkpoint: written by 4 ranks, read by 3",
          "Three groups of rows. The shards of four ranks are equal parts of the block. In the "
          "file the same "
          "elements are whole tensors in the order of their names, so each rank writes several "
          "pieces of it. Below, the pieces that three other ranks read, and their shards.",
          372);
  const auto heading = [&](double y, const std::string& text) { svg.text({16, y}, text, "bold"); };
  heading(52, str("zero3 on 4 ranks: shards of ", with_commas(four.shard()), " elements"));
  draw_shards_row(svg, four, 62, "had");
  heading(130, str("the file: ", file.items().size(), " tensors, ",
                   with_commas(file.bytes() - int64_t(file.header().size())),
                   " B, above who writes, below who reads"));
  draw_pieces(svg, file, four, 146, "writes");
  draw_tensors(svg, file, 176);
  draw_pieces(svg, file, three, 206, "reads");
  heading(272, str("zero1 on 3 ranks: shards of ", with_commas(three.shard()), " elements"));
  draw_shards_row(svg, three, 282, "gets");
  svg.text({16, 336},
           str("Shards have padding, ", with_commas(four.full() - block.numel()), " and ",
               with_commas(three.full() - block.numel()), " elements in all. The file has none."),
           "soft");
  svg.text({16, 356}, "A number in a box is a rank. Very narrow boxes are biases and norms.",
           "soft");
  return svg.document();
}

}  // namespace zl::draw

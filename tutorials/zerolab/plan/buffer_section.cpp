#include <nlohmann/json.hpp>

#include "stages/residual/constant_buffers.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/text_table.h"
#include "tutorials/zerolab/plan/plan_sections.h"

namespace zl::cli {

PlanSection buffer_section(const TrainingSpec& spec) {
  const std::vector<BufferSize> sizes = constant_buffers(spec);
  PlanSection section;
  section.key = "constant_buffers";
  TextTable table;
  table.row({"reduce_bucket_size", "elements", "min(bucket, Ψ) · 4", "here", "deepspeed-2"});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BufferSize& s : sizes) {
    table.row({s.bucket, with_commas(s.elements), with_commas(s.constant) + " B",
               with_commas(s.here) + " B", with_commas(s.shipped) + " B"});
    rows.push_back({{"bucket", s.bucket},
                    {"elements", s.elements},
                    {"constant_bytes", s.constant},
                    {"peak_communication_bytes", s.here},
                    {"deepspeed_2_bytes", s.shipped}});
  }
  section.text = str(
      "Constant buffers, C_B (section 6.2 of the ZeRO paper): the fp32 buffer in which 16-bit "
      "gradients\nare reduced, with communication_data_type fp32. Ψ: all gradients, padded.\n\n",
      table.text(),
      "\nHere a bucket ends behind the unit that fills it, and its buffer lives during the "
      "reduction. DeepSpeed\nallocates the bucket whole and keeps it, however small the model is. "
      "A buffer for all gradients grows\nwith the model; the others do not.\n");
  section.json = rows.dump();
  return section;
}

}  // namespace zl::cli

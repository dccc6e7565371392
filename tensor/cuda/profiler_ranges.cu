// The event stream of a rank as NVTX ranges, which Nsight Systems draws above the GPU's rows. It is
// one more reader of the stream. Without a profiler NVTX does nothing. Where its header is not
// installed there are no ranges (cmake/ZerolabCuda.cmake).
#ifdef ZEROLAB_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include "tensor/cuda/launch.h"

namespace zl::ZEROLAB_CUDA {
#ifdef ZEROLAB_NVTX
namespace {

// A range that ends when the next of its kind begins.
class Track {
 public:
  Track() = default;
  Track(const Track&) = delete;
  ~Track() { end(); }
  void begin(const std::string& name) {
    end();
    range_ = nvtxRangeStartA(name.c_str());
    open_ = true;
  }
  void end() {
    if (open_) nvtxRangeEnd(range_);
    open_ = false;
  }

 private:
  nvtxRangeId_t range_ = 0;
  bool open_ = false;
};

// A phase's range contains those of units, which contain those of collectives.
struct Tracks {
  Track phase, unit, collective;
  std::string rank;  // "rank 2: "

  void see(const Event& event) {
    if (event.kind == EventKind::phase) {
      collective.end();
      unit.end();
      phase.begin(rank + event.what);
    } else if (event.kind == EventKind::unit) {
      unit.begin(str(rank, event.unit, " ", event.what));
    } else if (event.kind == EventKind::collective_begin) {
      collective.begin(str(rank, event.what, " ", event.detail));
    } else if (event.kind == EventKind::collective_end) {
      collective.end();
    }
  }
};

}  // namespace

void annotate_for_profilers(EventStream& events) {
  const auto tracks = std::make_shared<Tracks>();
  tracks->rank = str("rank ", events.rank(), ": ");
  events.listen([tracks](const Event& event) { tracks->see(event); });
}

#else
void annotate_for_profilers(EventStream&) {}
#endif

}  // namespace zl::ZEROLAB_CUDA

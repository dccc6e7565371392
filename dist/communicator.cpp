#include "dist/communicator.h"

#include <functional>
#include <memory>

#include "tensor/error.h"

namespace zl {

const char* name(Reduction reduction) { return reduction == Reduction::sum ? "sum" : "mean"; }

std::string describe(const Call& call, bool reduction) {
  std::string text = str(name(call.kind), " '", call.name, "'");
  if (call.kind != Collective::barrier)
    text +=
        str(" of ", call.count, " ", name(call.dtype), call.count == 1 ? " element" : " elements");
  if (reduction && call.reduces()) text += str(", ", name(call.reduction));
  if (call.kind == Collective::send) text += str(" to rank ", call.peer);
  if (call.kind == Collective::receive || call.kind == Collective::broadcast)
    text += str(" from rank ", call.peer);
  return text + str(" (call ", call.sequence, ")");
}

namespace {

// "all_gather 'h.3 parameter': ", how errors about arguments begin.
std::string intro(const Call& call, CallName name) {
  return str(zl::name(call.kind), " '", name.text, "': ");
}

void require_whole_slices(const Call& call, const Tensor& whole, int size, CallName name) {
  if (!whole.defined() || whole.numel() % size == 0) return;
  const int64_t padded = (whole.numel() / size + 1) * size;
  require(false, intro(call, name), whole.numel(), " elements cannot be divided among ", size,
          " ranks; pad to ", padded);
}

void require_rank(const Call& call, int rank, int size, CallName name) {
  require(rank >= 0 && rank < size, intro(call, name), "there is no rank ", rank, "; with ", size,
          " ranks they are 0 to ", size - 1);
}

void require_addable(const Call& call, const Tensor& tensor, CallName name) {
  require(!tensor.defined() || call.reduction == Reduction::sum || is_float(tensor.dtype()),
          intro(call, name),
          "the mean of integers is not an integer; use the sum, or a float type");
}

void require_apart(const Call& call, const Tensor& from, const Tensor& to, CallName name) {
  if (!from.defined() || !to.defined()) return;
  require(from.dtype() == to.dtype() && from.numel() == to.numel(), intro(call, name), "from is ",
          from.numel(), " ", zl::name(from.dtype()), " elements and to is ", to.numel(), " ",
          zl::name(to.dtype()), "; they must be alike");
  const auto *a = static_cast<const char*>(from.address()),
             *b = static_cast<const char*>(to.address());
  const std::less<const char*> before;
  require(!a || !b || !before(a, b + to.bytes()) || !before(b, a + from.bytes()), intro(call, name),
          "from and to overlap; give them memory of their own");
}

}  // namespace

Work Communicator::all_reduce(const Tensor& inout, Reduction reduction, CallName name) {
  Call call{.kind = Collective::all_reduce, .reduction = reduction};
  require_addable(call, inout, name);
  call = begin(call, inout, name);
  return end(call, do_all_reduce(inout, call));
}

Work Communicator::reduce_scatter(const Tensor& whole, Reduction reduction, CallName name) {
  Call call{.kind = Collective::reduce_scatter, .reduction = reduction};
  require_addable(call, whole, name);
  require_whole_slices(call, whole, size_, name);
  call = begin(call, whole, name);
  return end(call, do_reduce_scatter(whole, call));
}

Work Communicator::all_gather(const Tensor& whole, CallName name) {
  Call call{.kind = Collective::all_gather};
  require_whole_slices(call, whole, size_, name);
  call = begin(call, whole, name);
  return end(call, do_all_gather(whole, call));
}

Work Communicator::broadcast(const Tensor& inout, int root, CallName name) {
  Call call{.kind = Collective::broadcast, .peer = root};
  require_rank(call, root, size_, name);
  call = begin(call, inout, name);
  return end(call, do_broadcast(inout, call));
}

Work Communicator::all_to_all(const Tensor& from, const Tensor& to, CallName name) {
  Call call{.kind = Collective::all_to_all};
  require(to.defined(), intro(call, name), "the tensor to receive into is undefined");
  require_whole_slices(call, from, size_, name);
  require_apart(call, from, to, name);
  call = begin(call, from, name);
  return end(call, do_all_to_all(from, to, call));
}

Work Communicator::barrier(CallName name) {
  const Call call = begin({.kind = Collective::barrier}, 0, name);
  return end(call, do_barrier(call));
}

Work Communicator::send(const Tensor& from, int to_rank, CallName name) {
  Call call{.kind = Collective::send, .peer = to_rank};
  require_rank(call, to_rank, size_, name);
  call = begin(call, from, name);
  return end(call, do_send(from, call));
}

Work Communicator::receive(const Tensor& to, int from_rank, CallName name) {
  Call call{.kind = Collective::receive, .peer = from_rank};
  require_rank(call, from_rank, size_, name);
  call = begin(call, to, name);
  return end(call, do_receive(to, call));
}

std::vector<std::string> Communicator::exchange(const std::string& text, std::string_view name) {
  const std::string_view kept{events_.keep(name), name.size()};
  return do_exchange(
      text,
      {.kind = Collective::barrier, .sequence = ++collectives_, .name = kept, .patient = true});
}

Call Communicator::begin(Call call, const Tensor& tensor, CallName name) {
  require(tensor.defined(), intro(call, name), "the tensor is undefined; was its unit released?");
  call.dtype = tensor.dtype();
  call.count = tensor.numel();
  return begin(call, tensor.bytes(), name);
}

Call Communicator::begin(Call call, int64_t bytes, CallName name) {
  const char* kept = events_.keep(name.text);
  call.name = {kept, name.text.size()};
  call.sequence = ++(call.between_two() ? between_two_[{call.kind, call.peer}] : collectives_);
  log_.add(call.kind, name.purpose, call.count, bytes, size_);
  began_ = met_ =
      events_.append(EventKind::collective_begin, zl::name(call.kind), bytes, call.count, kept);
  return call;
}

void Communicator::met(const Call& call) {
  met_ =
      events_.append(EventKind::collective_met, name(call.kind), 0, call.count, call.name.data());
}

Work Communicator::end(const Call& call, Work work) {
  const int64_t waited = call.between_two() ? 0 : met_ - began_;
  const auto leave = [this, call, began = began_, waited] {
    const int64_t sent =
        sent_bytes_times_n(call.kind, call.count * size_of(call.dtype), size_) / size_;
    const int64_t now = events_.append(EventKind::collective_end, name(call.kind), sent, call.count,
                                       call.name.data());
    log_.add_time(call.kind, now - began, waited);
  };
  if (work.pending())
    return Work([leave, rest = std::make_shared<Work>(std::move(work))] {
      rest->wait();
      leave();
    });
  leave();
  return {};
}

}  // namespace zl

// How a rank joins NCCL's communicators, of all ranks and of its groups, and leaves them.
#include <algorithm>
#include <exception>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_communicator.h"
#include "dist/ordered/ordered_reduction.h"
#include "dist/wire.h"
#include "tensor/error.h"
#include "tensor/platform/driver_turns.h"

namespace zl {

NcclCommunicator::NcclCommunicator(const NcclJoin& join, FingerprintCheck& others,
                                   EventStream& events, bool ordered)
    : Communicator(join.rank, join.size, events),
      join_(join),
      api_(join.api),
      others_(others),
      memberships_{std::make_shared<Membership>(join, others)},
      handle_(memberships_.back()->handle),
      watchdog_(memberships_.back()->watchdog),
      ordered_(ordered) {
  this->join();
}

NcclCommunicator::NcclCommunicator(NcclCommunicator& all, const Split& split, const NcclJoin& join)
    : Communicator(all, split),
      join_(join),
      api_(join.api),
      others_(all.others_),
      memberships_{std::make_shared<Membership>(join, others_)},
      handle_(memberships_.back()->handle),
      watchdog_(memberships_.back()->watchdog),
      ordered_(all.ordered_) {
  this->join();
  all.memberships_.insert(all.memberships_.end() - 1, memberships_.back());
}

std::unique_ptr<Communicator> NcclCommunicator::do_split(const Split& split) {
  (void)do_all_gather_object("", split.call);
  const bool first = split.members.front() == rank();
  NcclJoin join = join_;
  if (first) join.id = nccl_unique_id(api_);
  const Call telling{.kind = Collective::barrier, .name = "the id of NCCL", .group = split.group};
  const std::string id =
      others_.all_gather_object(telling, WireWriter().put(join.id).take(), events()).front();
  join.id = WireReader(id).get<NcclUniqueId>();
  join.rank = int(std::ranges::find(split.members, rank()) - split.members.begin());
  join.size = int(split.members.size());
  return std::unique_ptr<Communicator>(new NcclCommunicator(*this, split, join));
}

void NcclCommunicator::join() {
  // These do not count as calls of the program, which are numbered from 1.
  const Call joining{
      .kind = Collective::barrier, .name = "joining NCCL", .has_deadline = false, .group = group()};
  ranks_per_machine_ = zl::ranks_per_machine(do_all_gather_object(join_.machine, joining));
  join_or_leave(joining.name, [&] {
    const DriverCall allocates;
    handle_.join(join_);
  });
  // All ranks wait here until NCCL has connected them: an allocation before that could hold the
  // driver's lock and stop another rank's launch.
  (void)do_all_gather_object("", joining);
}

void NcclCommunicator::finish() {
  Communicator::finish();
  for (const auto& one : memberships_) {
    NcclWatchdog& watchdog = one->watchdog;
    for (auto last = watchdog.oldest(); last; last = watchdog.oldest()) {
      try {
        one->handle.wait("the transfer", [&] { return last->moved->done(); });
      } catch (const std::exception& error) {
        fail(last->call, error.what());
      }
      watchdog.set_done(last->record);
    }
  }
  (void)all_gather_object("", "leaving NCCL");
  for (const auto& one : memberships_) one->watchdog.stop();
  require_no_failure("leaving NCCL");
  join_or_leave("leaving NCCL", [&] {
    for (const auto& one : memberships_) one->handle.finish();
  });
}

void NcclCommunicator::require_no_failure(std::string_view doing) {
  for (const auto& one : memberships_)
    one->watchdog.require_no_failure({.kind = Collective::barrier, .name = doing});
}

void NcclCommunicator::join_or_leave(std::string_view doing, const std::function<void()>& action) {
  try {
    action();
  } catch (const CommunicationError& error) {
    const std::string text = str("rank ", group().of_run(rank()), " ", doing, ": ", error.what());
    const bool first = others_.fail(text);  // before this rank leaves, which the others would see
    handle_.abort();
    if (first) throw CommunicationError(text);
    others_.throw_failure({.kind = Collective::barrier, .name = doing});
  }
}

}  // namespace zl

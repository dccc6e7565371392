#include "tutorials/lesson/stepper.h"

#include <cstdio>
#include <string_view>

#include "tutorials/lesson/keyboard.h"

namespace zl::lesson {
namespace {

// A point at which all ranks stand at the same time. A send or receive is of two ranks only.
bool is_named(const Event& event) {
  using std::string_view;
  if (event.kind == EventKind::phase || event.kind == EventKind::unit) return true;
  return event.kind == EventKind::collective_end && string_view(event.what) != "send" &&
         string_view(event.what) != "receive";
}

}  // namespace

Stepper::Stepper(std::string lesson) : lesson_(std::move(lesson)), keyboard_(has_keyboard()) {}

void Stepper::begin(int ranks) {
  watched_.assign(size_t(ranks), {});
  moments_.assign(size_t(ranks), {});
  arrived_.assign(size_t(ranks), false);
  inside_ = ranks;
  waiting_ = 0;
}

void Stepper::watch(Communicator& comm, Memory& memory, const Stage* stage,
                    const std::vector<Unit>* units) {
  Watched& watched = watched_[size_t(comm.rank())];
  watched.comm = &comm;
  watched.memory = &memory;
  watched.stage = stage;
  watched.units = units;
  if (std::exchange(watched.listens, true)) return;
  comm.events().listen([this, rank = comm.rank()](const Event& event) { hear(rank, event); });
}

void Stepper::left(int rank) {
  watched_[size_t(rank)].inside = false;  // the rank's own thread: its listener is deaf from now on
  std::lock_guard lock(mutex_);
  --inside_;
  if (waiting_ > 0 && waiting_ == inside_) meet();
}

void Stepper::other_output() {
  std::lock_guard lock(mutex_);
  drawn_ = 0;
}

// On the rank's own thread, so that nothing that it looks at changes meanwhile.
void Stepper::hear(int rank, const Event& event) {
  Watched& watched = watched_[size_t(rank)];
  if (!watched.inside || !watched.memory || !is_named(event)) return;
  if (event.kind == EventKind::unit && std::string_view(event.what) == "place")
    watched.stage = nullptr;  // a new one: the old is gone
  arrive(rank, look(watched, event));
}

RankMoment Stepper::look(const Watched& watched, const Event& event) const {
  RankMoment moment{.rank = watched.comm->rank(),
                    .phase = event.phase,
                    .unit = event.unit,
                    .what = event.what,
                    .detail = event.detail};
  if (event.kind == EventKind::phase) moment.what = "begins";
  moment.ledger = watched.memory->ledger();
  moment.log = watched.comm->log();
  if (!watched.stage || !watched.units) return moment;
  for (const Unit& unit : *watched.units) moment.units.push_back(look_at(unit, *watched.stage));
  return moment;
}

void Stepper::arrive(int rank, RankMoment moment) {
  std::unique_lock lock(mutex_);
  if (leaving_) throw Left();
  moments_[size_t(rank)] = std::move(moment);
  arrived_[size_t(rank)] = true;
  const int64_t event = event_;
  if (++waiting_ == inside_)
    meet();
  else
    released_.wait(lock, [&] { return event_ != event; });
  if (leaving_) throw Left();
}

void Stepper::meet() {
  Moment moment{.lesson = lesson_, .event = event_ + 1, .size = int(moments_.size()), .ranks = {}};
  for (size_t r = 0; r < moments_.size(); ++r)
    if (arrived_[r]) moment.ranks.push_back(std::move(moments_[r]));
  if (!keyboard_) {
    std::printf("%s\n", plain_line(moment).c_str());
    std::fflush(stdout);
  } else if (!skips_ || moment.ranks[0].unit != skipped_unit_) {
    ask(moment);
  }
  arrived_.assign(arrived_.size(), false);
  waiting_ = 0;
  ++event_;
  released_.notify_all();
}

void Stepper::ask(const Moment& moment) {
  skips_ = false;
  const SingleKeys keys;
  while (true) {
    draw(picture(moment, panel_));
    switch (keys.read()) {
      case 'n':
      case ' ':
      case '\n': return;
      case 'u':
        skips_ = true;
        skipped_unit_ = moment.ranks[0].unit;
        return;
      case 'm': panel_ = panel_ == Panel::memory ? Panel::none : Panel::memory; break;
      case 'c': panel_ = panel_ == Panel::communication ? Panel::none : Panel::communication; break;
      case 'q': leaving_ = true; return;
      default: break;
    }
  }
}

// Writes over the last picture. One that is higher than the terminal has scrolled away and stays.
void Stepper::draw(const std::vector<std::string>& lines) {
  std::string text;
  if (drawn_ > 0 && int(drawn_) < terminal_rows())
    text = "\x1b[" + std::to_string(drawn_) + "F\x1b[J";
  for (const std::string& line : lines) text += line + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  drawn_ = lines.size();
}

}  // namespace zl::lesson

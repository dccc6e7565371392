#include "tutorials/lesson/stepper.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tensor/error.h"

namespace zl::lesson {
namespace {

constexpr const char* kKeys = "[n]ext  [b]ack  [u]nit  [m]emory  [c]ommunication  [?] help  [q]uit";
constexpr const char* kHelp =
    "   n, space or Enter: next event   b: event before   u: next event of another\n"
    "   unit   m: memory by use   c: calls of rank 0   q: leave the lesson\n"
    "   the picture: the state before the event acts\n";

// Keys come one by one and are not echoed while this object lives. Ctrl-C is a key too, so no
// signal finds the terminal changed.
class SingleKeys {
 public:
  SingleKeys() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= tcflag_t(~(ICANON | ECHO | ISIG));
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~SingleKeys() { tcsetattr(STDIN_FILENO, TCSADRAIN, &before_); }
  SingleKeys(const SingleKeys&) = delete;
  SingleKeys& operator=(const SingleKeys&) = delete;
  static char read() {
    char key = 0;
    return ::read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
  }

 private:
  termios before_;
};

// Writes over the `last` lines that were drawn before, unless they have scrolled out of the
// terminal. Returns the number of lines.
int draw(const std::string& text, int last) {
  winsize size = {};
  if (last > 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && last < size.ws_row)
    std::printf("\x1b[%dF\x1b[J", last);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return int(std::ranges::count(text, '\n'));
}

std::string plain_line(const Snapshot& rank0, int64_t event, int ranks) {
  std::string line = "event";
  const auto column = [&](size_t end, const std::string& text) {
    line.resize(std::max(end - text.size(), line.size() + 1), ' ');
    line += text;
  };
  column(9, str(event + 1));
  line += "  " + rank0.text();
  column(74, str(rank0.ledger.live_total(), " B live"));
  column(92, str(rank0.sent(ranks), " B sent"));
  for (auto [name, cell] : rank0.rows) {
    std::erase(cell, ' ');
    line += " " + name + ":" + cell;
  }
  return line;
}

void print_events(const Recording& recording, int64_t first, const std::string& mark) {
  for (const std::string& line : recording.legend()) std::printf("%s\n", line.c_str());
  std::printf("each line: the state before its event acts\n");
  for (int64_t e = first; e < recording.events(); ++e)
    std::printf("%s%s%s\n", plain_line(*recording.at(e)[0], e, recording.ranks()).c_str(),
                e == first && !mark.empty() ? "  <- " : "", e == first ? mark.c_str() : "");
}

}  // namespace

void show_events(const Recording& recording, int64_t first, const std::string& mark) {
  const int64_t events = recording.events();
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    return print_events(recording, first, mark);
  const SingleKeys keys;
  const cli::Terminal terminal = cli::standard_output();
  Panel panel = Panel::none;
  const auto toggle = [&](Panel other) { panel = panel == other ? Panel::none : other; };
  int drawn = 0;
  std::string note;
  for (int64_t event = first; event < events;) {
    std::string text;
    const Panel shown = note.empty() ? panel : Panel::none;  // so that all fits 24 lines
    for (const std::string& line : picture(recording, event, shown, terminal)) text += line + "\n";
    if (event == first && !mark.empty()) text += "   <- " + mark + "\n";
    drawn = draw(text + std::exchange(note, "") + kKeys + "\n", drawn);
    const std::string unit = recording.at(event)[0]->unit;
    switch (const char key = SingleKeys::read()) {
      case 'n':
      case ' ':
      case '\n': ++event; break;
      case 'b':
        if (event == 0) note = "   this is the first event\n";
        event = std::max<int64_t>(0, event - 1);
        break;
      case 'u':
        while (++event < events && recording.at(event)[0]->unit == unit) continue;
        break;
      case 'm': toggle(Panel::memory); break;
      case 'c': toggle(Panel::communication); break;
      case '?': note = kHelp; break;
      case '\x03':
      case 'q': throw Left(key == 'q' ? 0 : 130);
      default: note = str("   '", key, "' does nothing; ? lists the keys\n");
    }
  }
}

}  // namespace zl::lesson

"""Interleaved pairs: zerolab, a baseline, zerolab, a baseline. A disturbance of the machine then affects both programs, and
hardly changes the ratio of a pair."""
import statistics
import sys
import time
from dataclasses import dataclass, field


@dataclass
class Row:
    what: str
    baseline: str
    unit: str           # "s" or "B"
    ours: list = field(default_factory=list)    # by pair
    theirs: list = field(default_factory=list)

    def ratios(self):
        """The baseline's number over zerolab's, by pair: above 1, zerolab is faster or smaller."""
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs)]

    def as_json(self):
        spread = lambda values: {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}
        return {"what": self.what, "peer": self.baseline, "unit": self.unit, "ours": spread(self.ours), "peers": spread(self.theirs),
                "ratio": spread(self.ratios())}


@dataclass
class Comparison:
    """Both functions run one process and return {row: number}. Rows that only one of them has are left out."""
    name: str
    baseline: str
    unit: str
    ours: object
    theirs: object


class Progress:
    """On stderr: the running process and the time left, from the times of earlier processes of the same name."""

    def __init__(self, quiet):
        self.quiet, self.names, self.times, self.done, self.running = quiet, [], {}, 0, None
        self.rewrites = sys.stderr.isatty()

    def plan(self, names):
        self.names += names

    def left(self):  # [s]; None: nothing has been timed yet
        known = {name: statistics.fmean(times) for name, times in self.times.items()}
        if not known:
            return None
        return sum(known.get(name, statistics.fmean(known.values())) for name in self.names[self.done:])

    def begin(self, name, label):
        self.running = name, time.monotonic()
        if self.quiet:
            return
        left = self.left()
        line = "%d/%d %s%s" % (self.done + 1, len(self.names), label, "" if left is None else ", about %s left" % short_time(left))
        sys.stderr.write("\r\x1b[K" + line if self.rewrites else line + "\n")
        sys.stderr.flush()

    def end(self):
        name, begun = self.running
        self.times.setdefault(name, []).append(time.monotonic() - begun)
        self.done += 1

    def skip(self, count):
        """The next `count` processes will not run."""
        del self.names[self.done:self.done + count]

    def clear(self):
        if self.rewrites and not self.quiet:
            sys.stderr.write("\r\x1b[K")


def short_time(seconds):
    return "%d:%02d" % divmod(round(seconds), 60)


def run_pairs(comparison, count, progress):
    """The rows, in the order of zerolab's."""
    rows = {}
    for pair in range(count):
        found = []
        for side, run in (("zerolab", comparison.ours), (comparison.baseline, comparison.theirs)):
            progress.begin((comparison.name, side), "%s: %s, pair %d of %d" % (comparison.name, side, pair + 1, count))
            found.append(run())
            progress.end()
        for what in (what for what in found[0] if what in found[1]):
            row = rows.setdefault(what, Row(what, comparison.baseline, comparison.unit))
            row.ours.append(found[0][what])
            row.theirs.append(found[1][what])
    return list(rows.values())


def shown(values, unit):
    """Median [min–max], in a unit that suits the median."""
    middle = statistics.median(values)
    if unit == "s":
        factor, name = (1, "s") if middle >= 1 else (1e3, "ms") if middle >= 1e-3 else (1e6, "µs")
    elif unit == "B":
        factor, name = 2.0 ** -20, "MiB"
    else:
        factor, name = 1, ""
    number = lambda value: "%.4g" % (factor * value) if abs(factor * value) < 1e4 else "%.0f" % (factor * value)
    return "%s%s [%s–%s]" % (number(middle), " " + name if name else "", number(min(values)), number(max(values)))


def table(rows):
    cells = [["what", "baseline", "zerolab", "baseline", "baseline / zerolab"]]
    for row in rows:
        cells.append([row.what, row.baseline, shown(row.ours, row.unit), shown(row.theirs, row.unit),
                      "× " + shown([round(ratio, 3) for ratio in row.ratios()], "")])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells) + "\n"

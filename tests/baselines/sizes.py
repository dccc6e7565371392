"""The sizes of the compared models, for all programs, and how numbers are shown."""
import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    window: int   # T, tokens of a sequence; also the number of positions
    batch: int    # B, sequences of a rank's micro-batch
    vocab: int
    steps: int    # timed steps of a process
    warm_up: int  # steps before them

    @property
    def tokens(self):  # [n] per step of one rank
        return self.batch * self.window

    def flags(self):
        """zerolab's flags for this size."""
        return ["--n-layer", self.layers, "--n-head", self.heads, "--n-embd", self.width,
                "--block-size", self.window, "--vocab-size", self.vocab]


# So small that its process takes as much memory as the program without a model.
BARE = Size(layers=1, heads=1, width=16, window=16, batch=1, vocab=256, steps=1, warm_up=0)

SIZES = {
    "S": Size(layers=4, heads=4, width=128, window=128, batch=8, vocab=256, steps=30, warm_up=5),
    "M": Size(layers=6, heads=6, width=384, window=256, batch=4, vocab=256, steps=10, warm_up=3),
    "gpt2": Size(layers=12, heads=12, width=768, window=256, batch=2, vocab=50257, steps=3, warm_up=2),
}


def shown(values, unit):
    """Median [min–max], in a unit that suits the median."""
    middle = statistics.median(values)
    factor, name = {"s": (1, "s") if middle >= 1 else (1e3, "ms") if middle >= 1e-3 else (1e6, "µs"),
                    "B": (2.0 ** -20, "MiB")}.get(unit, (1, ""))
    number = lambda value: "%.4g" % (factor * value) if abs(factor * value) < 1e4 else "%.0f" % (factor * value)
    return "%s%s [%s–%s]" % (number(middle), " " + name if name else "", number(min(values)), number(max(values)))

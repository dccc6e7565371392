"""The sizes of the compared models, for all programs."""
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

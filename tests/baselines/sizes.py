"""The models that are compared. All programs read their sizes here."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    window: int   # tokens; there are as many positions
    batch: int    # windows of a micro-batch, of each rank
    vocab: int
    steps: int    # that a process times
    warm_up: int  # before them

    @property
    def tokens(self):  # [n] of a step of one rank
        return self.batch * self.window

    def flags(self):
        """What zerolab must be told."""
        return ["--n-layer", self.layers, "--n-head", self.heads, "--n-embd", self.width,
                "--block-size", self.window, "--vocab-size", self.vocab]


# Hardly there: what its process takes is what the program takes without a model.
BARE = Size(layers=1, heads=1, width=16, window=16, batch=1, vocab=256, steps=1, warm_up=0)

SIZES = {
    "S": Size(layers=4, heads=4, width=128, window=128, batch=8, vocab=256, steps=30, warm_up=5),
    "M": Size(layers=6, heads=6, width=384, window=256, batch=4, vocab=256, steps=10, warm_up=3),
    "gpt2": Size(layers=12, heads=12, width=768, window=256, batch=2, vocab=50257, steps=3, warm_up=2),
}

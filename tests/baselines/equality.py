"""Checks that all programs train the same model: from the same weights, on the same tokens, losses must be equal."""
import json

from programs import run, run_silent

STEPS = 5
# Relative, per loss. In S, another order of fp32 sums changes the losses by 1e-7. The exact GELU changes them by 1e-5, a
# weight decay of 0.01 by 3e-5, beta2 0.99 by 7e-5, AdamW's eps 1e-6 by 9e-5, the norms' eps 1e-6 by 1e-4: S detects these.
# M is less sensitive: at this learning rate its loss jumps to 9 and back, and rounding grows to 3e-5.
TOLERANCE = {"S": 2e-6, "M": 1e-4, "gpt2": 1e-4}
MOVES = 1e-2  # relative, the least change of the loss per step: without learning, equal losses prove little


class Equality:
    def __init__(self, setting, zerolab, torch, llmc):
        self.setting, self.zerolab, self.torch, self.llmc = setting, zerolab, torch, llmc

    def tokens(self):
        path = self.setting.folder / "tokens.bin"
        if not path.exists():
            run_silent([self.setting.zerolab, "data", "synth", path, "--tokens", 50000], self.setting.limit)
        return path

    def ours(self, model, start, ranks, stage):
        folder = self.setting.folder / ("%s-%s-%d" % (model, stage, ranks))
        self.zerolab.trained(model, folder, STEPS, ranks, ["--init-from", start, "--data", self.tokens(), "--stage", stage])
        with open(folder / "metrics.jsonl") as file:
            return [json.loads(line)["loss"] for line in file]

    def theirs(self, model, start, mode, attention):
        command = self.torch.step_command(model, mode, attention, "plain", STEPS, 0,
                                          ["--weights", start, "--tokens", self.tokens()])
        return run(command, self.setting.limit).json["losses"]

    def of(self, model, modes):
        """Groups of [(what, losses)], zerolab's first: one rank and its baselines, then each mode with 2 ranks."""
        start = self.zerolab.start(model)
        one = [("zerolab", self.ours(model, start, 1, "ddp"))]
        one += [("%s, %s attention" % (self.torch.name, attention), self.theirs(model, start, "plain", attention))
                for attention in self.torch.attentions()]
        if self.llmc:
            checkpoint = self.zerolab.export_for_llmc(model)
            one.append((self.llmc.name, self.llmc.step(model, checkpoint, (STEPS, 0), [self.tokens()])["losses"]))
        groups = [one]
        for mode, stage in modes:
            attention = self.torch.attentions()[0]
            groups.append([("zerolab %s, 2 ranks" % stage, self.ours(model, start, 2, stage)),
                           ("%s %s, 2 processes" % (self.torch.name, mode), self.theirs(model, start, mode, attention))])
        return groups


def difference(ours, theirs):
    """The largest relative difference."""
    return max(abs(a - b) / abs(a) for a, b in zip(ours, theirs))


def check(equality, models, modes):
    """Prints the losses of all programs. Returns the exit code."""
    equal = True
    for model in models:
        for group in equality.of(model, modes):
            reference = group[0][1]
            for what, losses in group:
                off = difference(reference, losses)
                same = len(losses) == len(reference) and off <= TOLERANCE[model]
                equal = equal and same
                verdict = "" if losses is reference else "off by %.1e%s" % (off, "" if same else "  DIFFERS")
                print(("%-5s %-38s %s  %s" % (model, what, " ".join("%.6f" % loss for loss in losses), verdict)).rstrip())
            if difference(reference[:-1], reference[1:]) <= MOVES:
                equal = False
                print("%-5s the losses hardly change, so they prove nothing  FAILED" % model)
    print("losses of %d steps are equal" % STEPS if equal else "CHECK FAILED")
    return 0 if equal else 1

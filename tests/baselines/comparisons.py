"""What can be compared: the pairs of programs behind each word."""
from pairs import Comparison
from process import ProgramError
from programs import Llmc, Torch, Zerolab
from sizes import SIZES

WHAT = {
    "S": "a step of 4 layers, width 128, beside torch",
    "M": "a step of 6 layers, width 384, beside torch",
    "gpt2": "a step of GPT-2 124M with 2 windows of 256 tokens, beside torch; takes 4 GB and long",
    "ddp": "M on 2 ranks, beside torch's DistributedDataParallel on gloo, 2 processes",
    "fsdp2": "M on 2 ranks under zero3, beside torch's fully_shard on gloo, 2 processes",
    "no-comm": "M in 2 processes that know nothing of each other, in both: what ddp and fsdp2 are measured against",
    "gloo": "all_reduce, all_gather, reduce_scatter of 1, 16 and 64 MiB between 2 ranks, beside gloo",
    "llmc": "a step of S and of M, beside llm.c's train_gpt2.c",
    "memory": "M's step at its peak, beside torch's without its libraries",
}
SIZES_OF_CALLS = [1 << 20, 16 << 20, 64 << 20]  # [B]


class Peers:
    """The programs, found when they are needed first."""

    def __init__(self, setting):
        self.setting = setting
        self.zerolab = Zerolab(setting)
        self._torch = self._llmc = None

    def torch(self):
        if self._torch is None:
            try:
                self._torch = Torch(self.setting)
            except ProgramError as error:
                raise ProgramError(
                    "%s has no torch that runs. `pip install torch` into a virtual environment and name its bin/python\n"
                    "with --python, or `apt install python3-torch libopenblas0` and --python /usr/bin/python3. It said:\n%s"
                    % (self.setting.python, error)) from error
            if self._torch.slow_library():
                raise ProgramError("%s multiplies matrices with %s, the reference BLAS: nothing to be compared with. "
                                   "`apt install libopenblas0`" % (self._torch.name, self._torch.matrices()))
        return self._torch

    def found_torch(self):
        """None if nothing has needed it."""
        return self._torch

    def llmc(self):
        """None without --llmc."""
        if self._llmc is None and self.setting.llmc:
            self._llmc = Llmc(self.setting)
        return self._llmc


class Comparisons:
    def __init__(self, setting, peers, progress, notes):
        self.setting, self.peers, self.progress, self.notes = setting, peers, progress, notes
        self.planned_choices = set()

    def plan(self, words, pairs):
        """Tells progress what will run, in this order."""
        for what in words:
            model = what if what in SIZES else "M" if what in ("ddp", "fsdp2", "no-comm") else None
            if model and model not in self.planned_choices:
                self.planned_choices.add(model)
                self.progress.plan([("choice", model)] * self.peers.torch().trials())
            for name in (["llmc S", "llmc M"] if what == "llmc" else [what]):
                peer = "llm.c" if what == "llmc" else "gloo" if what == "gloo" else self.peers.torch().name
                self.progress.plan([(name, "zerolab"), (name, peer)] * pairs)

    def of(self, what):
        """Functions that make the comparisons of a word; they may run a peer to find out how it is fastest."""
        if what in SIZES:
            return [lambda: self.step(what)]
        if what == "llmc":
            return [lambda: self.llmc("S"), lambda: self.llmc("M")]
        if what in ("ddp", "fsdp2"):
            return [lambda: self.together(what, "ddp" if what == "ddp" else "zero3")]
        return [{"no-comm": self.apart, "gloo": self.gloo, "memory": self.memory}[what]]

    def tried(self, model):
        """torch, when it is known how it is fastest."""
        torch, begun = self.peers.torch(), []

        def report(label):
            if begun:
                self.progress.end()
            begun.append(label)
            self.progress.begin(("choice", model), label)

        torch.choose(model, report)
        if begun:
            self.progress.end()
        return torch

    def step(self, model):
        torch, row = self.tried(model), "%s, a step" % model
        return Comparison(model, torch.name, "s", lambda: {row: self.peers.zerolab.seconds(model)},
                          lambda: {row: torch.step(model)["seconds_per_step"]["median"]})

    def together(self, mode, stage):
        if mode == "fsdp2" and not self.peers.torch().about["fsdp2"]:
            raise ProgramError("%s has no fully_shard (FSDP2); 2.6 is the first that has" % self.peers.torch().name)
        torch, row = self.tried("M"), "M, %s beside %s, 2 ranks" % (stage, mode)
        return Comparison(mode, torch.name, "s", lambda: {row: self.peers.zerolab.seconds("M", stage, 2)},
                          lambda: {row: torch.step("M", mode)["seconds_per_step"]["median"]})

    def apart(self):
        torch, row = self.tried("M"), "M, 2 processes, no communication"
        return Comparison("no-comm", torch.name, "s", lambda: {row: self.peers.zerolab.seconds_apart("M", 2)},
                          lambda: {row: torch.step("M", "no-comm")["seconds_per_step"]["median"]})

    def gloo(self):
        torch = self.peers.torch()
        named = lambda found: {"%s, %d MiB" % (kind, size >> 20): seconds for (kind, size), seconds in found.items()}

        def theirs():
            found, missing = torch.collectives(SIZES_OF_CALLS)
            for kind, reason in missing.items():
                note = "%s's gloo has no %s (%s)" % (torch.name, kind, reason)
                if note not in self.notes:
                    self.notes.append(note)
            return named(found)

        return Comparison("gloo", "gloo", "s", lambda: named(self.peers.zerolab.collectives(SIZES_OF_CALLS)), theirs)

    def llmc(self, model):
        llmc, row = self.peers.llmc(), "%s, a step" % model
        checkpoint = self.peers.zerolab.export_for_llmc(model)
        return Comparison("llmc " + model, llmc.name, "s", lambda: {row: self.peers.zerolab.seconds(model)},
                          lambda: {row: llmc.step(model, checkpoint)["seconds_per_step"]["median"]})

    def memory(self):
        torch = self.peers.torch()
        net_of_both, ledger = "M, both net of libraries", "M, ledger beside net of libraries"
        process, gross = "M, process beside net of libraries", "M, process beside process"

        def ours():
            peak = self.peers.zerolab.memory("M")
            net = {net_of_both: peak["net"]} if "net" in peak else {}
            return {**net, ledger: peak["ledger"], process: peak["process"], gross: peak["process"]}

        def theirs():
            found = torch.step("M", choice=(torch.attentions()[0], "plain"))  # what takes the least memory
            net = found["peak_rss_bytes"] - found["libraries_bytes"]
            return {net_of_both: net, ledger: net, process: net, gross: found["peak_rss_bytes"]}

        return Comparison("memory", torch.name, "B", ours, theirs)

    def ways(self):
        """How torch was run, as a note."""
        torch = self.peers.found_torch()
        if not torch:
            return []
        note = "%s, matrices by %s, AdamW %s" % (torch.name, torch.matrices(), torch.about["update"])
        ways = ["%s %s attention, %s memory" % (model, *choice) for model, choice in torch.choices.items()]
        return [note + ("; fastest here: " + "; ".join(ways) if ways else "")]

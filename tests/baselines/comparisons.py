"""The comparisons: which pair of programs each word stands for."""
from pairs import Comparison
from process import ProgramError
from programs import Llmc, Torch, Zerolab
from sizes import SIZES

WHAT = {
    "S": "a step of 4 layers, width 128; baseline: torch",
    "M": "a step of 6 layers, width 384; baseline: torch",
    "gpt2": "a step of GPT-2 124M on 2 sequences of 256 tokens; baseline: torch; slow, needs 4 GB",
    "threads": "M in one rank on 2 threads; baseline: torch on 2 threads",
    "ddp": "M on 2 ranks; baseline: torch's DistributedDataParallel on gloo, 2 processes",
    "fsdp2": "M on 2 ranks under zero3; baseline: torch's fully_shard on gloo, 2 processes",
    "no-comm": "M in 2 independent processes, in both programs: the reference for ddp and fsdp2",
    "gloo": "all_reduce, all_gather, reduce_scatter of 1, 16 and 64 MiB between 2 ranks; baseline: gloo",
    "llmc": "a step of S and of M; baseline: llm.c's train_gpt2.c",
    "memory": "the peak of M's step; baseline: torch's peak without its libraries",
}
SIZES_OF_CALLS = [1 << 20, 16 << 20, 64 << 20]  # [B]


class Programs:
    """zerolab and the baselines. Each is looked for when it is first needed."""

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
                    "%s has no working torch. `pip install torch` into a virtual environment and name its bin/python\n"
                    "with --python, or `apt install python3-torch libopenblas0` and --python /usr/bin/python3. The error was:\n%s"
                    % (self.setting.python, error)) from error
            if self._torch.slow_library():
                raise ProgramError("%s multiplies matrices with %s, the reference BLAS, which is too slow to compare with. "
                                   "`apt install libopenblas0`" % (self._torch.name, self._torch.matrices()))
        return self._torch

    def found_torch(self):
        """None if no comparison needed it."""
        return self._torch

    def llmc(self):
        """None without --llmc."""
        if self._llmc is None and self.setting.llmc:
            self._llmc = Llmc(self.setting)
        return self._llmc


class Comparisons:
    def __init__(self, setting, programs, progress, notes):
        self.setting, self.programs, self.progress, self.notes = setting, programs, progress, notes
        self.planned_choices = set()

    def plan(self, words, pairs):
        """Gives progress the list of processes that will run, in order."""
        for what in words:
            model = what if what in SIZES else "M" if what in ("threads", "ddp", "fsdp2", "no-comm") else None
            if model and model not in self.planned_choices:
                self.planned_choices.add(model)
                self.progress.plan([("choice", model)] * self.programs.torch().trials())
            for name in (["llmc S", "llmc M"] if what == "llmc" else [what]):
                baseline = "llm.c" if what == "llmc" else "gloo" if what == "gloo" else self.programs.torch().name
                self.progress.plan([(name, "zerolab"), (name, baseline)] * pairs)

    def of(self, what):
        """Functions that make the comparisons of a word. They may run a baseline to find its fastest way."""
        if what in SIZES:
            return [lambda: self.step(what)]
        if what == "llmc":
            return [lambda: self.llmc("S"), lambda: self.llmc("M")]
        if what in ("ddp", "fsdp2"):
            return [lambda: self.together(what, "ddp" if what == "ddp" else "zero3")]
        return [{"no-comm": self.apart, "gloo": self.gloo, "memory": self.memory,
                 "threads": self.threads}[what]]

    def tried(self, model):
        """torch, after its fastest way has been found."""
        torch, begun = self.programs.torch(), []

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
        return Comparison(model, torch.name, "s", lambda: {row: self.programs.zerolab.seconds(model)},
                          lambda: {row: torch.step(model)["seconds_per_step"]["median"]})

    def threads(self):
        torch, row = self.tried("M"), "M, one rank on 2 threads"
        return Comparison("threads", torch.name, "s", lambda: {row: self.programs.zerolab.seconds("M", threads=2)},
                          lambda: {row: torch.step("M", threads=2)["seconds_per_step"]["median"]})

    def together(self, mode, stage):
        if mode == "fsdp2" and not self.programs.torch().about["fsdp2"]:
            raise ProgramError("%s has no fully_shard (FSDP2), which came with 2.6" % self.programs.torch().name)
        torch, row = self.tried("M"), "M, %s beside %s, 2 ranks" % (stage, mode)
        return Comparison(mode, torch.name, "s", lambda: {row: self.programs.zerolab.seconds("M", stage, 2)},
                          lambda: {row: torch.step("M", mode)["seconds_per_step"]["median"]})

    def apart(self):
        torch, row = self.tried("M"), "M, 2 processes, no communication"
        return Comparison("no-comm", torch.name, "s", lambda: {row: self.programs.zerolab.seconds_apart("M", 2)},
                          lambda: {row: torch.step("M", "no-comm")["seconds_per_step"]["median"]})

    def gloo(self):
        torch = self.programs.torch()
        named = lambda found: {"%s, %d MiB" % (kind, size >> 20): seconds for (kind, size), seconds in found.items()}

        def theirs():
            found, missing = torch.collectives(SIZES_OF_CALLS)
            for kind, reason in missing.items():
                note = "%s's gloo has no %s (%s)" % (torch.name, kind, reason)
                if note not in self.notes:
                    self.notes.append(note)
            return named(found)

        return Comparison("gloo", "gloo", "s", lambda: named(self.programs.zerolab.collectives(SIZES_OF_CALLS)), theirs)

    def llmc(self, model):
        llmc, row = self.programs.llmc(), "%s, a step" % model
        checkpoint = self.programs.zerolab.export_for_llmc(model)
        return Comparison("llmc " + model, llmc.name, "s", lambda: {row: self.programs.zerolab.seconds(model)},
                          lambda: {row: llmc.step(model, checkpoint)["seconds_per_step"]["median"]})

    def memory(self):
        torch = self.programs.torch()
        net_of_both, ledger = "M, both net of libraries", "M, ledger beside net of libraries"
        process, gross = "M, process beside net of libraries", "M, process beside process"

        def ours():
            peak = self.programs.zerolab.memory("M")
            net = {net_of_both: peak["net"]} if "net" in peak else {}
            return {**net, ledger: peak["ledger"], process: peak["process"], gross: peak["process"]}

        def theirs():
            found = torch.step("M", choice=(torch.attentions()[0], "plain"))  # these take the least memory
            net = found["peak_rss_bytes"] - found["libraries_bytes"]
            return {net_of_both: net, ledger: net, process: net, gross: found["peak_rss_bytes"]}

        return Comparison("memory", torch.name, "B", ours, theirs)

    def ways(self):
        """A note: how torch ran."""
        torch = self.programs.found_torch()
        if not torch:
            return []
        note = "%s, matrices by %s, AdamW %s" % (torch.name, torch.matrices(), torch.about["update"])
        ways = ["%s %s attention, %s memory" % (model, *choice) for model, choice in torch.choices.items()]
        return [note + ("; fastest here: " + "; ".join(ways) if ways else "")]

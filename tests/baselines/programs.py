"""How zerolab and the baselines are run, and which numbers are taken from their output."""
import os
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from process import Command, ProgramError, run, run_together
from sizes import SIZES

HERE = Path(__file__).resolve().parent
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}

# What glibc does with memory that torch frees. By default it returns large blocks to the system, which must clear them again
# in the next step. "kept" keeps them; "huge" also asks for huge pages.
KEPT = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=268435456"
MALLOC = {
    "plain": {},
    "kept": {"GLIBC_TUNABLES": KEPT},
    "huge": {"GLIBC_TUNABLES": KEPT + ":glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"},
}


@dataclass(frozen=True)
class Setting:
    """How the programs are run."""
    zerolab: Path
    python: str
    llmc: Path     # a checkout, or None
    folder: Path   # for temporary files
    core: int      # for single processes; None: any
    limit: float   # [s] for each process
    steps: int     # None: the default of each model
    warm_up: int

    def counts(self, size):
        return (size.steps if self.steps is None else self.steps, size.warm_up if self.warm_up is None else self.warm_up)


class Zerolab:
    name = "zerolab"

    def __init__(self, setting):
        self.setting = setting
        text = subprocess.run([setting.zerolab, "bench", "step", "--help"], stdout=subprocess.PIPE, text=True, check=False).stdout
        self.one_round = ["--rounds", 1] if "--rounds" in text else []  # here a pair takes the place of a round

    def step_command(self, model, stage="ddp", ranks=1, core=None, threads=1):
        size = SIZES[model]
        steps, warm_up = self.setting.counts(size)
        return Command([self.setting.zerolab, "bench", "step", "--json", "--quiet", "--device", "cpu", "--stages", stage,
                        "--ranks", ranks, "--steps", steps, "--warm-up", warm_up, *self.one_round, "--micro-batch", size.batch,
                        "--threads", threads, *size.flags()], core=core)

    @staticmethod
    def row(found, stage, ranks):
        for row in found.json["results"]:
            if row["stage"] == stage and row["ranks"] == ranks and "seconds_per_step" in row:
                return row
        raise ProgramError("zerolab bench step measured no %s on %d ranks" % (stage, ranks))

    def seconds(self, model, stage="ddp", ranks=1, threads=1):
        core = self.setting.core if ranks * threads == 1 else None
        found = run(self.step_command(model, stage, ranks, core, threads), self.setting.limit)
        return self.row(found, stage, ranks)["seconds_per_step"]["median"]

    def seconds_apart(self, model, ranks):
        """`ranks` independent processes at the same time."""
        found = run_together([self.step_command(model)] * ranks, self.setting.limit)
        return statistics.fmean(self.row(one, "ddp", 1)["seconds_per_step"]["median"] for one in found)

    def memory(self, model):
        """[B] at the peak, by the way of counting."""
        found = run(self.step_command(model, core=self.setting.core), self.setting.limit)
        row = self.row(found, "ddp", 1)
        peaks = {"process": found.peak_rss, "ledger": max(row["peak_total_bytes"])}
        if row.get("peak_resident_bytes"):  # without what was resident before the model: code and libraries
            peaks["net"] = row["peak_resident_bytes"] - row["resident_bytes_before"]
        return peaks

    def collectives(self, sizes, ranks=2):
        """(collective, [B]) -> [s]"""
        command = Command([self.setting.zerolab, "bench", "comm", "--json", "--quiet", "--device", "cpu", "--ranks", ranks,
                           "--collective", "all_reduce,all_gather,reduce_scatter", "-b", min(sizes), "-e", max(sizes), "-f", 4])
        return {(row["collective"], row["bytes"]): row["seconds"]["median"]
                for row in run(command, self.setting.limit).json["results"] if row["bytes"] in sizes}

    def export_for_llmc(self, model):
        """The weights of start() in llm.c's format."""
        out = self.setting.folder / ("%s.bin" % model)
        if not out.exists():
            run_silent([self.setting.zerolab, "model", "export", self.start(model), out], self.setting.limit)
        return out

    def start(self, model):
        """Weights for all programs to start from: a model after one step."""
        folder = self.setting.folder / ("%s-start" % model)
        if not folder.exists():
            self.trained(model, folder, steps=1)
        return folder / "model.safetensors"

    def trained(self, model, folder, steps, ranks=1, more=()):
        """Trains. Returns the folder with metrics.jsonl and model.safetensors."""
        size = SIZES[model]
        run_silent([self.setting.zerolab, "train", "--quiet", "--device", "cpu", "--steps", steps, "--ranks", ranks, "--sample", 0,
                    "--out", folder, "--set", "train_micro_batch_size_per_gpu=%d" % size.batch, *size.flags(), *more],
                   self.setting.limit)
        return folder


def run_silent(arguments, limit):
    """Runs a command that prints text for people."""
    run(Command(["sh", "-c", 'exec "$@" >&2', "sh", *arguments]), limit)


class Torch:
    def __init__(self, setting):
        self.setting = setting
        self.about = run(Command([setting.python, HERE / "step_torch.py", "--describe"], QUIET), setting.limit).json
        if "version" not in self.about:
            raise ProgramError("%s printed nothing: is it a Python?" % setting.python)
        self.name = "torch " + self.about["version"]
        self.choices = {}  # model -> (attention, malloc)

    def matrices(self):
        """The matrix library's name."""
        library = self.about["matrix_library"]
        return ", ".join(library["loaded"]) or library["built_with"]

    def slow_library(self):
        library = self.about["matrix_library"]
        if any(name.startswith("libblas.so.3.") for name in library["loaded"]):
            return True  # the reference BLAS, though LAPACK may come from a fast one
        fast = ("openblas", "mkl", "blis", "atlas", "accelerate")
        return not any(name in (self.matrices() + library["built_with"]).lower() for name in fast)

    def step_command(self, model, mode, attention, malloc, steps, warm_up, more=()):
        core = self.setting.core if mode == "plain" and "--threads" not in more else None
        return Command([self.setting.python, HERE / "step_torch.py", "--model", model, "--mode", mode, "--attention", attention,
                        "--steps", steps, "--warm-up", warm_up, *more], {**QUIET, **MALLOC[malloc]}, core)

    def step(self, model, mode="plain", choice=None, more=(), threads=1):
        attention, malloc = choice or self.choices[model]
        more = [*more, *(["--threads", threads] if threads > 1 else [])]
        steps, warm_up = self.setting.counts(SIZES[model])
        return run(self.step_command(model, mode, attention, malloc, steps, warm_up, more), self.setting.limit).json

    def attentions(self):
        return ["sdpa", "manual"] if self.about["sdpa"] else ["manual"]

    def choose(self, model, report):
        """Finds the fastest way to run torch here, by the minimum of a few steps: disturbances only add time."""
        if model in self.choices:
            return
        steps, warm_up = self.setting.counts(SIZES[model])

        def least(attention, malloc):
            report("%s: torch's fastest way: %s attention, %s memory" % (model, attention, malloc))
            command = self.step_command(model, "plain", attention, malloc, max(2, steps // 3), warm_up)
            return run(command, self.setting.limit).json["seconds_per_step"]["min"]

        times = {(attention, "plain"): least(attention, "plain") for attention in self.attentions()}
        attention = min(times, key=times.get)[0]
        times.update({(attention, malloc): least(attention, malloc) for malloc in MALLOC if malloc != "plain"})
        self.choices[model] = min(times, key=times.get)

    def trials(self):  # [n] processes that choose() runs
        return len(self.attentions()) + len(MALLOC) - 1

    def collectives(self, sizes):
        """Two dicts: (collective, [B]) -> [s], and missing collective -> reason."""
        command = Command([self.setting.python, HERE / "gloo_collectives.py", "--sizes",
                           ",".join(str(size >> 20) for size in sizes)], QUIET)
        rows = run(command, self.setting.limit).json["results"]
        wrong = [row["collective"] for row in rows if not row.get("right", True)]
        if wrong:
            raise ProgramError("gloo's %s gave wrong values" % wrong[0])
        return ({(row["collective"], row["bytes"]): row["seconds"]["median"] for row in rows if "seconds" in row},
                {row["collective"]: row["missing"] for row in rows if "missing" in row})


class Llmc:
    name = "llm.c"

    def __init__(self, setting):
        self.setting = setting
        self.program = setting.folder / "llmc_step"
        flags = ["-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w"]  # from llm.c's Makefile
        run_silent([os.environ.get("CC", "gcc"), *flags, "-I", setting.llmc, HERE / "llmc" / "step.c", "-lm", "-o", self.program],
                   setting.limit)

    def step(self, model, checkpoint, counts=None, more=()):
        size = SIZES[model]
        steps, warm_up = counts or self.setting.counts(size)
        return run(Command([self.program, checkpoint, size.batch, size.window, steps, warm_up, *more], {"OMP_NUM_THREADS": "1"},
                           self.setting.core), self.setting.limit).json

"""How zerolab and the baselines are run, and which numbers are taken from their output."""
import json
import os
import shlex
import signal
import statistics
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sizes import SIZES

HERE = Path(__file__).resolve().parent
SIZES_OF_CALLS = [1 << 20, 16 << 20, 64 << 20]  # [B]
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}

# What glibc does with memory that torch frees. By default it returns large blocks to the system, which must clear them again
# in the next step. "kept" keeps them; "huge" also asks for huge pages.
KEPT = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=268435456"
MALLOC = {
    "plain": {},
    "kept": {"GLIBC_TUNABLES": KEPT},
    "huge": {"GLIBC_TUNABLES": KEPT + ":glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"},
}


class ProgramError(Exception):
    """A program failed. The text says which one and why."""


@dataclass(frozen=True)
class Command:
    arguments: list
    environment: dict = field(default_factory=dict)  # added to this process's
    core: int = None                                 # the only core that it may use

    def words(self):
        pinned = [] if self.core is None else ["taskset", "-c", self.core]
        return [str(word) for word in pinned + self.arguments]

    def text(self):
        return " ".join(shlex.quote(word) for word in ["%s=%s" % item for item in self.environment.items()] + self.words())


@dataclass(frozen=True)
class Finished:
    json: dict
    peak_rss: int  # [B] of the process


def end(process):
    """With its children, which are in its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def finished(command, process, files, limit):
    _, status, use = os.wait4(process.pid, 0)  # Popen.wait would discard the memory use
    process.returncode = os.waitstatus_to_exitcode(status)
    out, errors = (file.seek(0) or file.read().decode(errors="replace") for file in files)
    if process.returncode != 0:
        said = [line for line in errors.splitlines() if line.strip()][-12:]
        raise ProgramError("exit code %d (-9: more than %d s): %s\n    %s"
                           % (process.returncode, limit, command.text(), "\n    ".join(said)))
    return Finished(json.loads(out) if out.strip() else {}, use.ru_maxrss * 1024)


def run_together(commands, limit):
    """Starts all commands, then waits for all. Returns the results in the same order. `limit` [s]."""
    running = []
    try:
        for command in commands:
            files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
            process = subprocess.Popen(command.words(), stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1],
                                       env={**os.environ, **command.environment}, start_new_session=True)
            timer = threading.Timer(limit, end, [process])
            timer.daemon = True
            timer.start()
            running.append((command, process, files, timer))
        return [finished(command, process, files, limit) for command, process, files, _ in running]
    except OSError as error:
        raise ProgramError("cannot start %s: %s" % (commands[len(running)].words()[0], error.strerror)) from error
    finally:  # also after Ctrl-C: no program keeps running
        for _, process, _, timer in running:
            timer.cancel()
            if process.returncode is None:
                end(process)


def run(command, limit):
    return run_together([command], limit)[0]


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


def row_of_call(row):
    return "%s, %d MiB" % (row["collective"], row["bytes"] >> 20)


class Zerolab:
    name = "zerolab"

    def __init__(self, setting):
        self.setting = setting

    def step_command(self, model, stage="ddp", ranks=1, core=None, threads=1):
        size = SIZES[model]
        steps, warm_up = self.setting.counts(size)
        return Command([self.setting.zerolab, "bench", "step", "--json", "--quiet", "--device", "cpu", "--stages", stage,
                        "--ranks", ranks, "--steps", steps, "--warm-up", warm_up, "--set", "train_micro_batch_size_per_gpu=%d" % size.batch,
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

    def memory(self):
        """{row: [B]} at the peak of M's step."""
        found = run(self.step_command("M", core=self.setting.core), self.setting.limit)
        row = self.row(found, "ddp", 1)
        peaks = {"process": found.peak_rss, "ledger": max(row["peak_total_bytes"])}
        return {"M, peak of the process": peaks["process"],
                **{"M, %s beside net of libraries" % name: peak for name, peak in peaks.items()}}

    def collectives(self, ranks=2):
        """{row: [s]}"""
        command = Command([self.setting.zerolab, "bench", "comm", "--json", "--quiet", "--device", "cpu", "--ranks", ranks,
                           "--collective", "all_reduce,all_gather,reduce_scatter", "-b", min(SIZES_OF_CALLS), "-e", max(SIZES_OF_CALLS),
                           "-f", 4])
        return {row_of_call(row): row["seconds"]["median"]
                for row in run(command, self.setting.limit).json["results"] if row["bytes"] in SIZES_OF_CALLS}

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
        self.name = "torch " + self.about["version"]
        self.choices = {}  # model -> (attention, malloc)
        if self.slow_library():
            raise ProgramError("%s multiplies matrices with %s, the reference BLAS, which is too slow to compare with. "
                               "`apt install libopenblas0`" % (self.name, self.matrices()))

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

    def choose(self, model):
        """Finds the fastest way to run torch here, by the minimum of a few steps: disturbances only add time."""
        if model in self.choices:
            return
        steps, warm_up = self.setting.counts(SIZES[model])

        def least(attention, malloc):
            command = self.step_command(model, "plain", attention, malloc, max(2, steps // 3), warm_up)
            return run(command, self.setting.limit).json["seconds_per_step"]["min"]

        times = {(attention, "plain"): least(attention, "plain") for attention in self.attentions()}
        attention = min(times, key=times.get)[0]
        times.update({(attention, malloc): least(attention, malloc) for malloc in MALLOC if malloc != "plain"})
        self.choices[model] = min(times, key=times.get)

    def way(self):
        """How it ran, for the table."""
        ways = ["%s %s attention, %s memory" % (model, *choice) for model, choice in self.choices.items()]
        return "%s, matrices by %s, AdamW %s; fastest here: %s" % (self.name, self.matrices(), self.about["update"],
                                                                   "; ".join(ways) or "not tried")

    def memory(self):
        found = self.step("M", choice=(self.attentions()[0], "plain"))  # these take the least memory
        net = found["peak_rss_bytes"] - found["libraries_bytes"]
        return {"M, peak of the process": found["peak_rss_bytes"],
                **{"M, %s beside net of libraries" % name: net for name in ("process", "ledger", "net")}}

    def collectives(self):
        """{row: [s]}, without those that this gloo lacks."""
        sizes = ",".join(str(size >> 20) for size in SIZES_OF_CALLS)
        rows = run(Command([self.setting.python, HERE / "gloo_collectives.py", "--sizes", sizes], QUIET), self.setting.limit).json["results"]
        if not all(row.get("right", True) for row in rows):
            raise ProgramError("gloo gave wrong values")
        return {row_of_call(row): row["seconds"]["median"] for row in rows if "seconds" in row}


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

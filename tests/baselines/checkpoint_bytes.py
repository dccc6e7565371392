#!/usr/bin/env python3
"""Measures the checkpoints of other systems: files, bytes and seconds for one training state.

    python checkpoint_bytes.py
    python checkpoint_bytes.py --size gpt2 --ranks 1,2 --systems ddp,fsdp2 --folder /scratch

The state is that of a GPT-2 after one AdamW step in fp32: weights, exp_avg and exp_avg_sq, 12 bytes
per parameter. Ranks are processes on the CPU that communicate through gloo. All ranks take the same
batch. For N = 1, 2, 4 the mean of N equal gradients is exact, so the state does not depend on N.
The column "state's hash" shows this. "files' hash" is over the names and contents of all files.
The column "repeats" counts the files that are the same in all saves of one state by one program.

"save" lasts until every rank has returned from the call. "to disk" adds an fsync of every file.
DCP calls fsync itself; torch.save and DeepSpeed do not.
"""
import argparse
import dataclasses
import hashlib
import json
import os
import queue
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", DS_ACCELERATOR="cpu",
                  CUDA_VISIBLE_DEVICES="")  # all are read when the libraries load
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402

from checkpoint_systems import SYSTEMS  # noqa: E402
from gpt2_torch import Gpt  # noqa: E402
from pairs import shown  # noqa: E402
from sizes import SIZES  # noqa: E402

# zerolab's models of these names. The micro-batch does not matter for a checkpoint.
CHECKPOINT_SIZES = {"small": SIZES["S"],
                    "gpt2": dataclasses.replace(SIZES["gpt2"], window=1024, batch=1)}
STATE_BYTES = 12  # [B] per parameter: weight, exp_avg, exp_avg_sq in fp32


def arguments():
    def words(text):
        return text.split(",")

    def counts(text):
        if not all(word.isdigit() and int(word) > 0 for word in words(text)):
            raise argparse.ArgumentTypeError("'%s' is not a list of numbers of at least 1" % text)
        return [int(word) for word in words(text)]

    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=CHECKPOINT_SIZES, default="small",
                        help="gpt2 needs 2 GB of disk and up to 5 GB of memory per rank")
    parser.add_argument("--ranks", type=counts, default=[1, 2, 4], help="(default 1,2,4)")
    parser.add_argument("--systems", type=words, default=list(SYSTEMS),
                        help="from %s (default all)" % ",".join(SYSTEMS))
    parser.add_argument("--saves", type=int, default=3,
                        help="saves of one state; their seconds are median [min–max] (default 3)")
    parser.add_argument("--folder", help="where to save; each checkpoint is removed afterwards")
    parser.add_argument("--time-limit", type=int, default=900, help="[s] per row (default 900)")
    parser.add_argument("--json", action="store_true", help="also the hash of each file")
    options = parser.parse_args()
    unknown = [name for name in options.systems if name not in SYSTEMS]
    if unknown:
        parser.error("no system '%s'; there are %s" % (unknown[0], ", ".join(SYSTEMS)))
    if options.saves < 2:
        parser.error("--saves must be at least 2: the second shows which files repeat")
    if options.folder and not Path(options.folder).is_dir():
        parser.error("--folder %s is not a folder" % options.folder)
    return options


def files_below(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 24), b""):
            digest.update(block)
    return digest.hexdigest()


def flush(folder):
    """Waits until all files below the folder are on disk."""
    for path in files_below(folder):
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def measure_save(system, folder):
    """Saves into an empty folder, measures, removes the folder. Rank 0 returns the result."""
    first = dist.get_rank() == 0
    if first:
        folder.mkdir()
    dist.barrier()
    begin = time.perf_counter()
    system.save(folder)
    dist.barrier()
    saved = time.perf_counter()
    if not first:
        dist.barrier()  # rank 0 still reads the files
        return None
    flush(folder)
    flushed = time.perf_counter()
    files = {str(path.relative_to(folder)):
             {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
             for path in files_below(folder)}
    shutil.rmtree(folder)
    dist.barrier()
    return {"files": files, "save_seconds": saved - begin, "to_disk_seconds": flushed - begin}


def hash_of_state(system):
    """All ranks take part: each tensor is gathered. Returns the hash over all values in fp32."""
    digest = hashlib.sha256()
    for tensor in system.whole_tensors():
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def rank_body(options, name, rank, folder):
    size = CHECKPOINT_SIZES[options.size]
    torch.manual_seed(1337)  # on all ranks: the same weights and the same batch
    model = Gpt(size, "sdpa")
    tokens = torch.randint(size.vocab, (size.batch, size.window + 1))
    parameters = sum(p.numel() for p in model.parameters())
    system = SYSTEMS[name](model, size.batch)
    system.step(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    state = hash_of_state(system)
    saves = [measure_save(system, folder / "save") for _ in range(options.saves)]
    return {"parameters": parameters, "state_sha256": state, "saves": saves} if rank == 0 else None


def rank_main(options, name, place, folder, results):
    """One process. Libraries print to stdout, which is for the results: the log takes both."""
    rank, ranks = place
    log = os.open(str(folder / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1), os.dup2(log, 2)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method="file://%s/rendezvous" % folder, rank=rank,
                                world_size=ranks)
        found = rank_body(options, name, rank, folder)
        if rank == 0:
            results.put(found)
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        results.put({"error": "%s: %s" % (type(error).__name__, str(error).strip()[:300])})
        sys.exit(1)


def measure(options, name, ranks):
    """The row of one system on `ranks` processes. The row has "error" if a process failed."""
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=options.folder) as folder:
        processes = [spawn.Process(target=rank_main, daemon=True,
                                   args=(options, name, (rank, ranks), Path(folder), results))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        found = first_result(processes, results, options.time_limit)
        if "error" in found:
            found["error"] += end_of_log(Path(folder) / "log")
        for process in processes:
            if "error" in found:
                process.kill()
            process.join()
    row = {"system": name, "ranks": ranks}
    return {**row, **found} if "error" in found else {**row, **summary(found)}


def end_of_log(path):
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "".join("\n    " + line for line in lines[-8:])


def first_result(processes, results, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended = [process.exitcode for process in processes if process.exitcode]
        try:
            return results.get(timeout=0.5)
        except queue.Empty:
            if ended:
                return {"error": "a process ended with exit code %d" % ended[0]}
    return {"error": "still running after %d s; try a larger --time-limit" % limit}


def summary(found):
    saves, last = found["saves"], found["saves"][-1]["files"]
    total = sum(file["bytes"] for file in last.values())
    per_parameter = total / found["parameters"]
    if per_parameter < STATE_BYTES:
        return {"error": "%.2f bytes per parameter cannot hold the state" % per_parameter}
    return {"parameters": found["parameters"], "state_sha256": found["state_sha256"],
            "files": len(last), "bytes": total, "bytes_per_parameter": per_parameter,
            "files_sha256": hash_of_files(last),
            "same_in_each_save": same_files(save["files"] for save in saves),
            "save_seconds": [save["save_seconds"] for save in saves],
            "to_disk_seconds": [save["to_disk_seconds"] for save in saves],
            "each_file": last}


def same_files(sets):
    """The names of the files that every set has with the same content."""
    contents = [{(path, file["sha256"]) for path, file in files.items()} for files in sets]
    return sorted(path for path, _ in set.intersection(*contents))


def hash_of_files(files):
    text = "".join("%s  %s\n" % (file["sha256"], path) for path, file in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def table(rows):
    cells = [["system", "N", "files", "bytes", "B/parameter", "save", "to disk", "state's hash",
              "files' hash", "repeats"]]
    for row in rows:
        cells.append([row["system"], str(row["ranks"]), str(row["files"]), "%d" % row["bytes"],
                      "%.3f" % row["bytes_per_parameter"], shown(row["save_seconds"], "s"),
                      shown(row["to_disk_seconds"], "s"), row["state_sha256"][:8],
                      row["files_sha256"][:8],
                      "%d of %d" % (len(row["same_in_each_save"]), row["files"])])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
             for line in cells]
    return "\n".join(lines) + "\n"


def comparison(rows):
    """For each system, whether the state and the set of files are the same for all N."""
    lines = []
    for name in dict.fromkeys(row["system"] for row in rows):
        own = [row for row in rows if row["system"] == name]
        if len(own) > 1:
            state = len({row["state_sha256"] for row in own}) == 1
            files = len({row["files_sha256"] for row in own}) == 1
            same = same_files(row["each_file"] for row in own)
            lines.append("%s, N = %s: the state %s, the files %s\n"
                         % (name, ", ".join(str(row["ranks"]) for row in own),
                            "is the same" if state else "differs",
                            "are the same" if files else "differ; the same are: %s"
                            % (", ".join(same) or "none")))
    if len(rows) > 1 and len({row["state_sha256"] for row in rows}) == 1:
        lines.append("The state is the same in all rows.\n")
    return "".join(lines)


def main():
    options = arguments()
    rows = []
    for name in options.systems:
        for ranks in options.ranks:
            sys.stderr.write("%s, N = %d\n" % (name, ranks))
            rows.append(measure(options, name, ranks))
    good, bad = [r for r in rows if "error" not in r], [r for r in rows if "error" in r]
    if options.json:
        print(json.dumps({"size": options.size, "torch": torch.__version__, "results": rows}))
    elif good:
        print("size %s, torch %s\n%s%s"
              % (options.size, torch.__version__, table(good), comparison(good)), end="")
    for row in bad:
        sys.stderr.write("failed: %(system)s, N = %(ranks)d: %(error)s\n" % row)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

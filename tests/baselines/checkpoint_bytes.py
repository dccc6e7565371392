#!/usr/bin/env python3
"""Measures the checkpoints of other systems: files and bytes for one training state.

    python checkpoint_bytes.py
    python checkpoint_bytes.py --size gpt2 --ranks 1,2 --systems ddp,fsdp2 --folder /scratch

The state is that of a GPT-2 after one AdamW step in fp32: weights, exp_avg and exp_avg_sq, 12 bytes
per parameter. Ranks are processes on the CPU that communicate through gloo. All ranks take the same
batch. For N = 1, 2, 4 the mean of N equal gradients is exact, so the state does not depend on N.
The column "state's hash" shows this. "files' hash" is over the names and contents of all files.
"""
import argparse
import dataclasses
import hashlib
import os
import queue
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
from sizes import SIZES  # noqa: E402

# zerolab's models of these names. The micro-batch does not matter for a checkpoint.
CHECKPOINT_SIZES = {"small": SIZES["S"],
                    "gpt2": dataclasses.replace(SIZES["gpt2"], window=1024, batch=1)}
STATE_BYTES = 12  # [B] per parameter: weight, exp_avg, exp_avg_sq in fp32


def arguments():
    words = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=CHECKPOINT_SIZES, default="small",
                        help="gpt2 needs 2 GB of disk and up to 5 GB of memory per rank")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in words(text)], default=[1, 2, 4],
                        help="(default 1,2,4)")
    parser.add_argument("--systems", type=words, default=list(SYSTEMS),
                        help="from %s (default all)" % ",".join(SYSTEMS))
    parser.add_argument("--folder", help="where to save; each checkpoint is removed afterwards")
    parser.add_argument("--time-limit", type=int, default=900, help="[s] per row (default 900)")
    options = parser.parse_args()
    unknown = [name for name in options.systems if name not in SYSTEMS]
    if unknown:
        parser.error("no system '%s'; there are %s" % (unknown[0], ", ".join(SYSTEMS)))
    return options


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 24), b""):
            digest.update(block)
    return digest.hexdigest()


def save(system, folder):
    """Saves into an empty folder. Rank 0 returns {file: (bytes, hash)}."""
    if dist.get_rank() == 0:
        folder.mkdir()
    dist.barrier()
    system.save(folder)
    dist.barrier()
    return {str(path.relative_to(folder)): (path.stat().st_size, sha256_of(path))
            for path in sorted(folder.rglob("*")) if path.is_file() and dist.get_rank() == 0}


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
    files = save(system, folder / "save")
    return {"parameters": parameters, "state": state, "files": files} if rank == 0 else None


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
    return {"system": name, "ranks": ranks, **found}


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


def line_of(row):
    total = sum(size for size, _ in row["files"].values())
    per_parameter = total / row["parameters"]
    if per_parameter < STATE_BYTES:
        raise SystemExit("%s: %.2f bytes per parameter cannot hold the state" % (row["system"], per_parameter))
    files = "".join("%s  %s\n" % (digest, path) for path, (_, digest) in sorted(row["files"].items()))
    return "%-8s %2d %5d %13d %11.3f  %s  %s" % (row["system"], row["ranks"], len(row["files"]), total, per_parameter,
                                                 row["state"][:8], hashlib.sha256(files.encode()).hexdigest()[:8])


def main():
    options = arguments()
    failed = False
    print("size %s, torch %s\nsystem    N files         bytes B/parameter  state's   files' hash" % (options.size, torch.__version__))
    for name in options.systems:
        for ranks in options.ranks:
            row = measure(options, name, ranks)
            failed = failed or "error" in row
            print("%(system)s, N = %(ranks)d failed: %(error)s" % row if "error" in row else line_of(row))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

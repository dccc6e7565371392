#!/usr/bin/env python3
"""Times gloo's collectives between processes on this machine, over loopback, and prints JSON. tests/baselines/compare calls it.

    python gloo_collectives.py --sizes 1,16,64 --ranks 2

It measures as zerolab bench comm does: in place where possible, a barrier before each call, the time of the slowest
rank, the median of --iterations calls. A size is the bytes of the unsharded side, in MiB. Each rank writes its buffer
before each call, outside the timed part, so that its data is in its own core's cache only, as gradients are.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("'%s' is not a number of at least 1" % text)
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,16,64", type=lambda text: [count(word) for word in text.split(",")],
                        help="in MiB (default 1,16,64)")
    parser.add_argument("--ranks", type=count, default=2)
    parser.add_argument("--iterations", type=count, default=20)
    parser.add_argument("--warm-up", type=count, default=5)
    return parser.parse_args()


def in_parts(whole):
    return list(whole.chunk(dist.get_world_size()))


# The ways to make each call, fastest first. Older versions of gloo lack some.
WAYS = {
    "all_reduce": [lambda whole, own: dist.all_reduce(whole)],
    "all_gather": [lambda whole, own: dist.all_gather_into_tensor(whole, own),
                   lambda whole, own: dist.all_gather(in_parts(whole), own)],
    "reduce_scatter": [lambda whole, own: dist.reduce_scatter_tensor(own, whole),
                       lambda whole, own: dist.reduce_scatter(own, in_parts(whole))],
}


def right(kind, call, whole, own):
    """Whether a call gives the right values, on data that differs between ranks and positions."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    n = own.numel()
    values = [((torch.arange(whole.numel()) + r) % 4).float() for r in range(ranks)]
    total = sum(values)
    whole.copy_(values[rank])
    own.copy_(values[rank][rank * n:(rank + 1) * n])
    call(whole, own)
    if kind == "all_reduce":
        return torch.equal(whole, total)
    if kind == "reduce_scatter":
        return torch.equal(own, total[rank * n:(rank + 1) * n])
    return torch.equal(whole, torch.cat([values[r][r * n:(r + 1) * n] for r in range(ranks)]))


def first_that_works(kind, whole, own):
    """A way to make the call, and whether what it gives is right; or None, and why there is no way."""
    reason = None
    for way in WAYS[kind]:
        try:
            return way, right(kind, way, whole, own)
        except (AttributeError, RuntimeError, NotImplementedError, ValueError) as error:
            reason = "%s: %s" % (type(error).__name__, str(error).split("\n")[0])
    return None, reason


def measure(options, kind, mebibytes):
    """A row, with the times of this rank."""
    whole = torch.zeros(mebibytes * (1 << 20) // 4 // options.ranks * options.ranks)
    own = torch.zeros(whole.numel() // options.ranks)
    row = {"collective": kind, "bytes": whole.numel() * 4}
    call, verdict = first_that_works(kind, whole, own)
    if call is None:
        return {**row, "missing": verdict}
    whole.zero_(), own.zero_()
    seconds = []
    for i in range(options.warm_up + options.iterations):
        (own if kind == "all_gather" else whole).fill_(1)
        dist.barrier()
        begin = time.perf_counter()
        call(whole, own)
        if i >= options.warm_up:
            seconds.append(time.perf_counter() - begin)
    return {**row, "right": verdict, "seconds": seconds}


def rank_main(options, rank, folder, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://%s/meet" % folder, rank=rank, world_size=options.ranks)
    rows = [measure(options, kind, size) for kind in WAYS for size in options.sizes]
    everyone = [None] * options.ranks
    dist.all_gather_object(everyone, rows)
    if rank == 0:
        results.put(everyone)
    dist.barrier()
    dist.destroy_process_group()


def joined(rows):
    """One row of all ranks' rows."""
    row = {key: rows[0][key] for key in ("collective", "bytes")}
    missing = [r["missing"] for r in rows if "missing" in r]
    if missing:
        return {**row, "missing": missing[0]}
    slowest = [max(times) for times in zip(*(r["seconds"] for r in rows))]
    return {**row, "right": all(r["right"] for r in rows),
            "seconds": {"median": statistics.median(slowest)}}


def main():
    options = arguments()
    spawn = multiprocessing.get_context("spawn")
    results = spawn.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [spawn.Process(target=rank_main, args=(options, rank, folder, results)) for rank in range(options.ranks)]
        for process in processes:
            process.start()
        while results.empty():
            if any(process.exitcode for process in processes):
                for process in processes:
                    process.terminate()
                sys.exit("gloo_collectives.py: a process ended early; it said why above")
            time.sleep(0.05)
        everyone = results.get()
        for process in processes:
            process.join()
    print(json.dumps({"results": [joined(rows) for rows in zip(*everyone)]}))


if __name__ == "__main__":
    main()

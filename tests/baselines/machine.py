"""What this machine is: the CPU, its caches and vector instructions. A ratio says little without them."""
import os
import platform
from pathlib import Path

CPU = Path("/sys/devices/system/cpu/cpu0")
# The vector instructions that decide how fast matrices are multiplied: x86's and Arm's names in /proc/cpuinfo.
VECTORS = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd", "sve", "sve2", "sme"]


def text_of(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def cpu_info(*names):
    """The value of the first of these keys in /proc/cpuinfo, or an empty string."""
    pairs = [line.split(":", 1) for line in text_of("/proc/cpuinfo").splitlines() if ":" in line]
    found = {key.strip(): value.strip() for key, value in reversed(pairs)}
    return next((found[name] for name in names if name in found), "")


def caches():
    """{"L1d": "32K", "L2": "512K", "L3": "32768K"}: the data caches of core 0."""
    found = {}
    for index in sorted(CPU.glob("cache/index*")):
        kind, level = text_of(index / "type").strip(), text_of(index / "level").strip()
        if kind in ("Data", "Unified"):
            found["L%s%s" % (level, "d" if kind == "Data" else "")] = text_of(index / "size").strip()
    return found


def chosen(path):
    """The word in brackets of "always [madvise] never"."""
    text = text_of(path)
    return text[text.find("[") + 1:text.find("]")] if "[" in text else ""


def describe():
    flags = cpu_info("flags", "Features").split()
    return {"cpu": cpu_info("model name", "CPU part") or platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "caches": caches(), "vectors": [name for name in VECTORS if name in flags],
            "huge_pages": chosen("/sys/kernel/mm/transparent_hugepage/enabled")}


def in_words(machine):
    caches = ", ".join("%s %s" % item for item in machine["caches"].items())
    return "%s, %d cores; caches %s; vectors %s; transparent huge pages %s" % (
        machine["cpu"], machine["cores"], caches or "unknown", " ".join(machine["vectors"]) or "unknown",
        machine["huge_pages"] or "unknown")

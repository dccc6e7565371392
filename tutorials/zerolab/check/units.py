"""Writes the parameters of a model for 'zerolab check traffic --units FILE': name, shape, dtype and unit per line.

    from units import write_units
    write_units(model, "units.txt")      # a unit is what fully_shard was called for, or an item of a ModuleList
"""
from torch import nn


def write_units(model, path):
    modules = dict(model.named_modules())
    sharded = {name for name, m in modules.items() if type(m).__name__.startswith("FSDP") and name}
    items = {name for name, _ in modules.items()
             if isinstance(modules.get(name.rpartition(".")[0]), nn.ModuleList)}
    with open(path, "w") as file:
        for name, p in model.named_parameters():
            inside = [u for u in sharded or items if name.startswith(u + ".")]
            unit = "root" if not inside else max(inside, key=len) if sharded else min(inside, key=len)
            shape = "x".join(str(n) for n in p.shape) or "()"
            print(name, shape, str(p.dtype).removeprefix("torch."), unit, file=file)

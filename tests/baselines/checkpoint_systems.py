"""How other systems train a step and save a checkpoint. checkpoint_bytes.py measures them.

Each class has the same methods. step() trains once. save() writes a checkpoint into a folder; all
ranks call it. whole_tensors() yields weight, exp_avg and exp_avg_sq of each parameter, gathered.
"""
import torch
import torch.distributed as dist

from gpt2_torch import adamw


class Ddp:
    """DistributedDataParallel. Rank 0 saves both state dictionaries with torch.save."""

    def __init__(self, model, batch):
        from torch.nn.parallel import DistributedDataParallel
        self.model = model
        self.replica = DistributedDataParallel(model)
        self.optimizer, _ = adamw(model.parameters(), fused=False)

    def step(self, ids, targets):
        self.replica(ids, targets).backward()
        self.optimizer.step()

    def save(self, folder):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                       folder / "checkpoint.pt")

    def whole_tensors(self):
        for p in self.model.parameters():
            state = self.optimizer.state[p]
            yield from (p, state["exp_avg"], state["exp_avg_sq"])


class Fsdp2:
    """fully_shard of each block and the root. All ranks save with torch.distributed.checkpoint."""

    def __init__(self, model, batch):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.h:
            fully_shard(block, mesh=mesh)
        self.model = fully_shard(model, mesh=mesh)
        self.optimizer, _ = adamw(self.model.parameters(), fused=False)

    def step(self, ids, targets):
        self.model(ids, targets).backward()
        self.optimizer.step()

    def save(self, folder):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=str(folder))

    def whole_tensors(self):
        for p in self.model.parameters():
            state = self.optimizer.state[p]
            for shards in (p, state["exp_avg"], state["exp_avg_sq"]):
                yield shards.full_tensor()


class DeepSpeed:
    """DeepSpeed's engine with ZeRO. Subclasses name the stage. All ranks save."""
    stage = None

    def __init__(self, model, batch):
        import deepspeed
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
        settings = {"train_micro_batch_size_per_gpu": batch, "zero_allow_untested_optimizer": True,
                    "gradient_clipping": 0.0,  # without this line DeepSpeed 0.19 clips at 1.0
                    "zero_optimization": {"stage": self.stage}}
        optimizer, _ = adamw(model.parameters(), fused=False)
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

    def step(self, ids, targets):
        self.engine.backward(self.engine(ids, targets))
        self.engine.step()

    def save(self, folder):
        self.engine.save_checkpoint(str(folder), tag="global_step1")

    def whole_tensors(self):
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
        for p in self.engine.module.parameters():
            yield safe_get_full_fp32_param(p)
            for name in ("exp_avg", "exp_avg_sq"):
                yield safe_get_full_optimizer_state(p, name)


class Zero1(DeepSpeed):
    stage = 1


class Zero2(DeepSpeed):
    stage = 2


class Zero3(DeepSpeed):
    stage = 3


SYSTEMS = {"ddp": Ddp, "fsdp2": Fsdp2, "zero1": Zero1, "zero2": Zero2, "zero3": Zero3}

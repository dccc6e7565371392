"""How other systems train a step and save a checkpoint. checkpoint_bytes.py measures them.

Each class has the same methods. step() trains once. save() writes a checkpoint into a folder; all
ranks call it. whole_tensors() yields weight, exp_avg and exp_avg_sq of each parameter, gathered.
"""
import torch
import torch.distributed as dist

from gpt2_torch import adamw, distribute


class Torch:
    """A model that `mode` distributes as in step_torch.py."""
    mode = None

    def __init__(self, model, batch):
        self.model, self.replica = model, distribute(model, self.mode)
        self.optimizer, _ = adamw(self.replica.parameters(), fused=False)

    def step(self, ids, targets):
        self.replica(ids, targets).backward()
        self.optimizer.step()

    def whole_tensors(self):
        for p in self.model.parameters():
            state = self.optimizer.state[p]
            for tensor in (p, state["exp_avg"], state["exp_avg_sq"]):
                yield tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class Ddp(Torch):
    """Rank 0 saves both state dictionaries with torch.save."""
    mode = "ddp"

    def save(self, folder):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                       folder / "checkpoint.pt")


class Fsdp2(Torch):
    """All ranks save with torch.distributed.checkpoint."""
    mode = "fsdp2"

    def save(self, folder):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model, optimizer = get_state_dict(self.replica, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=str(folder))


class DeepSpeed:
    """DeepSpeed's engine with ZeRO. SYSTEMS has a subclass for each stage. All ranks save."""
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


SYSTEMS = {"ddp": Ddp, "fsdp2": Fsdp2,
           **{"zero%d" % stage: type("Zero%d" % stage, (DeepSpeed,), {"stage": stage}) for stage in (1, 2, 3)}}

"""Run by test_applications.py with Debian's PyTorch: a rank of a group whose backend is rostrum, or weights.

torch_ranks.py group RANK SIZE PORT
torch_ranks.py weights
torch_ranks.py adapters PORT
"""

from __future__ import annotations

import datetime
import json
import sys
import threading
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import rostrum.torch
import torch
import torch.distributed as dist
from rostrum.client import Agent, RostrumError, TimedOut
from rostrum.torch import weights
from rostrum.torch.adapters import Unfit, checkpoint_engine, register_vllm
from rostrum.torch.weights import app_of

WAIT = datetime.timedelta(seconds=60)
LARGE = 1 << 19


def group(rank: int, size: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=WAIT)
    for run in range(2):  # a job that is started again is another group
        dist.init_process_group("rostrum", store=dist.PrefixStore(f"run {run}", store), rank=rank, world_size=size,
                                timeout=WAIT)  # fmt: skip
        own = dist.distributed_c10d._get_default_group()
        assert not own.why_gloo, own.why_gloo
        assert dist.get_backend() == "rostrum" and dist.get_rank() == rank and dist.get_world_size() == size
        for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.complex64):
            right = torch.arange(LARGE * 2).to(dtype) + (0 if dtype == torch.bool else run)
            tensor = right.clone() if rank == 1 else torch.zeros_like(right)
            work = dist.broadcast(tensor, 1, async_op=True)
            assert work.wait() and work.is_completed() and work.is_success()
            assert torch.equal(work.get_future().wait()[0], right) and torch.equal(tensor, right)
        held = torch.zeros(LARGE, 4)
        held[:, 1] = rank  # not in one piece
        dist.broadcast(held[:, 1], 2)
        assert torch.equal(held[:, 1], torch.full((LARGE,), 2.0)) and not held[:, 0].any()
        parameter = torch.nn.Parameter(torch.full((LARGE,), float(rank)))
        dist.broadcast(parameter.data, 1)
        assert (parameter == 1).all()
        objects: list[Any] = [{"large": "x" * (3 << 20)}] if rank == 0 else [None]
        dist.broadcast_object_list(objects, 0)
        assert len(objects[0]["large"]) == 3 << 20
        total = torch.ones(3)
        dist.all_reduce(total)
        assert total.tolist() == [size] * 3
        found: list[Any] = [None] * size
        dist.all_gather_object(found, rank)
        assert found == list(range(size))
        some = dist.new_group([0, 2])
        if rank != 1:
            tensor = torch.full((LARGE,), float(rank))
            dist.broadcast(tensor, 2, group=some)
            assert (tensor == 2).all()
        dist.barrier()
        dist.destroy_process_group()
    late(rank, size, store)
    print("right")


def late(rank: int, size: int, store: Any) -> None:
    """A root that does not come: the others say so in time."""
    dist.init_process_group("rostrum", store=dist.PrefixStore("late", store), rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=1.5))  # fmt: skip
    if rank:
        try:
            dist.broadcast(torch.zeros(LARGE), 0)
        except RuntimeError as error:
            assert "did not come within 1.5 s" in str(error), error
        else:
            raise AssertionError("a broadcast came that nobody sent")
    store.set(f"late/{rank}", "done")
    store.wait([f"late/{other}" for other in range(size)], WAIT)
    dist.destroy_process_group()


def layers(scale: float) -> dict[str, torch.Tensor]:
    return {
        "embedding": torch.arange(1 << 18).float() * scale,
        "half": torch.full((333, 7), scale).half(),
        "scalar": torch.tensor(scale),
        "none": torch.zeros(0, 5),
        "last": torch.arange(1 << 16).to(torch.bfloat16).reshape(256, 256).t(),  # not in one piece
    }


def of_weights() -> None:
    weights.PART = 1 << 19  # so that there are several
    first, second = layers(1.0), layers(2.0)
    seen: list[str] = []
    with rostrum.torch.subscribe("policy") as one, rostrum.torch.subscribe("policy") as other:
        try:
            one.next(wait=0.1)
        except TimedOut:
            pass
        else:
            raise AssertionError("there was a version before it was published")
        taken: list[Any] = []
        reader = threading.Thread(target=lambda: taken.append(one.next(wait=60)))
        reader.start()
        published = rostrum.torch.publish(first, 7, [], name="policy")
        assert published.ok and published.version == 7
        reader.join()
        for name, tensor in taken[0].layers():
            seen.append(name)
            assert torch.equal(tensor, first[name]) and tensor.dtype == first[name].dtype
        assert seen == list(first) == taken[0].names
        same = other.next(wait=60)
        assert same.version == 7 and all(torch.equal(same.state_dict()[name], first[name]) for name in first)
        assert same.digest == taken[0].digest and same.digest.startswith("sha256:")
        held = same.state_dict()["embedding"]
        rostrum.torch.publish(second, 9, [], name="policy", keep=1)
        newest = other.next(wait=60)
        assert newest.version == 9 and torch.equal(newest.state_dict()["half"], second["half"])
        assert newest.digest != same.digest
        assert torch.equal(held, first["embedding"])  # the memory of a version that is gone stays with who has it
        with Agent(app_id=app_of("policy")) as agent:
            assert all(row.data_id >> 16 & 0xFFFFFF == 9 for row in agent.status().objects if row.app == agent.app_id)
        failed = rostrum.torch.publish(first, 10, ["h3", "bad1"], name="policy")  # of which one is away
        assert set(failed.failed) == {"bad1"} and not failed.ok
        assert one.next(wait=60).version == 10
        for wrong in (-1, 1 << 24, "7"):
            refused(lambda wrong=wrong: rostrum.torch.publish(first, wrong, []), "a version is")
        refused(lambda: rostrum.torch.publish({"x": 7}, 1, []), "not a tensor")
        refused(lambda: rostrum.torch.publish({}, 1, []), "none, or too many")
        refused(lambda: rostrum.torch.publish(first, 11, ["bad1"], name="policy"), "reached nobody")
    good = json.dumps({"version": 1, "parts": [8], "tensors": [
        {"name": "x", "dtype": "float32", "shape": [2], "part": 1, "at": 0}]})  # fmt: skip
    weights._parsed(good.encode(), 1)
    for old, new in (("[8]", "[7]"), ("[2]", "[-2]"), ('"part": 1', '"part": 2'), ("float32", "os"), ("{", ""),
                     ('"version": 1', '"version": 2'), ("[2]", '"2"'), ('"at": 0', '"at": 1'), ("[8]", "[]"),
                     ('"x"', "7")):  # fmt: skip
        refused(lambda old=old, new=new: weights._parsed(good.replace(old, new, 1).encode(), 1), "no index")
    print("right")


def refused(call: Any, words: str) -> None:
    try:
        call()
    except RostrumError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"that was taken, and not refused: {words}")


# -- stand-ins for the interfaces that vLLM and checkpoint-engine publish


@dataclass
class WeightTransferInitInfo(ABC):  # noqa: B024
    pass


@dataclass
class WeightTransferUpdateInfo(ABC):  # noqa: B024
    pass


class WeightTransferEngine(ABC):
    """The calls of vLLM's class of that name."""

    update_info_cls: Any

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        self.config, self.device, self.model, self.model_config = config, device, model, "config"

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.update_info_cls(**update_info))

    @abstractmethod
    def init_transfer_engine(self, init_info: Any) -> None: ...

    @abstractmethod
    def start_weight_update(self) -> None: ...

    @abstractmethod
    def finish_weight_update(self) -> None: ...

    @abstractmethod
    def receive_weights(self, update_info: Any) -> None: ...

    @abstractmethod
    def shutdown(self) -> None: ...

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None: ...


class Distributed(ABC):
    """The calls of checkpoint-engine's class of that name."""

    @abstractmethod
    def init_process_group(self, host: str, port: int, rank: int, world_size: int, timeout: Any) -> None: ...

    @abstractmethod
    def destroy_process_group(self, group: Any) -> None: ...

    @abstractmethod
    def is_initialized(self) -> bool: ...

    @abstractmethod
    def all_gather_object(self, object_list: list[Any], obj: Any, group: Any) -> None: ...

    @abstractmethod
    def all_reduce(self, tensor: Any, op: Any, group: Any) -> None: ...

    @abstractmethod
    def broadcast(self, tensor: Any, src: int, group: Any) -> None: ...

    @abstractmethod
    def barrier(self, group: Any) -> None: ...

    @abstractmethod
    def new_group(self, ranks: list[int]) -> Any: ...


def stand_in(name: str, **members: Any) -> None:
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(".".join(parts[:depth])))
    sys.modules[name].__dict__.update(members)


def of_adapters(port: int) -> None:
    for call in (register_vllm, checkpoint_engine):
        try:
            call()
        except Unfit as error:
            assert "install it, or a version that has it" in str(error)
        else:
            raise AssertionError("it is not installed")
    vllm()
    stand_in("checkpoint_engine.distributed.base", Distributed=Distributed)
    engine = checkpoint_engine()
    assert not engine.is_initialized()
    engine.init_process_group("127.0.0.1", port, 0, 1, WAIT)
    tensor, found = torch.ones(LARGE), [None]
    engine.broadcast(tensor, 0, None)
    engine.all_reduce(tensor, dist.ReduceOp.SUM, None)
    engine.all_gather_object(found, 7, None)
    engine.barrier(None)
    assert engine.is_initialized() and found == [7] and dist.get_backend(engine.new_group([0])) == "rostrum"
    engine.destroy_process_group(None)

    class Later(Distributed):
        @abstractmethod
        def scatter(self) -> None: ...

    stand_in("checkpoint_engine.distributed.base", Distributed=Later)
    try:
        checkpoint_engine()
    except Unfit as error:
        assert "wants scatter too" in str(error)
    else:
        raise AssertionError("a version that does not fit was taken")
    print("right")


def vllm() -> None:
    engines: dict[str, Any] = {}
    steps: list[str] = []
    factory = types.SimpleNamespace(register_engine=lambda name, cls: engines.update({name: cls}))
    base = {"WeightTransferEngine": WeightTransferEngine, "WeightTransferInitInfo": WeightTransferInitInfo,
            "WeightTransferUpdateInfo": WeightTransferUpdateInfo}  # fmt: skip
    stand_in("vllm.distributed.weight_transfer.base", **base)
    stand_in("vllm.distributed.weight_transfer.factory", WeightTransferEngineFactory=factory)
    stand_in("vllm.model_executor.model_loader.reload",
             initialize_layerwise_reload=lambda model: steps.append("begin"),
             finalize_layerwise_reload=lambda model, config: steps.append("end"))  # fmt: skip
    register_vllm()
    loaded: dict[str, torch.Tensor] = {}
    model = types.SimpleNamespace(load_weights=lambda rows: loaded.update({name: one.clone() for name, one in rows}))
    engine = engines["rostrum"](None, None, "cpu", model)
    engine.init_transfer_engine(engine.init_info_cls(name="served"))
    state = layers(3.0)
    engine.trainer_send_weights(iter(state.items()), {"version": 3, "receivers": [], "name": "served"})
    engine.start_weight_update()
    engine.update_weights({"version": 3, "wait_s": 60})
    engine.finish_weight_update()
    assert all(torch.equal(loaded[name], state[name]) for name in state) and steps == ["begin", "end"]
    engine.shutdown()


if __name__ == "__main__":
    {"group": group, "weights": of_weights, "adapters": of_adapters}[sys.argv[1]](*(int(one) for one in sys.argv[2:]))

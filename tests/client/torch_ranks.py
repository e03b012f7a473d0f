"""Run by test_applications.py with Debian's PyTorch: a rank of a group whose backend is rostrum, or weights.

torch_ranks.py group RANK SIZE PORT
torch_ranks.py weights
torch_ranks.py adapters
torch_ranks.py engine|sglang RANK SIZE PORT
"""

from __future__ import annotations

import contextlib
import datetime
import inspect
import json
import sys
import threading
import types
from typing import Any

import contracts  # type: ignore[import-not-found]
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
        few = torch.tensor([rank, 1.5], dtype=torch.bfloat16)  # which not every Gloo knows
        work = dist.broadcast(few, 2, async_op=True)
        assert work.wait() and few.tolist() == [2.0, 1.5]
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


# -- adapters, against the interfaces that programs publish (contracts.json), and checkpoint-engine's own


def unfit(call: Any, words: str) -> None:
    try:
        call()
    except Unfit as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"that was taken, and not refused: {words}")


def of_adapters() -> None:
    for call in (register_vllm, checkpoint_engine):
        unfit(call, "install it, or a version that has it")
    for version, modules in contracts.published("vllm").items():
        print("vLLM", version)
        contracts.install(modules)
        vllm(modules, f"served {version}")
    stand_ins = contracts.published("checkpoint_engine")
    for version, modules in stand_ins.items():
        print("checkpoint-engine", version)
        contracts.install(modules or {"checkpoint_engine": {}})
        if not modules:
            unfit(checkpoint_engine, "has no checkpoint_engine.distributed.base")
            continue
        ours = checkpoint_engine()
        fits(type(ours), modules["checkpoint_engine.distributed.base"]["Distributed"])
    rows = dict(stand_ins["0.4.2"]["checkpoint_engine.distributed.base"]["Distributed"])
    for changed, words in (
        ({"scatter": ["abstract", "self"]}, "wants scatter too"),
        ({"init_process_group": ["abstract", "self, host, port"]}, "takes self, host, port"),
    ):
        contracts.install({"checkpoint_engine.distributed.base": {"Distributed": {**rows, **changed}}})
        unfit(checkpoint_engine, words)
    print("right")


def fits(ours: type, recorded: dict[str, list[str]]) -> None:
    """Each method of the interface can be called on ours as the program calls it."""
    for name, (kinds, given) in recorded.items():
        if kinds != "field" and name != "__init__":
            plain = inspect.getattr_static(ours, name)
            assert contracts.accepts(getattr(plain, "__func__", plain), given), f"{name}({given})"


class Model:
    """One that takes layers."""

    def __init__(self) -> None:
        self.loaded: dict[str, torch.Tensor] = {}

    def load_weights(self, rows: Any) -> None:
        self.loaded.update({name: one.clone() for name, one in rows})


def vllm(modules: dict[str, Any], served: str) -> None:
    found = {name: value for module in modules.values() for name, value in module.items()}
    base = sys.modules["vllm.distributed.weight_transfer.base"]
    factories = sys.modules["vllm.distributed.weight_transfer.factory"]
    engines: dict[tuple[str, str], Any] = {}
    for side in ("Engine", "Trainer"):
        if name := next((one for one in found if one == f"WeightTransfer{side}Factory"), None):
            takes = inspect.signature(contracts.function("register_engine", found[name]["register_engine"][1]))

            def register(*given: Any, side: str = side, takes: Any = takes) -> None:
                row = takes.bind(None, *given).arguments
                engines[side, row["name"]] = row["module_path_or_cls"]

            getattr(factories, name).register_engine = register
    steps: list[str] = []
    reload = types.ModuleType("vllm.model_executor.model_loader.reload")
    reload.initialize_layerwise_reload = lambda model: steps.append("begin")  # type: ignore[attr-defined]
    reload.finalize_layerwise_reload = lambda model, config: steps.append("end")  # type: ignore[attr-defined]
    sys.modules[reload.__name__] = reload
    if "disable_mtp_completeness_check" in found:
        check: Any = sys.modules["vllm.model_executor.model_loader.mtp_validation"]
        check.disable_mtp_completeness_check = lambda: contextlib.nullcontext(steps.append("parts"))
    assert engines.get(("Engine", "rostrum")) is None
    made = register_vllm()
    assert engines["Engine", "rostrum"] is made
    fits(made, {name: row for name, row in found["WeightTransferEngine"].items() if "abstract" in row[0]})
    model = Model()
    known = {"model": model, "device": "cpu"}
    takes = [one for one in inspect.signature(base.WeightTransferEngine.__init__).parameters if one != "self"]
    parameters = found["WeightTransferEngine"]["__init__"][1].split(", ")[1:]
    assert takes and {"config", "model"} <= set(parameters)
    engine = made(**{name: known.get(name) for name in parameters})
    engine.model_config = "config"
    state = layers(3.0)
    unready = engine.update_info_cls(version=3)
    try:
        engine.receive_weights(unready, model.load_weights)
    except RuntimeError as error:
        assert "init_transfer_engine was not called" in str(error)
    else:
        raise AssertionError("weights came to an engine that knows nobody")
    if made.trainer_info is None:
        engine.init_transfer_engine(engine.init_info_cls(name=served))
        made.trainer_send_weights(iter(state.items()), {"version": 3, "receivers": [], "name": served})
        update = engine.update_info_cls(version=3, wait_s=60)
        if "start_weight_update" in found["WeightTransferEngine"]:
            engine.start_weight_update()
            engine.receive_weights(update)
            engine.finish_weight_update()
            assert steps == ["begin", "end"]
        else:
            engine.receive_weights(update, model.load_weights)
        assert same(model.loaded, state)
    else:
        trained(made, engine, model, found, base, engines["Trainer", "rostrum"])
        with_parts = ["begin", "parts", "end"] if "disable_mtp_completeness_check" in found else ["begin", "end"]
        assert steps == [*with_parts * 2, "begin"], steps  # the last failed
    engine.shutdown()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in other)


def trained(made: Any, engine: Any, model: Model, found: dict[str, Any], base: Any, trainer: Any) -> None:
    """The trainer's side, whose client is the inference's four calls, each as it is published."""
    fits(trainer, {name: row for name, row in found["TrainerWeightTransferEngine"].items() if "abstract" in row[0]})

    class Client:
        def __getattr__(self, name: str) -> Any:
            takes = inspect.signature(contracts.function(name, found["VLLMWeightSyncClient"][name][1]))

            def call(*given: Any) -> None:
                takes.bind(self, *given)
                if name == "init_weight_transfer_engine":
                    engine.init_transfer_engine(engine.init_info_cls(**given[0]))
                elif name == "update_weights":
                    engine.receive_weights(engine.update_info_cls(**given[0]))
                else:
                    getattr(engine, name)()

            return call

    passes: list[int] = []

    class Source(base.WeightSource):  # type: ignore[misc, name-defined]
        state = layers(3.0)
        metadata = property(lambda self: list(self.state))

        def __iter__(self) -> Any:
            passes.append(1)
            return iter(self.state.items())

        def owned_names(self, rank: int) -> list[str]:
            return list(self.state) if rank < 2 else []

    if "iter_full" in found["WeightSource"]:
        Source.iter_full, Source.__iter__ = Source.__iter__, None

    def side(rank: int) -> Any:
        info = made.trainer_info(receivers=[], rank=rank)
        return trainer.trainer_init(info, client=Client() if rank == 0 else None, source=source)

    base.TrainerInitInfo.is_sender = property(lambda self: self.rank == 0)
    source = Source()
    sender, other = side(0), side(1)
    for scale in (3.0, 4.0):
        source.state = layers(scale)
        sender.send_weights()
        other.send_weights()
        assert same(model.loaded, source.state)
    assert len(passes) == 4
    sender.client.update_weights = lambda info: refuse()
    try:
        sender.send_weights()
    except RuntimeError as error:
        assert "no room" in str(error)
    else:
        raise AssertionError("the workers failed, and the trainer heard nothing of it")


def refuse() -> None:
    raise RuntimeError("no room")


def engine(rank: int, size: int, port: int) -> None:
    """The package itself: what its ParameterServer does for each update, with its own calls."""
    import checkpoint_engine.distributed as theirs  # type: ignore[import-not-found]

    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=WAIT)
    ours = checkpoint_engine()
    assert isinstance(ours, theirs.Distributed) and not theirs.is_initialized()
    fits(type(ours), contracts.published("checkpoint_engine")["0.4.2"]["checkpoint_engine.distributed.base"][
        "Distributed"])  # fmt: skip
    for update in range(2):
        theirs.init_process_group(backend="nccl", world_size=size, rank=rank, timeout=WAIT,
                                  store=dist.PrefixStore(f"prefix-{update}", store))  # fmt: skip
        assert theirs.is_initialized() and dist.get_backend() == "rostrum"
        assert not dist.distributed_c10d._get_default_group().why_gloo
        found: list[Any] = [None] * size
        theirs.all_gather_object(found, rank)
        assert found == list(range(size))
        some = theirs.new_group(list(range(size)))
        for source in range(size):
            buffer = torch.full((4 * LARGE,), source + update if rank == source else 99, dtype=torch.uint8)
            theirs.broadcast(buffer, src=source, group=some)
            assert (buffer == source + update).all()
            code = torch.tensor(rank)
            theirs.all_reduce(code, op=dist.ReduceOp.SUM, group=some)
            assert code == sum(range(size))
        theirs.barrier(group=some)
        theirs.destroy_process_group(some)
        theirs.destroy_process_group()
    print("right")


def sglang(rank: int, size: int, port: int) -> None:
    """As its init_custom_process_group makes a group, beside the program's own, and its workers receive."""
    for version, modules in contracts.published("sglang").items():
        found = {name.rpartition(".")[2]: given for module in modules.values() for name, given in module.items()}
        assert "backend" in found["init_weights_update_group"], version
        assert {"backend", "init_method", "group_name"} <= set(found["init_custom_process_group"].replace("=None", "")
                                                               .split(", ")), version  # fmt: skip
    own = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=WAIT)
    dist.init_process_group("gloo", store=own, rank=0, world_size=1)
    way = next(dist.rendezvous(f"tcp://127.0.0.1:{port}", rank, size, timeout=WAIT))
    store = dist.PrefixStore("weight_update_group", way[0])
    c10d = dist.distributed_c10d
    made = c10d._new_process_group_helper(size, rank, [], dist.Backend("rostrum"), store,
                                          group_name="weight_update_group", pg_options=None, timeout=WAIT)  # fmt: skip
    made = made[0] if isinstance(made, tuple) else made
    c10d._pg_group_ranks[made] = {one: one for one in range(size)}
    assert not made.why_gloo, made.why_gloo
    state = layers(5.0)
    handles, came = [], {}
    for name, right in state.items():
        came[name] = right.contiguous().clone() if rank == 0 else torch.empty(right.shape, dtype=right.dtype)
        handles.append(dist.broadcast(came[name], src=0, group=made, async_op=True))
    for handle in handles:
        handle.wait()
    assert same(came, state)
    dist.barrier(made)
    dist.destroy_process_group(made)
    print("right")


if __name__ == "__main__":
    programs = {"group": group, "weights": of_weights, "adapters": of_adapters, "engine": engine, "sglang": sglang}
    programs[sys.argv[1]](*(int(one) for one in sys.argv[2:]))

"""rostrum in programs that serve and train models, by the interfaces that they publish.

    vLLM               rostrum.torch.adapters.register_vllm()     (its plug-ins call it: vllm.general_plugins)
    SGLang             backend="rostrum" of init_weights_update_group, after import rostrum.torch in its workers
    checkpoint-engine  ParameterServer's Distributed: rostrum.torch.adapters.checkpoint_engine()

Nothing of them is imported before it is asked for. What does not fit says which version was expected.
"""

from __future__ import annotations

import datetime
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .backend import NAME, register
from .weights import WAIT_S, Subscription, publish, subscribe

RELOAD = "vllm.model_executor.model_loader.reload"


class Unfit(ImportError):
    """Another version of the program is installed than this was made for."""


def _module(name: str, program: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unfit(f"{program} has no {name} here ({error}): install it, or a version that has it") from error


def _fits(cls: Any, program: str, *wanted: str) -> None:
    """Raises Unfit: the class has not these methods, or needs others."""
    lacking = [name for name in wanted if not callable(getattr(cls, name, None))]
    needs = sorted(set(getattr(cls, "__abstractmethods__", ())) - set(wanted))
    if lacking or needs:
        words = [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"wants {', '.join(needs)} too"] * bool(needs)
        raise Unfit(f"{program}: {cls.__name__} {' and '.join(words)}: this version does not fit")


# -- vLLM


@dataclass
class InitInfo:
    """What a trainer tells the engine at first: the name of `publish`, and its secret."""

    name: str = "weights"
    secret: str = ""


@dataclass
class UpdateInfo:
    """Which version comes, and who has it if it was not sent here."""

    version: int = 0
    wait_s: float = WAIT_S
    holders: list[str] = field(default_factory=list)


def register_vllm() -> type:
    """Registers the weight transfer engine "rostrum" with vLLM. Returns its class.

    Trainers call its `trainer_send_weights(iterator, {"version": 7, "receivers": ["h3"], "name": ..., "secret": ...})`.

    Raises:
        Unfit: this vLLM has no such interface, or another.
    """
    base = _module("vllm.distributed.weight_transfer.base", "vLLM")
    factory = _module("vllm.distributed.weight_transfer.factory", "vLLM").WeightTransferEngineFactory
    contract = ["init_transfer_engine", "receive_weights", "shutdown", "trainer_send_weights"]
    lifecycle = hasattr(base.WeightTransferEngine, "start_weight_update")
    _fits(base.WeightTransferEngine, "vLLM", *contract,
          *(("start_weight_update", "finish_weight_update") if lifecycle else ()))  # fmt: skip
    init_info = dataclass(type("RostrumInitInfo", (InitInfo, base.WeightTransferInitInfo), {}))
    update_info = dataclass(type("RostrumUpdateInfo", (UpdateInfo, base.WeightTransferUpdateInfo), {}))

    class RostrumWeightTransferEngine(base.WeightTransferEngine):  # type: ignore[name-defined, misc]
        """Weights of `publish`, loaded layer by layer while they come."""

        init_info_cls, update_info_cls = init_info, update_info
        subscription: Subscription | None = None

        def init_transfer_engine(self, init_info: InitInfo) -> None:
            self.shutdown()
            self.subscription = subscribe(init_info.name, secret=init_info.secret)

        def start_weight_update(self) -> None:
            _module(RELOAD, "vLLM").initialize_layerwise_reload(self.model)

        def finish_weight_update(self) -> None:
            _module(RELOAD, "vLLM").finalize_layerwise_reload(self.model, self.model_config)

        def receive_weights(self, update_info: UpdateInfo, load_weights: Any = None) -> None:
            if self.subscription is None:
                raise RuntimeError("rostrum: init_transfer_engine was not called")
            load = load_weights or self.model.load_weights
            came = self.subscription.get(update_info.version, update_info.wait_s, update_info.wait_s,
                                         update_info.holders)  # fmt: skip
            for name, tensor in came.layers():
                load([(name, tensor)])

        def shutdown(self) -> None:
            if self.subscription is not None:
                self.subscription.close()
                self.subscription = None

        @staticmethod
        def trainer_send_weights(iterator: Iterator[tuple[str, torch.Tensor]], trainer_args: Any) -> None:
            given = dict(trainer_args) if isinstance(trainer_args, dict) else vars(trainer_args)
            named = {key: given[key] for key in ("name", "secret", "wait") if key in given}
            publish(dict(iterator), int(given["version"]), list(given["receivers"]), **named)

    factory.register_engine(NAME, RostrumWeightTransferEngine)
    return RostrumWeightTransferEngine


# -- checkpoint-engine


def checkpoint_engine() -> Any:
    """A `Distributed` of checkpoint-engine whose broadcasts go by rostrum.

    Raises:
        Unfit: this checkpoint-engine has another interface.
    """
    base = _module("checkpoint_engine.distributed.base", "checkpoint-engine").Distributed
    calls = ["init_process_group", "destroy_process_group", "is_initialized", "all_gather_object", "all_reduce",
             "broadcast", "barrier"]  # fmt: skip
    _fits(base, "checkpoint-engine", *calls, *(["new_group"] if hasattr(base, "new_group") else []))
    named = list(inspect.signature(base.init_process_group).parameters)[1:]
    if not {"rank", "world_size", "timeout"} <= set(named):
        raise Unfit(f"checkpoint-engine: init_process_group takes {', '.join(named)}: this version does not fit")
    register()

    class RostrumDistributed(base):  # type: ignore[misc, valid-type]
        def init_process_group(self, *given: Any, **more: Any) -> None:
            value = {**dict(zip(named, given, strict=False)), **more}
            timeout = value.get("timeout") or datetime.timedelta(seconds=WAIT_S)
            host, port = (value.get(key, value.get(f"store_{key}")) for key in ("host", "port"))
            store = value.get("store") or dist.TCPStore(
                host, int(port), value["world_size"], value["rank"] == 0, timeout=timeout
            )
            dist.init_process_group(NAME, store=store, rank=value["rank"], world_size=value["world_size"],
                                    timeout=timeout)  # fmt: skip

        def destroy_process_group(self, group: Any = None) -> None:
            dist.destroy_process_group(group)

        def is_initialized(self) -> bool:
            return dist.is_initialized()

        def all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
            dist.all_gather_object(object_list, obj, group)

        def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, **_: Any) -> None:
            dist.all_reduce(tensor, op, group)

        def broadcast(self, tensor: torch.Tensor, src: int = 0, group: Any = None, **_: Any) -> None:
            dist.broadcast(tensor, src, group)

        def barrier(self, group: Any = None, **_: Any) -> None:
            dist.barrier(group)

        def new_group(self, ranks: list[int], **_: Any) -> Any:
            return dist.new_group(ranks, backend=NAME)

    return RostrumDistributed()


__all__ = ["InitInfo", "Unfit", "UpdateInfo", "checkpoint_engine", "register_vllm"]

"""rostrum in programs that serve and train models, by the interfaces that they publish.

    vLLM               rostrum.torch.adapters.register_vllm()     (its plug-ins call it: vllm.general_plugins)
    SGLang             backend="rostrum" of init_weights_update_group, after import rostrum.torch in its workers
    checkpoint-engine  its ParameterServer, after rostrum.torch.adapters.checkpoint_engine()

Nothing of them is imported before it is asked for. What does not fit says which version was expected.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import importlib
import inspect
import secrets
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .backend import NAME, register
from .weights import WAIT_S, Subscription, publish, subscribe

RELOAD = "vllm.model_executor.model_loader.reload"
COMPLETE = "vllm.model_executor.model_loader.mtp_validation"


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


@dataclass
class TrainerInfo:
    """What a trainer's engine is made with (vLLM 0.29 and later): the servers of the inference's workers."""

    receivers: list[str] = field(default_factory=list)
    name: str = ""  # "": one of its own, which it tells the workers, as the secret
    secret: str = ""
    wait_s: float = WAIT_S


def _partial() -> Any:
    """Layers are loaded one by one: a check that each call has all of a model must not be made."""
    try:
        return importlib.import_module(COMPLETE).disable_mtp_completeness_check()
    except (ImportError, AttributeError):  # before vLLM 0.29
        return contextlib.nullcontext()


def register_vllm() -> type:
    """Registers the weight transfer engine "rostrum" with vLLM. Returns its class.

    Trainers make their side by `WeightTransferTrainerFactory.trainer_init` with the `trainer_info` of that class (vLLM
    0.29 and later), else call its `trainer_send_weights(iterator, {"version": 7, "receivers": ["h3"], ...})`.

    Raises:
        Unfit: this vLLM has no such interface, or another.
    """
    base = _module("vllm.distributed.weight_transfer.base", "vLLM")
    factories = _module("vllm.distributed.weight_transfer.factory", "vLLM")
    contract = ["init_transfer_engine", "receive_weights", "shutdown"]
    optional = ["start_weight_update", "finish_weight_update", "trainer_send_weights"]
    has = [name for name in optional if hasattr(base.WeightTransferEngine, name)]
    _fits(base.WeightTransferEngine, "vLLM", *contract, *has)
    init_info = dataclass(type("RostrumInitInfo", (InitInfo, base.WeightTransferInitInfo), {}))
    update_info = dataclass(type("RostrumUpdateInfo", (UpdateInfo, base.WeightTransferUpdateInfo), {}))

    class RostrumWeightTransferEngine(base.WeightTransferEngine):  # type: ignore[name-defined, misc]
        """Weights of `publish`, loaded layer by layer while they come."""

        init_info_cls, update_info_cls = init_info, update_info
        trainer_info: type | None = None  # of the trainer's side, where vLLM has one
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
            with _partial():
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

    if hasattr(base, "TrainerWeightTransferEngine") and hasattr(factories, "WeightTransferTrainerFactory"):
        trainer = _vllm_trainer(base)
        RostrumWeightTransferEngine.trainer_info = trainer.init_info_cls
        factories.WeightTransferTrainerFactory.register_engine(NAME, trainer)
    factories.WeightTransferEngineFactory.register_engine(NAME, RostrumWeightTransferEngine)
    return RostrumWeightTransferEngine


def _vllm_trainer(base: Any) -> Any:
    """The trainer's side, made on every rank of it: rank 0 sends, the others take part in what gathers a tensor."""
    _fits(base.TrainerWeightTransferEngine, "vLLM", "trainer_init", "send_weights")
    takes = inspect.signature(base.TrainerWeightTransferEngine.trainer_init).parameters
    if not {"init_info", "client", "source"} <= set(takes):
        raise Unfit(f"vLLM: trainer_init takes {', '.join(takes)}: this version does not fit")
    told = dataclass(type("RostrumTrainerInfo", (TrainerInfo, base.TrainerInitInfo), {"backend": NAME}))

    class RostrumTrainerEngine(base.TrainerWeightTransferEngine):  # type: ignore[name-defined, misc]
        """Publishes the source's weights while the workers load them."""

        init_info_cls = told
        info = TrainerInfo()
        version = 0

        @classmethod
        def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
            if source is None:
                raise ValueError("rostrum: trainer_init needs the source of the weights")
            if hasattr(source, "owned_names") and init_info.is_sender:
                lacking = len(source.metadata) - len(source.owned_names(init_info.rank))
                if lacking:
                    raise ValueError(f"rostrum: rank {init_info.rank}, which sends, lacks {lacking} of the parameters")
            engine = cls(client=client, source=source, is_sender=init_info.is_sender)
            engine.info = TrainerInfo(list(init_info.receivers), init_info.name or f"vllm-{secrets.token_hex(8)}",
                                      init_info.secret or secrets.token_hex(16), init_info.wait_s)  # fmt: skip
            if engine.is_sender:
                client.init_weight_transfer_engine({"name": engine.info.name, "secret": engine.info.secret})
            return engine

        def send_weights(self) -> None:
            """A version more. Raises what the client or `publish` does."""
            tensors = self.source.iter_full() if hasattr(self.source, "iter_full") else iter(self.source)
            if not self.is_sender:
                for _ in tensors:
                    pass
                return
            state, self.version = dict(tensors), self.version + 1
            self.client.start_weight_update()
            worker = concurrent.futures.ThreadPoolExecutor(1, "rostrum-vllm")
            try:
                update = {"version": self.version, "wait_s": self.info.wait_s}
                loaded = worker.submit(self.client.update_weights, update)
                done = publish(state, self.version, self.info.receivers, name=self.info.name,
                               secret=self.info.secret, wait=self.info.wait_s)  # fmt: skip
                loaded.result()
            finally:
                worker.shutdown(wait=False)
            if done.failed:
                why = "; ".join(f"{one}: {text}" for one, text in done.failed.items())
                warnings.warn(f"rostrum: version {self.version} did not reach {why}", RuntimeWarning, stacklevel=2)
            self.client.finish_weight_update()

    return RostrumTrainerEngine


# -- checkpoint-engine


def checkpoint_engine() -> Any:
    """A `Distributed` of checkpoint-engine (0.4) whose broadcasts go by rostrum; its ParameterServer uses it from then.

    Raises:
        Unfit: this checkpoint-engine has another interface.
    """
    module = _module("checkpoint_engine.distributed.base", "checkpoint-engine")
    base = module.Distributed
    calls = ["init_process_group", "destroy_process_group", "is_initialized", "all_gather_object", "all_reduce",
             "broadcast", "barrier", "new_group"]  # fmt: skip
    _fits(base, "checkpoint-engine", *calls)
    takes = inspect.signature(base.init_process_group).parameters
    if not {"rank", "world_size", "store"} <= set(takes):
        raise Unfit(f"checkpoint-engine: init_process_group takes {', '.join(takes)}: this version does not fit")
    register()

    class RostrumDistributed(base):  # type: ignore[misc, valid-type]
        def init_process_group(self, rank: int, world_size: int, store: Any, **more: Any) -> None:
            """`backend`, which is the device's, is for what does not go by rostrum: Gloo here."""
            timeout = more.get("timeout") or datetime.timedelta(seconds=WAIT_S)
            dist.init_process_group(NAME, store=store, rank=rank, world_size=world_size, timeout=timeout)

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
            return dist.new_group(ranks, backend=NAME)  # what else is given is for another backend

    made = RostrumDistributed()
    if hasattr(module, "_BACKEND_INSTANCE"):  # use_backend() knows the package's own alone
        module._BACKEND_INSTANCE = made
    return made


__all__ = ["InitInfo", "Unfit", "UpdateInfo", "checkpoint_engine", "register_vllm"]

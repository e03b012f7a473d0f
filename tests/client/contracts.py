"""Interfaces that vLLM, SGLang and checkpoint-engine publish, as data, and stand-ins made of it.

contracts.py WHEEL...   reads them out of wheels (nothing of them is imported), into contracts.json beside this file

A class is its members in order, each `[decorators, parameters]`; decorators are of `abstract`, `class`, `static` and
`property`. An annotated field is `field` with `=` if it has a value, `*` if it is for keywords only.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
import zipfile
from abc import ABC, abstractmethod
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("contracts.json")
WANTED = {
    "vllm": {
        "vllm.distributed.weight_transfer.base": [
            "WeightTransferInitInfo", "WeightTransferUpdateInfo", "TrainerInitInfo", "WeightSource",
            "WeightTransferEngine", "VLLMWeightSyncClient", "TrainerWeightTransferEngine",
        ],
        "vllm.distributed.weight_transfer.factory": ["WeightTransferEngineFactory", "WeightTransferTrainerFactory"],
        "vllm.model_executor.model_loader.reload.layerwise": [
            "initialize_layerwise_reload", "finalize_layerwise_reload",
        ],
        "vllm.model_executor.model_loader.mtp_validation": ["disable_mtp_completeness_check"],
    },
    "sglang": {
        "sglang.srt.utils.common": ["init_custom_process_group"],
        "sglang.srt.model_executor.model_runner": ["ModelRunner.init_weights_update_group"],
        "sglang.srt.model_executor.model_runner_components.weight_updater": ["WeightUpdater.init_weights_update_group"],
    },
    "checkpoint_engine": {"checkpoint_engine.distributed.base": ["Distributed"]},
}  # fmt: skip
KINDS = {"abstractmethod": "abstract", "classmethod": "class", "staticmethod": "static", "property": "property",
         "cached_property": "property"}  # fmt: skip


def parameters(function: ast.FunctionDef) -> str:
    """Without annotations; each default is `None`."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    texts = [one.arg for one in plain]
    for at in range(len(plain) - len(given.defaults), len(plain)):
        texts[at] += "=None"
    if given.vararg:
        texts.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        texts.append("*")
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        texts.append(one.arg + ("=None" if default is not None else ""))
    if given.kwarg:
        texts.append(f"**{given.kwarg.arg}")
    return ", ".join(texts)


def members(node: ast.ClassDef) -> dict[str, list[str]]:
    found = {}
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and (one.name == "__init__" or not one.name.startswith("__")):
            names = [name.id for name in one.decorator_list if isinstance(name, ast.Name)]
            kinds = sorted(KINDS[name] for name in names if name in KINDS)
            found[one.name] = [" ".join(kinds), parameters(one)]
        elif isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one.annotation):
            value = ast.unparse(one.value) if one.value else ""
            kind = "*" if "kw_only=True" in value else "=" if value and "default" not in value else ""
            found[ast.unparse(one.target)] = ["field", kind]
    return found


def read(wheel: Path) -> tuple[str, str, dict[str, Any]]:
    """Program, version, and what of WANTED is in it."""
    program, version = wheel.name.split("-")[:2]
    found: dict[str, Any] = {}
    with zipfile.ZipFile(wheel) as files:
        there = set(files.namelist())
        for module, names in WANTED[program].items():
            name = module.replace(".", "/") + ".py"
            if name not in there:
                continue
            tree = ast.parse(files.read(name).decode())
            top = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
            for wanted in names:
                outer, _, inner = wanted.partition(".")
                node = top.get(outer)
                if isinstance(node, ast.ClassDef):
                    rows = members(node)
                    if not inner:
                        found.setdefault(module, {})[wanted] = rows
                    elif inner in rows:
                        found.setdefault(module, {})[wanted] = rows[inner][1]
                elif isinstance(node, ast.FunctionDef):
                    found.setdefault(module, {})[wanted] = parameters(node)
    return program, version, found


def published(program: str) -> dict[str, Any]:
    """By version."""
    value: dict[str, Any] = json.loads(FILE.read_text())[program]
    return value


def function(name: str, parameters: str) -> Any:
    space: dict[str, Any] = {}
    exec(f"def {name}({parameters}): raise AssertionError('{name} was called, and is to be given')", space)
    return space[name]


def keeps(given: str) -> Any:
    """An `__init__` that keeps what it is given."""
    fits = inspect.signature(function("__init__", given))

    def init(self: Any, *values: Any, **named: Any) -> None:
        vars(self).update({**fits.bind(self, *values, **named).arguments})

    return init


def accepts(ours: Any, given: str) -> bool:
    """Whether what is called as recorded can be called so, each parameter given."""
    recorded = inspect.signature(function("recorded", given)).parameters.values()
    values = [None for one in recorded if one.kind is one.POSITIONAL_OR_KEYWORD]
    named = {one.name: None for one in recorded if one.kind is one.KEYWORD_ONLY}
    try:
        inspect.signature(ours).bind(*values, **named)
    except TypeError:
        return False
    return True


def stand_in(name: str, rows: dict[str, list[str]]) -> type:
    """A class with those members: `__init__` keeps what it is given, all else fails until a test says more."""
    body: dict[str, Any] = {}
    fields = []
    for member, (kinds, given) in rows.items():
        if kinds == "field":
            more = {"kw_only": True} if given == "*" else {"default": None} if given == "=" else {}
            fields.append((member, Any, field(**more)))
            continue
        made = keeps(given) if member == "__init__" else function(member, given)
        if "abstract" in kinds:
            made = abstractmethod(made)
        for word, wrap in (("class", classmethod), ("static", staticmethod), ("property", property)):
            if word in kinds.split():
                made = wrap(made)
        body[member] = made
    if name.endswith("Info"):
        return make_dataclass(name, fields, bases=(ABC,), namespace=body)
    return type(name, (ABC,), body)


def install(modules: dict[str, Any]) -> None:
    """Stand-ins where the program's own modules would be, and no others of it."""
    tops = {module.split(".")[0] for module in modules}
    for name in [name for name in sys.modules if name.split(".")[0] in tops]:
        del sys.modules[name]
    for module, found in modules.items():
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(".".join(parts[:depth])))
        for name, rows in found.items():
            made = function(name, rows) if isinstance(rows, str) else stand_in(name, rows)
            setattr(sys.modules[module], name, made)


if __name__ == "__main__":
    rows = json.loads(FILE.read_text()) if FILE.exists() else {}
    for path in sys.argv[1:]:
        program, version, found = read(Path(path))
        rows.setdefault(program, {})[version] = found
    short = re.sub(r'\[\s+("[^"]*"),\s+("[^"]*")\s+\]', r"[\1, \2]", json.dumps(rows, indent=1))
    FILE.write_text(short + "\n")

"""Whether a result agrees with a claim: an expression over the result's JSON, and the values that agree.

Expressions are Python's arithmetic over what `at` and `row` find, with min, max, mean and len, subscripts, and nothing
else: no names, no attributes, no other calls.

    at("summary", "rate", "256") / at("summary", "rate", "1")
    row("runs", protocol="rdcm", loss=0.01)["footprint"]        the first record of a list with these members
"""

from __future__ import annotations

import ast
import operator
import re
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LONGEST = 1000  # characters of an expression
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
BOUND = re.compile(rf"^(?:(<=|>=|<|>) *({NUMBER})|({NUMBER}) to ({NUMBER}))$")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Verdict(StrEnum):
    FOUND = "found"
    SHAPE = "found in shape"
    NOT_FOUND = "not found"
    NOT_JUDGED = "not judged"


class JudgeError(ValueError):
    """An expression or a bound is none, or the result has not what it asks for."""


class LackingError(JudgeError):
    """The result has not what the expression asks for: a short run has fewer points."""


@dataclass(frozen=True)
class Bound:
    """Values that agree: "< 3", ">= 0.9", "0.9 to 1.1"."""

    text: str

    def __post_init__(self) -> None:
        self._parts()

    def holds(self, value: float) -> bool:
        sign, limit, least, most = self._parts()
        return COMPARISONS[sign](value, float(limit)) if sign else float(least) <= value <= float(most)

    def _parts(self) -> tuple[str, str, str, str]:
        found = BOUND.match(self.text)
        if not found:
            raise JudgeError(f'{self.text!r} is no bound, such as ">= 0.9" or "0.9 to 1.1"')
        sign, limit, least, most = found.groups()
        return sign, limit, least, most


def parse(expression: str) -> ast.expr:
    """Raises JudgeError for what is not of this language."""
    if len(expression) > LONGEST:
        raise JudgeError(f"an expression of {len(expression)} characters; {LONGEST} is the most")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, RecursionError, ValueError) as error:
        raise JudgeError(f"{expression!r}: {error}") from None
    _check(tree)
    return tree


def _check(node: ast.AST) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        return
    inner: list[ast.AST]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        inner = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = [node.operand]
    elif isinstance(node, ast.Subscript):
        inner = [node.value, node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        inner = [*node.args, *(one.value for one in node.keywords)]
    else:
        raise JudgeError(f"{ast.unparse(node)}: only arithmetic, subscripts and {', '.join(FUNCTIONS)}")
    for one in inner:
        _check(one)


def evaluate(expression: str, result: dict[str, Any]) -> float:
    """Raises JudgeError, also where the result lacks something, which a quick run's may."""
    value = _value(parse(expression), result)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JudgeError(f"{expression} is {value!r}, which is no number")
    return float(value)


def _value(node: ast.AST, result: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    try:
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](_value(node.left, result), _value(node.right, result))
        if isinstance(node, ast.UnaryOp):
            return -_value(node.operand, result)
        if isinstance(node, ast.Subscript):
            return _member(_value(node.value, result), _value(node.slice, result))
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        given = [_value(one, result) for one in node.args]
        named = {str(one.arg): _value(one.value, result) for one in node.keywords}
        return FUNCTIONS[node.func.id](result, *given, **named)
    except JudgeError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise JudgeError(f"{ast.unparse(node)}: {error}") from None


def _member(there: Any, key: Any) -> Any:
    try:
        return there[key]
    except (KeyError, IndexError, TypeError):
        raise LackingError(f"the result has no {key}") from None


def _at(result: dict[str, Any], *keys: Any) -> Any:
    there: Any = result
    for key in keys:
        there = _member(there, key)
    return there


def _row(result: dict[str, Any], table: str, **members: Any) -> Any:
    rows = _member(result, table)
    if not isinstance(rows, list):
        raise JudgeError(f"{table} is no list")
    for one in rows:
        if isinstance(one, dict) and all(one.get(name) == value for name, value in members.items()):
            return one
    raise LackingError(f"the result has no row of {table} with {', '.join(f'{k} {v}' for k, v in members.items())}")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "at": _at,
    "row": _row,
    "min": lambda result, *values: min(values),
    "max": lambda result, *values: max(values),
    "mean": lambda result, *values: statistics.mean(values),
    "len": lambda result, value: len(value),
}


def judge(value: float, found: str, shape: str = "") -> Verdict:
    if Bound(found).holds(value):
        return Verdict.FOUND
    return Verdict.SHAPE if shape and Bound(shape).holds(value) else Verdict.NOT_FOUND

"""`rostrum reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rostrum.bench.reproduce import report as reports
from rostrum.bench.reproduce import runner
from rostrum.bench.reproduce.claims import Claim, Claims, ClaimsError, Judged, Run, load
from rostrum.bench.reproduce.judge import Verdict
from rostrum.topologies.places import build_folder, short

OUT, ERR = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)
STYLES = {Verdict.FOUND: "green", Verdict.SHAPE: "yellow", Verdict.NOT_FOUND: "red", Verdict.NOT_JUDGED: "dim"}
STDOUT = "-"
PIPE_WIDTH = 200  # columns of the table where no terminal has a width


@click.group(invoke_without_command=True)
@click.option("--list", "list_", is_flag=True, help="Judge by the results that are stored; run nothing.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Claims, papers or runs that fit, as ricochet-*.")
@click.option("--all", "all_", is_flag=True, help="Every run: hours. What this commit has already is not run again.")
@click.option("--quick", is_flag=True, help="Short runs, of fewer points: seconds to two minutes each.")
@click.option("--again", is_flag=True, help="Run also what this commit has already.")
@click.option(
    "--store",
    is_flag=True,
    help="Into results/, from a tree without changes; of short runs only what has no full one.",
)
@click.option("--json", "json_file", is_flag=False, flag_value=STDOUT, metavar="[FILE]",
              help="Claims and verdicts as JSON; no FILE: here.")  # fmt: skip
@click.pass_context
def reproduce(
    ctx: click.Context, list_: bool, only: tuple[str, ...], all_: bool, quick: bool, again: bool, store: bool,
    json_file: str | None,
) -> None:  # fmt: skip
    """Try the papers' claims again, and judge them.

    Each claim of results/claims.yaml names a command of rostrum, a figure of what that writes, and which values agree.
    A verdict is: found, found in shape (the trend, not the number), not found, not judged (and why). Ends with 1 if a
    run failed, or a full one lacks what is asked for.

    \b
      rostrum reproduce --list                              verdicts by stored results
      rostrum reproduce --quick --only 'ricochet*'          try some, in ten minutes
      rostrum reproduce --only rdcm-fig10-near-capacity     the full run behind one claim
      rostrum reproduce --all --store                       all of them, stored (as root; hours)
      rostrum reproduce report                              one page with all verdicts and pictures
    """
    if ctx.invoked_subcommand is not None:
        return
    if not (list_ or only or all_):
        raise click.UsageError("say what: --list, --only PATTERN, or --all")
    if store and list_:
        raise click.UsageError("--store takes runs: leave out --list")
    try:
        claims = load()
        chosen = claims.matching(only)
        if store:
            runner.check_clean()
        judged = _stored(claims, chosen) if list_ else _tried(claims, chosen, quick, again, store)
    except ClaimsError as error:
        raise click.ClickException(str(error)) from None
    if json_file is not None:
        runner.write_json(judged, None if json_file == STDOUT else Path(json_file))
    if json_file != STDOUT:
        _show(judged)
    if not list_ and any(one.failed for one in judged):
        ctx.exit(1)


@reproduce.command()
@click.option("--output", "-o", type=click.Path(file_okay=False, path_type=Path), help="A folder [build/reproduce].")
def report(output: Path | None) -> None:
    """Write report.html (self-contained; it prints well) and claims.tex (a longtable), by stored results."""
    folder = output or build_folder() / "reproduce"
    try:
        claims = load()
        judged = _stored(claims, list(claims.claims))
    except ClaimsError as error:
        raise click.ClickException(str(error)) from None
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("report.html", reports.page(judged, claims)), ("claims.tex", reports.latex(judged))):
        (folder / name).write_text(text)
        OUT.print(short(folder / name))


def _stored(claims: Claims, chosen: list[Claim]) -> list[Judged]:
    outcomes = {name: runner.stored(claims.runs[name]) for name in {one.run for one in chosen if one.run}}
    return [_judged(claims, one, outcomes) for one in chosen]


def _judged(claims: Claims, claim: Claim, outcomes: dict[str, runner.Outcome], quick: bool | None = None) -> Judged:
    outcome = outcomes.get(claim.run)
    return claims.judged(claim, outcome.result if outcome else None, outcome.reason if outcome else "", quick)


def _tried(claims: Claims, chosen: list[Claim], quick: bool, again: bool, store: bool) -> list[Judged]:
    runs: list[Run] = [claims.runs[name] for name in dict.fromkeys(one.run for one in chosen if one.run)]
    outcomes = {}
    for number, run in enumerate(runs, 1):
        about = f"some {run.minutes:g} minutes" if not quick else "quick"
        ERR.print(f"[dim]{number} of {len(runs)}, {about}[/dim]")
        outcome = runner.perform(run, quick, again, lambda text: ERR.print(escape(text)))
        outcomes[run.name] = outcome
        if outcome.result is None:
            ERR.print(f"[red]{escape(f'{run.name}: {outcome.reason}')}[/red]")
        elif outcome.kept:
            ERR.print(f"[dim]{run.name}: of this commit already (--again runs it once more)[/dim]")
    if store:  # at the end: from the first file that is stored on, the tree has changes
        runner.check_clean()
        for run in runs:
            if outcomes[run.name].result is not None and not (quick and runner.has_full_run(run)):
                for file in runner.store(run, outcomes[run.name], claims, quick):
                    ERR.print(f"[dim]stored: {short(file)}[/dim]")
    return [_judged(claims, one, outcomes, quick) for one in chosen]


def _show(judged: list[Judged]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("claim", "where", "theirs", "ours", "verdict", "commit"):
        table.add_column(name, no_wrap=name in ("claim", "commit"))
    table.add_column("why", min_width=30)
    for one in judged:
        style = STYLES[one.verdict]
        changed = "+changes" if one.commit.endswith("+changes") else ""
        cells: tuple[Any, ...] = (one.claim.id, one.claim.where, str(one.claim.theirs), one.ours)
        table.add_row(
            *map(escape, cells), f"[{style}]{one.verdict.value}[/{style}]", one.commit[:8] + changed, escape(one.reason)
        )
    Console(soft_wrap=True, width=None if OUT.is_terminal else PIPE_WIDTH).print(table)
    counts = runner.summary(judged)["summary"]
    OUT.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))

"""One page of all claims: self-contained HTML that prints well, and the same table for LaTeX."""

from __future__ import annotations

import base64
import datetime
import html
from pathlib import Path

from rostrum.bench.reproduce.claims import PAPERS, Claims, Judged
from rostrum.bench.reproduce.judge import Verdict
from rostrum.bench.reproduce.runner import STORED
from rostrum.lab.manifest import commit

TITLES = {
    "republic": "Republic: reliable optical multicast in hybrid data centers",
    "rdcm": "RDCM: reliable data center multicast",
    "ricochet": "Ricochet: lateral error correction for time-critical multicast",
    "qsm": "QSM: many overlapping groups",
    "wan": "Reliable multicast of large data over wide areas",
}
COLOURS = {
    Verdict.FOUND: "#1a7f37", Verdict.SHAPE: "#9a6700", Verdict.NOT_FOUND: "#cf222e", Verdict.NOT_JUDGED: "#57606a",
}  # fmt: skip
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#1f2328}
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;
border-bottom:1px solid #d0d7de}th{background:#f6f8fa}code{font-size:.85em;word-break:break-word}
.v{font-weight:600;min-width:9rem}.r{color:#57606a;font-size:.9em;font-weight:400}
td:nth-child(2){min-width:14rem}img{max-width:100%;margin:.5rem 0}
figure{margin:1rem 0}figcaption{color:#57606a}@media print{body{max-width:none;font-size:10px}tr{break-inside:avoid}}
"""
TEX = str.maketrans({
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "<": r"$<$", ">": r"$>$",
})  # fmt: skip


def page(judged: list[Judged], claims: Claims) -> str:
    counts = {verdict: sum(one.verdict is verdict for one in judged) for verdict in Verdict}
    total = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>rostrum: the papers' claims</title>",
        f"<style>{STYLE}</style><h1>What five papers claim, tried with rostrum</h1>",
        f"<p>{len(judged)} claims: {total}. Commit {html.escape(commit()[:12])}, "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}. Each row names the command that shows it and the commit its "
        "figures are of.</p>",
    ]
    for paper in PAPERS:
        rows = [one for one in judged if one.claim.paper == paper]
        if not rows:
            continue
        parts.append(f"<h2>{html.escape(TITLES[paper])}</h2>")
        parts.append("<table><tr><th>Where<th>Claim<th>Theirs<th>Ours<th>Verdict<th>Command, commit")
        parts += [_row(one) for one in rows]
        parts.append("</table>")
        runs = dict.fromkeys(one.claim.run for one in rows if one.claim.run)
        parts += [_picture(claims.runs[name].command, STORED / f"{name}.png") for name in runs]
    return "\n".join(parts) + "</html>\n"


def _row(one: Judged) -> str:
    e, claim = html.escape, one.claim
    reason = f"<br><span class=r>{e(one.reason)}</span>" if one.reason else ""
    source = f"<code>{e(one.command)}</code>" if one.command else ""
    source += f"<br><span class=r>{e(_commit(one))}</span>"
    verdict = f'<td class=v style="color:{COLOURS[one.verdict]}">{one.verdict.value}{reason}'
    message = "".join(f"<td>{e(text)}" for text in (claim.where, claim.claim, str(claim.theirs), one.ours))
    return f"<tr id={e(claim.id)}>{message}{verdict}<td>{source}"


def _commit(one: Judged) -> str:
    return one.commit[:12] + ("+changes" if one.commit.endswith("+changes") else "")


def _picture(command: str, file: Path) -> str:
    if not file.is_file():
        return ""
    data = base64.b64encode(file.read_bytes()).decode()
    caption = html.escape(f"rostrum {command}")
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )


def latex(judged: list[Judged]) -> str:
    """A longtable, for a landscape document with \\usepackage{longtable}; it is as wide as the text."""
    widths = (0.06, 0.06, 0.21, 0.08, 0.08, 0.14, 0.15, 0.06)  # of the line, less the space between columns
    columns = "".join(rf">{{\raggedright\arraybackslash}}p{{{width}\linewidth}}" for width in widths)
    lines = [
        r"% \usepackage[landscape]{geometry} \usepackage{array} \usepackage{longtable}",
        rf"{{\scriptsize\setlength{{\tabcolsep}}{{3pt}}\begin{{longtable}}{{{columns}}}",
        r"Paper & Where & Claim & Theirs & Ours & Verdict & Command & Commit \\ \hline \endhead",
    ]
    for one in judged:
        verdict = ": ".join(filter(None, (one.verdict.value, one.reason)))
        cells = [one.claim.paper, one.claim.where, one.claim.claim, str(one.claim.theirs), one.ours, verdict,
                 one.command, _commit(one)]  # fmt: skip
        lines.append(" & ".join(cell.translate(TEX) for cell in cells) + r" \\")
    return "\n".join([*lines, r"\end{longtable}}", ""])

"""Draws traces of steps as pictures. It needs no library, because tools/timeline uses it too."""
import html
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

Block = Tuple[float, float, str, str]   # begin, end, category, name
Rows = Dict[int, List[Block]]

WIDTH, LABEL, ROW, GAP, TITLE = 960, 64, 22, 3, 26
COLOURS = {  # fill and text
    "F": ("#4c78a8", "#ffffff"), "B": ("#72b7b2", "#123"), "I": ("#72b7b2", "#123"), "W": ("#eeca3b", "#431"), "R": ("#b279a2", "#ffffff"),
    "O": ("#9d755d", "#ffffff"), "step": ("#bab0ac", "#333"),
}
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient", "R": "recompute", "O": "update", "step": "clear, reduce, update"}



def rows_of(trace: Dict[str, Any], step: Optional[int] = None, actions_only: bool = False) -> Rows:
    """{rank: blocks} of one step, in seconds from its first action: of a training step, unless the trace has none. Default of `step`: the last of
    those with the most blocks, because the last step of a trace may be incomplete."""
    blocks = [event for event in trace["traceEvents"] if event.get("ph") == "X" and "mode" in event.get("args", {})]
    blocks = [event for event in blocks if event["args"]["mode"] == "train"] or blocks
    if step is None:
        counts = Counter(event["args"]["step"] for event in blocks)
        step = max(counts, key=lambda number: (counts[number], number), default=0)
    rows: Rows = {}
    for event in blocks:
        if event["args"]["step"] != step:
            continue
        if actions_only and event["cat"] == "step":
            continue
        begin = event["ts"] / 1e6
        rows.setdefault(event["tid"], []).append((begin, begin + event["dur"] / 1e6, event["cat"], event["name"]))
    first = min((block[0] for row in rows.values() for block in row), default=0)
    return {rank: [(b - first, e - first, cat, name) for b, e, cat, name in row] for rank, row in sorted(rows.items())}


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def stage_of(name: str) -> str:
    return name[:len(name) - len(name.lstrip("0123456789"))]


def block(item: Block, top: int, scale: float, stages: List[str]) -> str:
    begin, end, category, name = item
    fill, ink = COLOURS.get(category, COLOURS["step"])
    x, width = LABEL + begin * scale, max((end - begin) * scale, 0.4)
    action = category != "step"
    pale = f' fill-opacity="{1 - 0.4 * stages.index(stage_of(name)) / len(stages):.2g}"' if action and len(stages) > 1 else ""
    out = f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - GAP}" fill="{fill}"{pale}><title>{html.escape(name)}, {seconds(end - begin)}</title></rect>\n'
    text = name.lstrip("0123456789")[1:]
    if action and width >= 6.2 * len(text) + 1:
        out += f'<text x="{x + width / 2:.1f}" y="{top + 14}" text-anchor="middle" fill="{ink}">{html.escape(text)}</text>\n'
    return out


def panel(title: str, rows: Rows, top: int, scale: float) -> Tuple[str, int]:
    end = max(b[1] for row in rows.values() for b in row)
    busy = sum(b[1] - b[0] for row in rows.values() for b in row)
    note = f"{seconds(end)}, idle {100 * (1 - busy / (end * len(rows))):.0f} %"
    out = f'<text x="{LABEL}" y="{top + 17}" class="title">{html.escape(title)}</text>\n'
    out += f'<text x="{WIDTH - 8}" y="{top + 17}" text-anchor="end">{note}</text>\n'
    for i, (rank, row) in enumerate(rows.items()):
        y = top + TITLE + i * ROW
        stages = sorted({stage_of(b[3]) for b in row if b[2] != "step"}, key=int)
        out += f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">rank {rank}</text>\n'
        out += f'<rect x="{LABEL}" y="{y}" width="{end * scale:.1f}" height="{ROW - GAP}" fill="#f1f1f1"/>\n'
        out += "".join(block(b, y, scale, stages) for b in row)
    return out, top + TITLE + len(rows) * ROW + 8


def legend(panels: List[Tuple[str, Rows]], top: int) -> str:
    x, out = LABEL, ""
    found = {b[2] for _, rows in panels for row in rows.values() for b in row}
    for category, name in NAMES.items():
        if category not in found:
            continue
        out += f'<rect x="{x}" y="{top + 4}" width="12" height="12" fill="{COLOURS[category][0]}"/><text x="{x + 17}" y="{top + 14}">{category}  {name}</text>\n'
        x += 60 + 7 * len(name)
    return out


def draw(panels: List[Tuple[str, Rows]]) -> str:
    """Panels, each with a title, one above the other on the same time scale, as SVG."""
    for title, rows in panels:
        if not rows:
            raise ValueError(f"the trace '{title}' has no step")
    longest = max(b[1] for _, rows in panels for row in rows.values() for b in row)
    scale, top, body = (WIDTH - LABEL - 8) / longest, 4, ""
    for title, rows in panels:
        drawn, top = panel(title, rows, top, scale)
        body += drawn
    body += legend(panels, top)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 24}" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11" fill="#333">\n'
            f'<style>.title{{font-weight:bold;font-size:13px}}</style>\n<rect width="100%" height="100%" fill="#ffffff" rx="6"/>\n{body}</svg>')


def picture(traces: List[Tuple[str, Dict[str, Any]]]) -> str:
    """Traces, each with a title, as SVG."""
    return draw([(title, rows_of(trace)) for title, trace in traces])


class Picture:
    """Traces as a picture in Jupyter; svg() is its text."""

    def __init__(self, traces: List[Tuple[str, Dict[str, Any]]]) -> None:
        self.traces = traces

    def svg(self) -> str:
        return picture(self.traces)

    def _repr_svg_(self) -> str:
        return self.svg()

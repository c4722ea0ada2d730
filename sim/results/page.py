"""The frame of report.html: document, style sheet and plotly, all in one file that needs no network."""

from html import escape

from sim.results.style import ABSENT, BLUE, FAINT, FONT, GRID, INK, RED

STYLE_SHEET = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: white; color: {INK}; font: 16px/1.5 {FONT}; }}
main {{ max-width: 1160px; margin: 0 auto; padding: 48px 32px 96px; }}
h1 {{ font-size: 32px; line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; margin: 0; }}
h2 {{ font-size: 20px; font-weight: 650; margin: 0 0 4px; }}
h3 {{ font-size: 15px; font-weight: 600; margin: 20px 0 4px; }}
p {{ max-width: 46em; margin: 4px 0 12px; }}
section > p {{ color: {FAINT}; }}
section {{ margin-top: 40px; padding-top: 24px; border-top: 1px solid {GRID}; }}
.question {{ font-size: 19px; line-height: 1.4; margin: 10px 0; }}
.facts {{ max-width: none; color: {FAINT}; font-size: 14px; margin: 10px 0 0; }}
.facts b {{ color: {INK}; font-weight: 600; }}
code, pre {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }}
code, pre {{ font-size: 13px; }}
pre {{ background: #f8f7f4; padding: 16px 20px; overflow-x: auto; line-height: 1.45; }}
.warning {{ max-width: none; border-left: 3px solid {RED}; background: #fbf3f1; }}
.warning {{ padding: 10px 16px; margin: 20px 0; }}
.warning p {{ margin: 0; }}
.warning ul {{ margin: 4px 0; padding-left: 20px; }}
.tiles {{ display: grid; gap: 12px; margin-top: 28px; }}
.tiles {{ grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); }}
.tile {{ background: #f8f7f4; padding: 12px 14px; border-radius: 4px; }}
.tile .label {{ font-size: 13px; color: {FAINT}; }}
.tile .value {{ font-size: 22px; font-weight: 600; line-height: 1.5; font-variant-numeric: tabular-nums; }}
.tile .note {{ font-size: 13px; line-height: 1.35; color: {FAINT}; }}
.pair {{ display: grid; gap: 8px 32px; }}
.pair {{ grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }}
.pair > div {{ min-width: 0; }}
.lists {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 8px 40px; }}
.lists table {{ width: 100%; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }}
th {{ text-align: left; font-weight: 600; color: {FAINT}; border-bottom: 1px solid {FAINT}; }}
th, td {{ padding: 4px 24px 4px 0; white-space: nowrap; }}
td {{ border-bottom: 1px solid {ABSENT}; }}
.number {{ text-align: right; }}
th:last-child, td:last-child {{ padding-right: 0; }}
summary {{ cursor: pointer; color: {BLUE}; margin: 6px 0 10px; }}
@media (max-width: 640px) {{ main {{ padding: 24px 16px 64px; }} h1 {{ font-size: 26px; }} }}
@media print {{ section {{ break-inside: avoid; }} .modebar {{ display: none; }} }}
"""

# Each picture is drawn as soon as the browser has read it, before the page has its final widths.
_FIT = """
addEventListener("load", () => {
  document.querySelectorAll(".plotly-graph-div").forEach(div => Plotly.Plots.resize(div));
});
"""


def document(title: str, body: str, script: str) -> str:
    """A whole HTML page; `body` and `script` are trusted, `title` is escaped."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} \N{MIDDLE DOT} coterie</title>\n"
        f"<style>{STYLE_SHEET}</style>\n<script>{script}</script>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{_FIT}</script>\n</body>\n</html>\n"
    )

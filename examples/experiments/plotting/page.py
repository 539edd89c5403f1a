"""Blocks (common.py) as one HTML page that needs no other file, its pictures also as PNG files."""

import html
import io
import os
import re

from .common import INK, plt

STYLE = """
:root { color-scheme: light dark; --text: #1c2330; --faint: #5b6472; --page: #fff; --rule: #d9dde3 }
@media (prefers-color-scheme: dark) { :root { --text: #e3e7ee; --faint: #9aa4b2; --page: #14181f; --rule: #343b46 } }
@media print { :root { color-scheme: light; --text: #000; --faint: #444; --page: #fff; --rule: #bbb } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 78rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word }
h1 { font-size: 1.6rem; margin: .4rem 0 } h2 { font-size: 1.25rem; margin: 2.4rem 0 .4rem; scroll-margin-top: 1rem }
p { max-width: 46rem; margin: .6rem 0 } a { color: inherit }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem } nav a { padding: .25rem 0 }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1.4rem;
           margin: 1rem 0 }
figure { margin: 0; break-inside: avoid } figure svg { display: block; width: 100%; height: auto }
figcaption { color: var(--faint); font-size: .875rem; line-height: 1.4; margin-top: .3rem }
.table { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .55rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap }
th { vertical-align: bottom; white-space: normal; border-bottom: 2px solid var(--faint) }
tr { break-inside: avoid } .text { text-align: left } th:first-child, td:first-child { padding-left: 0 }
footer { color: var(--faint); font-size: .875rem; margin-top: 2.4rem }
@media print {
  body { font-size: 10pt; max-width: none; padding: 0 } nav { display: none }
  .figures { grid-template-columns: repeat(3, 1fr); gap: .8rem } .table { overflow: visible }
  table, figcaption { font-size: 7.5pt } th, td { padding: .1rem .3rem; white-space: normal } h2 { break-after: avoid }
}
"""


def escaped(text):
    """In one line, with minus signs where numbers have hyphens, and no line that begins with %."""
    text = html.escape(re.sub(r"[ \n]+", " ", str(text)).strip())
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text).replace(" %", "\u00a0%")


def figure_html(directory, name, figure, caption):
    figure.savefig(os.path.join(directory, name + ".png"), facecolor="white")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    svg = buffer.getvalue()
    head, body = svg[svg.index("<svg "):].split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)  # the page says how large
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)  # the same ones in every picture
    svg = f'{head} role="img" aria-label="{escaped(caption)}">{body}'.replace(INK, "currentColor")
    return f"<figure>{svg}<figcaption>{escaped(caption)}</figcaption></figure>"


def table_html(header, lines, text_columns):
    rows = []
    for tag, line in [("th", header)] + [("td", line) for line in lines]:
        cells = []
        for i, cell in enumerate(line):
            css = ' class="text"' if i < text_columns else ""
            cells.append(f"<{tag}{css}>{escaped(cell)}</{tag}>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return '<div class="table"><table>\n' + "\n".join(rows) + "\n</table></div>"


def block_html(directory, kind, *content):
    if kind == "heading":
        return f'<h2 id="{content[1]}">{escaped(content[0])}</h2>'
    if kind == "text":
        return f"<p>{escaped(content[0])}</p>"
    if kind == "table":
        return table_html(*content)
    return '<div class="figures">' + "".join(figure_html(directory, *figure) for figure in content[0]) + "</div>"


def write_page(directory, run, blocks):
    """Returns the page's path. run: what run.csv says."""
    links = "".join(f'<a href="#{block[2]}">{escaped(block[1])}</a>' for block in blocks if block[0] == "heading")
    made = (f"halyard {run['version']} ({run['instruction set']}), {run['threads']} threads, {run['processor']}, "
            f"{run['date']}. The CSV files beside this page hold everything it shows.")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>halyard: experiments</title>'
        f"<style>{STYLE}</style></head><body>",
        f"<h1>Experiments with the layers of a transformer</h1>\n<nav>{links}</nav>",
        *(block_html(directory, *block) for block in blocks),
        f"<footer>{escaped(made)}</footer></body></html>",
    ]
    path = os.path.join(directory, "index.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")
    return path

"""Experiment 3: shapes and parameter counts of feed-forward networks, and the maps of a SwiGLU."""

import cmath
import math
from collections import defaultdict

from .common import (COLOURS, INK, LINES, column, grouped, legend_below, plt, published_table, read, readable_bytes,
                     spaced)


def rounding_figure(lines, rounding):
    figure, axes = plt.subplots()
    chosen = [line for line in lines if line["rounding"] == rounding and line["multiple_of"] > 1]
    for index, (multiple, group) in enumerate(grouped(chosen, "multiple_of").items()):
        beyond = [100 * (line["parameters"] / line["standard_parameters"] - 1) for line in group]
        axes.plot(column(group, "d"), beyond, "osD"[index], color=COLOURS[index], markersize=3.5,
                  label=f"{rounding}{' to' * (rounding == 'up')} {multiple}s")
    axes.set_xlabel("d")
    axes.set_ylabel("parameters beyond 8 d², %")
    legend_below(figure, axes, 3)
    return figure


def width_figure(lines):
    """Parameters by hidden width, both in the d of the network."""
    figure, axes = plt.subplots()
    d = lines[0]["d"]
    widths = [line["ff"] / d for line in lines]
    for index, (key, label) in enumerate((("standard_parameters", "standard: 2 matrices"),
                                          ("gated_parameters", "gated: 3 matrices"))):
        parameters = [line[key] / d ** 2 for line in lines]
        axes.plot(widths, parameters, color=COLOURS[index], linestyle=LINES[index], label=label)
        for width, count in zip(widths, parameters):
            if count == 8 or width == 4:
                axes.plot(width, count, "o", color=COLOURS[index], markersize=5)
                axes.annotate(f"{width:.3g} d: {count:.3g} d²", (width, count), (-6, 4), textcoords="offset points",
                              ha="right", fontsize=9)
    axes.axhline(8, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlabel("hidden width / d")
    axes.set_ylabel("parameters / d²")
    legend_below(figure, axes, 2)
    return figure


def map_figure(lines, key, units, title):
    tokens = 1 + max(column(lines, "token"))
    place = {unit: i for i, unit in enumerate(units)}
    cells = [[0.0] * tokens for _ in units]
    for line in lines:
        cells[place[line["unit"]]][line["token"]] = line[key]
    limit = max(abs(value) for row in cells for value in row)
    figure, axes = plt.subplots(figsize=(4.6, 4.6))
    axes.grid(visible=False)
    image = axes.imshow(cells, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none", aspect="auto")
    figure.colorbar(image, ax=axes, location="bottom", aspect=40, pad=0.02).outline.set_visible(False)
    axes.set_title(title)
    axes.set_xlabel("token")
    axes.set_ylabel("hidden unit")
    axes.set_yticks([])
    return figure


def units_by_phase(lines):
    """In the order in which their gates open."""
    tokens = 1 + max(column(lines, "token"))
    wave = defaultdict(complex)
    for line in lines:
        wave[line["unit"]] += line["gate"] * cmath.exp(2j * math.pi * line["token"] / tokens)
    return sorted(wave, key=lambda unit: cmath.phase(wave[unit]))


def shape_table(shapes):
    lines = []
    for line in shapes:
        width = {0: "4 d", 1: "⌊8 d/3⌋"}.get(line["multiple_of"], f"⌊8 d/3⌋, up to {line['multiple_of']}s")
        beside = line["parameters"] / (8 * line["d"] ** 2) - 1
        lines.append([line["model"], line["d"], line["ff"], spaced(line["parameters"]),
                      f"{100 * beside:+.2f} %" if beside else "0", line["form"], width, line["matrices"],
                      readable_bytes(line["packed_bytes_f32"]), readable_bytes(line["packed_bytes_bf16"])])
    return ("table", ["network", "d", "ff", "parameters", "beside 8 d²", "form", "width", "matrices", "packed, f32",
                      "packed, bf16"], lines, 1)


def width_table(rounding):
    """8 d/3 as an integer, in every way, with the parameters beyond 8 d²."""
    ways = list(grouped(rounding, "rounding", "multiple_of"))
    names = ["⌊8 d/3⌋" if way == "down" else "rounded" if multiple == 1 else
             f"up to {multiple}s" if way == "up" else f"nearest {multiple}" for way, multiple in ways]
    lines = [[d] + [f"{line['ff']} ({100 * (line['parameters'] / line['standard_parameters'] - 1):+.2f} %)"
                    for line in group]
             for d, group in grouped(rounding, "d").items() if d in (256, 512, 768, 1024, 2048, 4096, 5120, 8192)]
    return ("table", ["d", *names], lines, 0)


def blocks(directory):
    shapes, rounding, maps, widths, published = (
        read(directory, name) for name in ("ffn_shapes", "ffn_rounding", "swiglu_maps", "ffn_widths", "ffn_published"))
    units, tokens = units_by_phase(maps), 1 + max(column(maps, "token"))
    gates = column(maps, "silu_gate")
    shut = sum(value <= 0 for value in gates) / len(gates)
    energy = sorted((value ** 2 for value in column(maps, "product")), reverse=True)
    tenth = sum(energy[:len(energy) // 10]) / sum(energy)

    standard = next(line for line in shapes if line["d"] == 4096 and line["form"] == "standard")
    swiglu = next(line for line in shapes if line["d"] == 4096 and line["multiple_of"] == 256)
    parity = next(line for line in widths if line["gated_parameters"] == 8 * line["d"] ** 2)
    worst = {way: max(abs(line["parameters"] / line["standard_parameters"] - 1) for line in group if line["d"] >= 4096)
             for way, group in grouped(rounding, "rounding", "multiple_of").items()}
    return [
        ("heading", "3 · Feed-forward networks", "ffn"),
        ("text", f"""
            A gated network has three matrices where the standard one has two, and so two thirds of the width for the
            same parameters: 8 d/3 for 4 d. At d 4096 the standard form has {spaced(standard["parameters"])}
            parameters, and SwiGLU of width {swiglu["ff"]} has {spaced(swiglu["parameters"])}. From d 4096 on,
            rounding the width up to a multiple of 64, 128 or 256 adds at most {100 * worst["up", 64]:.2f},
            {100 * worst["up", 128]:.2f} and {100 * worst["up", 256]:.2f} % of parameters; with the nearest multiple
            they differ by at most {100 * worst["nearest", 64]:.2f}, {100 * worst["nearest", 128]:.2f} and
            {100 * worst["nearest", 256]:.2f} %, on either side."""),
        shape_table(shapes),
        ("figures", [
            ("ffn_widths", width_figure(widths),
             f"Which width h gives a gated network the parameters of a standard one of width 4 d? "
             f"3 d h = 2 d · 4 d, so h = 8/3 d: at d {parity['d']} that is {parity['ff']}, and both have "
             f"{spaced(parity['gated_parameters'])} parameters. At the same 4 d a gated one has half as many again."),
            ("ffn_rounding", rounding_figure(rounding, "up"),
             "What rounding 8 d/3 up costs, for d in steps of 256."),
            ("ffn_rounding_nearest", rounding_figure(rounding, "nearest"),
             "The same with the nearest multiple, as a textbook has it."),
        ]),
        ("text", "8 d/3 as an integer, in the ways of texts and models, and the parameters beyond 8 d²:"),
        width_table(rounding),
        ("text", "Numbers of texts, and what is computed here from the shapes:"),
        published_table(published),
        ("figures", [
            ("swiglu_gate", map_figure(maps, "silu_gate", units, "gate: SiLU(x W)"),
             "Open gates are red, shut ones almost white."),
            ("swiglu_up", map_figure(maps, "up", units, "up: x V"), "What would pass without a gate."),
            ("swiglu_product", map_figure(maps, "product", units, "product: SiLU(x W) ⊙ x V"), "What passes."),
        ]),
        ("text", f"""
            The maps show a small random SwiGLU (d 16, width {len(units)}) on {tokens} tokens whose input turns once
            round a circle between two directions, with the units in the order in which their gates open: each unit
            listens on one side of the circle. {100 * shut:.0f} % of the gates are negative, but none is below
            {min(gates):.2f}, so that a shut gate lets a faint, inverted image through; a tenth of the products holds
            {100 * tenth:.0f} % of their energy."""),
    ]

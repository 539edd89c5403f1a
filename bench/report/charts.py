"""Charts of the report, as SVG and as HTML that flows with the page, and the colour and shape of each peer."""

import html
import itertools
import math

from run import INT8_INSTRUCTION, OWN, median_noise, rate_unit, ratio_text, significant, threads_text, time_text


def escape(text):
    return html.escape(str(text), quote=True)


# ---- colours and shapes ----

# Each is readable on white and on black (a contrast of 3 or more), and far from the others also for those who do not
# tell red from green. The library itself has the colour of the text.
COLOURS = (
    "#db5612 #255ce8 #2ba2a5 #a07dfb #924b99 #ff4983 #bc2c4f #1f83cb #91865c #3c6f61 #9531c5 #ca44c3 #aa4d0a #636de6 "
    "#b45894 #b08089 #5d8e2a #bd0782 #db2478 #e85856 #e462ac #3795df #3670fd #3c723d").split()

# Which peer has which: the same in every report.
ORDER = ("onednn pytorch pytorch-compile onnxruntime openvino ggml mkl openblas eigen transformers llama.cpp zentorch "
         "ik_llama.cpp pytorch-fused").split()


def regular(corners, turn, inner=1.0):
    """Points on the unit circle; every other one on a circle within it, for a star."""
    angles = [math.radians(turn + 360 * i / corners) for i in range(corners)]
    radii = [inner if i % 2 else 1.0 for i in range(corners)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for radius, angle in zip(radii, angles)]


SHAPES = {
    "circle": regular(20, 0), "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "up": regular(3, -90), "diamond": regular(4, 0), "down": regular(3, 90), "star": regular(10, -90, 0.45),
    "plus": [(-0.35, -1), (0.35, -1), (0.35, -0.35), (1, -0.35), (1, 0.35), (0.35, 0.35), (0.35, 1), (-0.35, 1),
             (-0.35, 0.35), (-1, 0.35), (-1, -0.35), (-0.35, -0.35)],
    "glass": [(-0.9, -0.9), (0.9, -0.9), (-0.9, 0.9), (0.9, 0.9)]}


class Palette:
    """Which colour and shape each peer has; peers that are not in ORDER have others."""

    def __init__(self, names):
        self.index = {name: i for i, name in enumerate([*ORDER, *sorted(set(names) - set(ORDER))])}

    def colour(self, name):
        return COLOURS[self.index[name] % len(COLOURS)]

    def shape(self, name):
        return list(SHAPES)[self.index[name] % len(SHAPES)]

    def css(self, name):
        return "ours circle" if name == OWN else f"p{self.index[name] % len(COLOURS)} {self.shape(name)}"

    def legend(self, names):
        return legend((self.css(name), name) for name in names)


def legend(keys, more=""):
    """keys: [(classes of the mark, what it is)]"""
    marks = "".join(f'<span class="key"><i class="mark {css}"></i>{escape(text)}</span>' for css, text in keys)
    return f'<p class="legend">{marks}{more}</p>'


def style():
    """The classes of colours and shapes."""
    colours = "".join(f".p{i} {{ --c: {colour} }}\n" for i, colour in enumerate(COLOURS))

    def polygon(points):
        return ", ".join(f"{50 + 50 * x:.1f}% {50 + 50 * y:.1f}%" for x, y in points)

    return colours + "".join(f".{name} {{ clip-path: polygon({polygon(at)}) }}\n" for name, at in SHAPES.items())


def outline(shape, x, y, size):
    """The path of a shape round a point."""
    return "M" + "L".join(f"{x + size * a:.1f} {y + size * b:.1f}" for a, b in SHAPES[shape]) + "Z"


# ---- axes ----


class Log:
    """A logarithmic axis from `low` to `high` over the pixels from `start` to `end`."""

    def __init__(self, low, high, start=0, end=0, base=10):
        self.low, self.high, self.start, self.end, self.base = low, high, start, end, base

    def __call__(self, value):
        value = min(max(value, self.low), self.high)
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most=8):
        first, last = (math.log(each, self.base) for each in (self.low, self.high))
        powers = list(range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1))
        step = max(1, math.ceil(len(powers) / most))
        return [self.base**power for power in powers[::step]]


def short_number(value):
    """1, 10, 1k, 1M"""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:.4g}"


# In a plot: the height of labels and of ticks in pixels, and about the width of a letter over its height.
LABEL_SIZE, TICK_SIZE, LETTER = 12, 11, 0.6


def touches(dots, others, distance):
    """How many of the others are nearer to one of the dots."""
    return sum(any(math.dist(dot, other) < distance for dot in dots) for other in others)


class Plot:
    """An SVG with two axes and whatever is drawn between them."""

    def __init__(self, width, height, x, y, x_title, y_title, left=52, bottom=40, top=12, right=12):
        self.width, self.height = width, height
        self.box = (left, top, width - right, height - bottom)
        self.x, self.y = x, y
        for axis, start, end in ((x, left, width - right), (y, height - bottom, top)):
            axis.start, axis.end = start, end
        self.titles = x_title, y_title
        self.parts, self.marks, self.labels = [], [], []

    def line(self, points, css, title=""):
        path = "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<path class="line {css}" d="{path}">{self.title(title)}</path>')

    def mark(self, x, y, css, title, shape="circle", size=5.5):
        self.marks.append((self.x(x), self.y(y)))
        path = outline(shape, *self.marks[-1], size)
        self.parts.append(f'<path class="point {css}" d="{path}">{self.title(title)}</path>')

    def label(self, text, line):
        """Along the line between two points, above it or below, where it covers no other label and least marks, as near
        its beginning as can be and before that if need be; nothing where there is no such place."""
        (x, y), (x_end, y_end) = ((self.x(each[0]), self.y(each[1])) for each in line)
        turn = math.atan2(y_end - y, x_end - x)
        across, size = (-math.sin(turn), math.cos(turn)), LABEL_SIZE
        steps = [size * i for i in range(math.ceil(LETTER * len(text)) + 1)]
        places = []
        for part, side in itertools.product((*range(20), *range(-1, -20, -1)), (-0.4, 1.1, -1.6, 2.3)):
            base = [a + part / 20 * (b - a) + side * size * c for a, b, c in zip((x, y), (x_end, y_end), across)]
            dots = [(base[0] + step * math.cos(turn) + 0.35 * size * math.sin(turn),
                     base[1] + step * math.sin(turn) - 0.35 * size * math.cos(turn)) for step in steps]
            if all(self.is_inside(dot) for dot in (dots[0], dots[-1])) and not touches(dots, self.labels, 1.2 * size):
                places.append((touches(dots, self.marks, size), base, dots))
        if places:
            _, base, dots = min(places, key=lambda each: each[0])
            self.labels += dots
            self.parts.append(
                f'<text class="roof-name" font-size="{size}" transform="translate({base[0]:.1f} {base[1]:.1f}) '
                f'rotate({math.degrees(turn):.1f})">{escape(text)}</text>')

    def is_inside(self, place):
        left, top, right, bottom = self.box
        return left <= place[0] <= right and top <= place[1] <= bottom

    @staticmethod
    def title(text):
        return f"<title>{escape(text)}</title>" if text else ""

    def svg(self, label, x_ticks=None, x_format=short_number, y_format=short_number):
        left, top, right, bottom = self.box
        frame = []
        end = 0  # of the last tick's text
        for value in x_ticks or self.x.ticks():
            place, half = f"{self.x(value):.1f}", LETTER * TICK_SIZE * len(x_format(value)) / 2
            if self.x(value) - half < end:
                continue
            end = self.x(value) + half + TICK_SIZE / 2
            frame.append(
                f'<path class="grid" d="M{place} {top}V{bottom}"/>'
                f'<text class="tick" x="{place}" y="{bottom + 14}" text-anchor="middle">{x_format(value)}</text>')
        for value in self.y.ticks():
            place = f"{self.y(value):.1f}"
            frame.append(f'<path class="grid" d="M{left} {place}H{right}"/><text class="tick" x="{left - 5}" '
                         f'y="{float(place) + 4:.1f}" text-anchor="end">{y_format(value)}</text>')
        middle = (top + bottom) / 2
        return (f'<svg viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img" '
                f'aria-label="{escape(label)}">{"".join(frame)}<text class="axis" x="{(left + right) / 2}" '
                f'y="{self.height - 6}" text-anchor="middle">{escape(self.titles[0])}</text>'
                f'<text class="axis" transform="translate(15 {middle}) rotate(-90)" text-anchor="middle">'
                f"{escape(self.titles[1])}</text>{''.join(self.parts)}</svg>")


# ---- the roofline ----


def group_css(groups, group):
    index = list(groups).index(group)
    return f"p{index % len(COLOURS)}", list(SHAPES)[index % len(SHAPES)]


def roofline(run, groups, most, width, height):
    """Every row, or the worst of them, at its operations per byte and its rate, under what the machine can do on all
    threads."""
    rows = run.worst([row for row in run.rows if row.operations and row["threads"] == run.threads], most)
    peaks = {name: rate / 1e9 for name, rate in run.roofs().items()}
    if not rows or not peaks:
        return ""
    levels = {level: run.bandwidth(level, "read", run.threads) for level in run.levels()}
    speeds = {level: speed / 1e9 for level, speed in levels.items() if speed}
    intensities = [row.operations / row["bytes"] for row in rows]
    rates = [row.operations / row.seconds / 1e9 for row in rows]
    highest = max(peaks.values())
    x = Log(min(intensities + [0.1]) / 1.5, max(intensities + [100]) * 1.5)
    y = Log(min(rates) / 2, max(rates + [highest]) * 1.8)
    plot = Plot(width, height, x, y, "operations per byte of tensors", "Gop/s")
    # The flat ones first: their names are longer, and have fewer places.
    fastest = max(speeds.values(), default=math.inf)
    roofs = [(f"{name} {peak:.0f} {rate_unit(name == INT8_INSTRUCTION)}", [(max(x.low, peak / fastest), peak), (x.high, peak)])
             for name, peak in peaks.items()]
    for level, speed in speeds.items():
        ends = max(x.low, y.low / speed), min(highest / speed, x.high)
        if ends[0] < ends[1]:
            roofs.append((f"{level} {speed:.0f} GB/s", [(end, end * speed) for end in ends]))
    for name, line in roofs:
        plot.line(line, "roof", name)
    for row, intensity, rate in zip(rows, intensities, rates):
        css, shape = group_css(groups, row["group"])
        css += " hollow" if row["state"] == "cold" else ""
        title = (f"{row['name']}: {significant(rate)} Gop/s, {row.fraction_text} of its own limit; the roof is "
                 f"{run.roof_of(row)[0]}")
        plot.mark(intensity, rate, css, title, shape)
    for name, line in roofs:
        plot.label(name, line)
    return plot.svg("Roofline of the machine with every kernel")


def group_legend(groups):
    return legend(((" ".join(group_css(groups, name)), name) for name in groups), '<span class="key">hollow: out of cache</span>')


# ---- bars: a line of HTML for each row ----


def bar_line(name, text, marks):
    return (f'<div class="row"><span class="name">{escape(name)}</span><span class="time">{text}</span>'
            f'<span class="track">{"".join(marks)}</span></div>')


def bars(lines):
    return f'<div class="bars">{"".join(lines)}</div>'


def span(css, low, high):
    return f'<i class="{css}" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>'


def at(css, place, title):
    return f'<i class="mark {css}" style="left:{place:.2f}%" title="{escape(title)}"></i>'


MOST_FRACTION = 1.25


def filled(css, value, text):
    """A bar up to `value`, where a line marks 1; one that ends at the right goes on and has its text there."""
    marks = [span(f"fill {css}", 0, min(value, MOST_FRACTION) / MOST_FRACTION * 100), '<i class="one"></i>']
    return marks + ([f'<b class="above">{text}</b>'] if value > MOST_FRACTION else [])


def strip(name, rows, text, place, hint, line=""):
    """All rows on one track, each a mark at its place in per cent."""
    marks = [line] + [at(f"circle {row.bound_by}", place(row), f"{row['name']}: {hint(row)}") for row in rows]
    return bar_line(f"{name} ({len(rows)})", text, marks)


def limit_strip(group, rows):
    """How much of their limits the rows of a family reached, in the places of limit_bars."""
    fractions = [row.fraction for row in rows]
    return strip(group, rows, f"{min(fractions):.0%} to {max(fractions):.0%}",
                 lambda row: min(row.fraction / MOST_FRACTION, 1) * 100, lambda row: row.fraction_text,
                 '<i class="one"></i>')


def noise_strips(groups):
    """How far each row was from itself, the same for every family."""
    scale = Log(0.001, 1, 0, 100)
    ticks = "".join(f'<span style="left:{scale(tick):.2f}%">{tick:.1%}</span>' for tick in scale.ticks())
    lines = [f'<div class="row scale"><span class="track">{ticks}</span></div>']
    return bars(lines + [strip(group, rows, f"{median_noise(rows):.1%}", lambda row: scale(row["noise"]),
                               lambda row: f"{row['noise']:.1%}") for group, rows in groups.items()])


def row_label(row):
    return " ".join(row["name"].split("/"))


LEAST_RATIO, MOST_RATIO = 0.25, 16
ratio_place = Log(LEAST_RATIO, MOST_RATIO, 0, 100)


def ratio_bars(rows, peers, palette):
    """A track per row: the peers' times over ours on a logarithmic scale, with the noise of the row round 1."""
    ticks = (0.25, 0.5, 1, 2, 4, 8, 16)
    scale = "".join(f'<span style="left:{ratio_place(tick):.2f}%">{tick:g}×</span>' for tick in ticks)
    lines = [f'<div class="row scale"><span class="track">{scale}</span></div>']
    for row in rows:
        ratios = {name: row.ratio(name) for name in peers if row.ratio(name)}
        marks = []
        if ratios:  # a bar from 1 to the fastest peer
            nearest = min(ratios.values())
            marks.append(span("gain" if nearest > 1 else "loss", *sorted((ratio_place(1), ratio_place(nearest)))))
        noise = min(row["noise"], 0.9)
        marks.append(span("noise", ratio_place(1 / (1 + noise)), ratio_place(1 + noise)))
        for name, ratio in ratios.items():
            tie = " (tie)" if row.peer(name)["verdict"] == "tie" else ""
            marks.append(at(palette.css(name), ratio_place(ratio), f"{name}: {ratio_text(ratio)}{tie}"))
        for css, beyond in (("below", [ratio for ratio in ratios.values() if ratio < LEAST_RATIO]),
                            ("above", [ratio for ratio in ratios.values() if ratio > MOST_RATIO])):
            if beyond:
                marks.append(f'<b class="{css}">{significant(max(beyond), 2)}×</b>')
        lines.append(bar_line(row_label(row), time_text(row.seconds), marks))
    return bars(lines)


def limit_bars(rows, most):
    """How much of the limit each row reached, the least first."""
    return bars(bar_line(row_label(row), row.fraction_text, filled(row.bound_by, row.fraction, f"{row.fraction:.0%}"))
                for row in sorted(rows, key=lambda each: each.fraction)[:most])


def thread_pairs(run):
    """(row on one thread, the same on all) of the rows that were measured on both."""
    by_name = {row["name"]: row for row in run.rows}
    pairs = []
    for row in run.rows:
        if row["threads"] == run.threads and run.threads > 1:
            one = by_name.get(row["name"].rsplit("/", 1)[0] + "/1t")
            if one is not None:
                pairs.append((one, row))
    return pairs


def thread_bars(run, pairs):
    lines = []
    for one, row in pairs:
        gain = one.seconds / row.seconds
        marks = filled("reading", gain / run.threads, f"{gain:.1f}×")
        lines.append(bar_line(row_label(row).rsplit(" ", 1)[0], f"{gain:.2f}×", marks))
    return bars(lines)


def hot_and_cold(run):
    """(kernel and type, hot row, cold row) on all threads, of as many rows: of the same shape where there are such,
    else the largest."""
    states = {}
    for row in run.rows:
        if row["threads"] == run.threads and "family" not in row.data:
            states.setdefault((row["kernel"], row["dtype"]), {"hot": [], "cold": []})[row["state"]].append(row)
    pairs = []
    for (kernel, dtype), of_state in states.items():
        pairs_of = itertools.product(of_state["hot"], of_state["cold"])
        alike = [pair for pair in pairs_of if pair[0]["rows"] == pair[1]["rows"]]
        if alike:
            best = max(alike, key=lambda each: (each[0].shape == each[1].shape, sum(row["bytes"] for row in each)))
            pairs.append((f"{kernel} {dtype}", *best))
    return pairs


def hot_cold_bars(pairs):
    speeds = [row.bytes_per_second / 1e9 for _, hot, cold in pairs for row in (hot, cold)]
    scale = Log(min(speeds) / 1.2, max(speeds) * 1.2, 0, 100)
    lines = []
    for name, hot, cold in pairs:
        rates = [row.bytes_per_second / 1e9 for row in (hot, cold)]
        marks = [span("bridge", *sorted(map(scale, rates)))]
        for css, row, rate in zip(("circle hot", "diamond cold"), (hot, cold), rates):
            title = f"{row['name']}: {rate:.1f} GB/s, {row.fraction_text} of its limit"
            marks.append(at(css, scale(rate), title))
        name += f" {hot.shape}" if hot.shape == cold.shape else f" {hot.shape} and {cold.shape}"
        lines.append(bar_line(name, " / ".join(map(significant, rates)), marks))
    return legend([("circle hot", "in cache"), ("diamond cold", "out of cache")]) + bars(lines)


# ---- scaling ----


def scaling(rows, key, palette, peers, title, x_title):
    """Rates against rows or width, with the peers and the limit: a small plot."""
    rows = sorted(rows, key=lambda row: row[key])
    use_flops = rows[0].has_roofline
    amount = (lambda row: row["flops"]) if use_flops else (lambda row: row["bytes"])
    values = [row[key] for row in rows]
    series = {OWN: [(row[key], amount(row) / row.seconds / 1e9) for row in rows]}
    for name in peers:
        points = [(row[key], amount(row) / (row.seconds * row.ratio(name)) / 1e9) for row in rows if row.ratio(name)]
        if len(points) > 1:
            series[name] = points
    limit = [(row[key], amount(row) / row["limit_seconds"]["median"] / 1e9) for row in rows]
    rates = [rate for points in [*series.values(), limit] for _, rate in points]
    x = Log(min(values) / 1.15, max(values) * 1.15)
    y = Log(min(rates) / 1.3, max(rates) * 1.3, base=2 if max(rates) / min(rates) < 30 else 10)
    plot = Plot(340, 230, x, y, x_title, rate_unit(rows[0].has_int8_products) if use_flops else "GB/s")
    plot.line(limit, "limit", "limit of the machine, measured beside each row")
    for name, points in series.items():
        css = palette.css(name).split()[0]
        plot.line(points, css, name)
        for place, rate in points:
            shape = "circle" if name == OWN else palette.shape(name)
            plot.mark(place, rate, css, f"{name}, {place}: {significant(rate)}", shape, 4)
    drawing = plot.svg(title, x_ticks=list(dict.fromkeys(values)), x_format=lambda value: f"{value:g}",
                       y_format=lambda value: short_number(round(value, 3)))
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawing}{palette.legend(series)}</figure>"


def scaling_figures(run, palette, most=12):
    """Rows that differ in their number of rows or in their width alone, the longest series first."""
    figures = []
    for key, title in (("rows", "rows"), ("d", "width d")):
        series = {}
        for row in run.rows:
            if "family" in row.data or "d_out" in row.data and key == "d":
                continue
            other = row["d"] if key == "rows" else row["rows"]
            same = (row["kernel"], row["dtype"], other, row.get("d_out"), row["state"], row["threads"])
            series.setdefault(same, []).append(row)
        for (kernel, dtype, other, d_out, state, threads), rows in series.items():
            if len({row[key] for row in rows}) >= 3:
                fixed = (f"d {other}" + (f"→{d_out}" if d_out else "")) if key == "rows" else f"{other} rows"
                name = f"{kernel} {dtype}, {fixed}, {state}, {threads_text(threads)}"
                peers = run.peers_of(rows)
                figures.append((len(rows), scaling(rows, key, palette, peers, name, title)))
    figures.sort(key=lambda each: -each[0])
    return [figure for _, figure in figures[:most]]


# ---- the README's picture ----

PICTURE_STYLE = """
.paper { fill: #fff } .ink { fill: #1d2129 } .soft { fill: #5c6470 } .rule { stroke: #d0d4da } .one { stroke: #1d2129 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9da7b3 } .rule { stroke: #30363d } .one { stroke: #e6edf3 }
}"""


def picture(means, titles):
    """Geometric means by family, a mark for each peer. means: [(family, {peer: ratio})]; titles: {peer: its title}"""
    palette = Palette(titles)
    values = [ratio for _, ratios in means for ratio in ratios.values()] + [0.7, 4]
    left, right, step, line = 116, 776, 30, 22
    keys, place, keys_bottom = [], 12, 42
    for name, title in titles.items():
        width = 36 + 7.4 * len(title)
        if place + width > 790:
            place, keys_bottom = 12, keys_bottom + line
        mark = outline(palette.shape(name), place + 6, keys_bottom - 4, 6)
        keys.append(
            f'<path d="{mark}" fill="{palette.colour(name)}"/><text class="soft" x="{place + 17}" y="{keys_bottom}">'
            f"{escape(title)}</text>")
        place += width
    top = keys_bottom + 24
    bottom = top + step * len(means)
    axis = Log(min(values) / 1.1, max(values) * 1.1, left, right, base=2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {bottom + 34}" width="800" height="{bottom + 34}" '
        f'font-family="system-ui, sans-serif" font-size="13"><style>{PICTURE_STYLE}</style>',
        f'<rect class="paper" width="800" height="{bottom + 34}" rx="6"/>',
        '<text class="ink" x="12" y="20" font-weight="600">Time of each peer over ours, geometric mean by family; right '
        "of 1×, halyard is faster</text>", *keys]
    for tick in axis.ticks():
        x = axis(tick)
        parts.append(f'<path class="{"one" if tick == 1 else "rule"}" d="M{x:.1f} {top - 6}V{bottom}" '
                     f'stroke-width="{1.6 if tick == 1 else 0.7}"/><text class="soft" x="{x:.1f}" y="{bottom + 18}" '
                     f'text-anchor="middle">{tick:g}×</text>')
    for number, (group, ratios) in enumerate(means):
        y = top + step * number + step / 2
        parts.append(f'<text class="ink" x="{left - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(group)}</text>'
                     f'<path class="rule" d="M{left} {y}H{right}" stroke-width="0.7"/>')
        for name, ratio in ratios.items():
            parts.append(f'<path d="{outline(palette.shape(name), axis(ratio), y, 6)}" fill="{palette.colour(name)}">'
                         f"<title>{escape(titles[name])}, {escape(group)}: {ratio_text(ratio)}</title></path>")
    return "\n".join(parts) + "\n</svg>\n"

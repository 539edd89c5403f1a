"""Charts of the report, as SVG and as HTML that flows with the page. Colours and fonts are in page.css: each peer has
a class p0, p1, ...; the library has "ours"."""

import html
import math

from .run import bytes_text, ratio_text, significant, threads_text, time_text, ulp_text

SHAPES = ("circle", "square", "diamond")


def escape(text):
    return html.escape(str(text), quote=True)


class Palette:
    """Which colour and shape each peer has, the same on the whole page."""

    def __init__(self, peers):
        self.index = {name: i for i, name in enumerate(peers)}

    def css(self, name):
        return f"p{self.index[name] % 12} {SHAPES[self.index[name] % len(SHAPES)]}"

    def colour(self, name):
        return "ours" if name == "halyard" else f"p{self.index[name] % 12}"

    def legend(self, names, ours=None):
        entries = [f'<span class="key"><i class="mark ours"></i>{escape(ours)}</span>'] if ours else []
        entries += [f'<span class="key"><i class="mark {self.css(name)}"></i>{escape(name)}</span>' for name in names]
        return f'<p class="legend">{"".join(entries)}</p>'


# ---- axes ----


class Log:
    """A logarithmic axis from `low` to `high` over the pixels from `start` to `end`."""

    def __init__(self, low, high, start, end, base=10):
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


class Linear:
    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value):
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most=5):
        step = 10 ** math.floor(math.log10((self.high - self.low) / most))
        step = next(step * factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= most)
        return [i * step for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def short_number(value):
    """1, 10, 1k, 1M"""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:.4g}"


class Plot:
    """An SVG with two axes and whatever is drawn between them."""

    def __init__(self, width, height, x, y, x_title, y_title, left=52, bottom=40, top=12, right=12):
        self.width, self.height = width, height
        self.box = (left, top, width - right, height - bottom)
        self.x, self.y = x, y
        for axis, start, end in ((x, left, width - right), (y, height - bottom, top)):
            axis.start, axis.end = start, end
        self.titles = x_title, y_title
        self.parts = []

    def add(self, text):
        self.parts.append(text)

    def line(self, points, css, title=""):
        path = "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
        self.add(f'<path class="line {css}" d="{path}">{self.title(title)}</path>')

    def point(self, x, y, css, title="", radius=4):
        self.add(
            f'<circle class="{css}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}">{self.title(title)}'
            "</circle>"
        )

    def text(self, x, y, text, css="", anchor="start", dx=0, dy=0):
        self.add(
            f'<text class="{css}" x="{self.x(x) + dx:.1f}" y="{self.y(y) + dy:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def text_along(self, x, slope, text, css=""):
        """Above the line y = slope x, from x on."""
        places = [(self.x(each), self.y(slope * each)) for each in (x, 2 * x)]
        angle = math.degrees(math.atan2(places[1][1] - places[0][1], places[1][0] - places[0][0]))
        self.add(
            f'<text class="{css}" transform="translate({places[0][0]:.1f} {places[0][1]:.1f}) rotate({angle:.1f})" '
            f'x="6" y="-5">{escape(text)}</text>'
        )

    @staticmethod
    def title(text):
        return f"<title>{escape(text)}</title>" if text else ""

    def svg(self, label, x_ticks=None, x_format=short_number, y_format=short_number):
        left, top, right, bottom = self.box
        frame = []
        for value in x_ticks or self.x.ticks():
            place = f"{self.x(value):.1f}"
            frame.append(
                f'<path class="grid" d="M{place} {top}V{bottom}"/>'
                f'<text class="tick" x="{place}" y="{bottom + 14}" text-anchor="middle">{x_format(value)}</text>'
            )
        for value in self.y.ticks():
            place = f"{self.y(value):.1f}"
            frame.append(
                f'<path class="grid" d="M{left} {place}H{right}"/><text class="tick" x="{left - 5}" '
                f'y="{float(place) + 4:.1f}" text-anchor="end">{y_format(value)}</text>'
            )
        frame.append(
            f'<text class="axis" x="{(left + right) / 2}" y="{self.height - 6}" text-anchor="middle">'
            f"{escape(self.titles[0])}</text>"
        )
        middle = (top + bottom) / 2
        frame.append(
            f'<text class="axis" transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.titles[1])}</text>"
        )
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{escape(label)}">{"".join(frame)}{"".join(self.parts)}</svg>'
        )


# ---- the roofline ----


def roofline(run, groups, most, width, height):
    """Every row, or the worst of them, at its operations per byte and its rate, under what the machine can do on all
    threads."""
    rows = run.worst([row for row in run.rows if row.operations and row["threads"] == run.threads], most)
    peak = run.peak(run.threads)
    if not rows or not peak:
        return ""
    levels = [(level, run.bandwidth(level, "read", run.threads)) for level in run.levels()]
    levels = [(level, speed) for level, speed in levels if speed]
    intensities = [row.operations / row["bytes"] for row in rows]
    rates = [row.operations / row.seconds / 1e9 for row in rows]
    x = Log(min(intensities + [0.1]) / 1.5, max(intensities + [100]) * 1.5, 0, 0)
    y = Log(min(rates) / 2, max(rates + [peak / 1e9]) * 1.8, 0, 0)
    plot = Plot(width, height, x, y, "operations per byte of tensors", "Gop/s")
    for level, speed in levels:
        corner = peak / speed
        if corner <= x.low:
            continue
        start = max(x.low, y.low * 1e9 / speed)
        plot.line(
            [(start, start * speed / 1e9), (min(corner, x.high), min(peak, x.high * speed) / 1e9)],
            "roof",
            f"{level}: {speed / 1e9:.0f} GB/s of reads",
        )
        plot.text_along(start, speed / 1e9, f"{level} {speed / 1e9:.0f} GB/s", "roof-name")
    lowest = min((peak / speed for _, speed in levels), default=x.low)
    plot.line([(max(x.low, lowest), peak / 1e9), (x.high, peak / 1e9)], "roof", "peak of multiply-adds")
    plot.text(x.high, peak / 1e9, f"peak {peak / 1e9:.0f} GFLOP/s", "roof-name", "end", dy=-5)
    order = list(groups)
    for row, intensity, rate in zip(rows, intensities, rates):
        css = f"g{order.index(row['group']) % 9}" + (" hollow" if row["state"] == "cold" else "")
        plot.point(
            intensity, rate, css, f"{row['name']}: {significant(rate)} Gop/s, {row.fraction_text} of its own limit"
        )
    return plot.svg("Roofline of the machine with every kernel")


def group_legend(groups):
    keys = "".join(
        f'<span class="key"><i class="mark circle g{i % 9}"></i>{escape(name)}</span>' for i, name in enumerate(groups)
    )
    return (
        f'<p class="legend">{keys}<span class="key"><i class="mark circle hollow"></i>hollow: out of cache</span></p>'
    )


# ---- ratios of a group ----


LEAST_RATIO, MOST_RATIO = 0.25, 16


def ratio_place(ratio):
    """Percent of the track; the ends hold what is beyond."""
    return Log(LEAST_RATIO, MOST_RATIO, 0, 100)(ratio)


def ratio_bars(rows, peers, palette):
    """A track per row: the peers' times over ours on a logarithmic scale, with the noise of the row round 1."""
    ticks = (0.25, 0.5, 1, 2, 4, 8, 16)
    scale = "".join(f'<span style="left:{ratio_place(tick):.2f}%">{tick:g}×</span>' for tick in ticks)
    lines = []
    for row in rows:
        marks = []
        nearest = min((row.ratio(peer) for peer in peers if row.ratio(peer)), default=None)
        if nearest is not None:  # a bar from 1 to the fastest peer
            low, high = sorted((ratio_place(1), ratio_place(nearest)))
            css = "gain" if nearest > 1 else "loss"
            marks.append(f'<i class="{css}" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>')
        noise = min(row["noise"], 0.9)
        low, high = ratio_place(1 / (1 + noise)), ratio_place(1 + noise)
        marks.append(f'<i class="noise" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>')
        for peer in peers:
            ratio = row.ratio(peer)
            if ratio:
                beyond = " beyond" if not LEAST_RATIO <= ratio <= MOST_RATIO else ""
                tie = " (tie)" if row.peer(peer)["verdict"] == "tie" else ""
                marks.append(
                    f'<i class="mark {palette.css(peer)}{beyond}" style="left:{ratio_place(ratio):.2f}%" '
                    f'title="{escape(peer)}: {ratio_text(ratio)}{tie}"></i>'
                )
        label = row_label(row)
        lines.append(
            f'<div class="row"><span class="name" title="{escape(row["name"])}">{escape(label)}</span>'
            f'<span class="time">{time_text(row.seconds)}</span><span class="track">{"".join(marks)}</span></div>'
        )
    return f'<div class="bars"><div class="row scale"><span class="track">{scale}</span></div>{"".join(lines)}</div>'


def row_label(row):
    parts = row["name"].split("/")
    return f"{parts[0]} {' '.join(parts[1:])}"


# ---- fractions of the limit ----


def limit_bars(rows, most):
    """How much of the limit each row reached, the least first."""
    lines = []
    for row in sorted(rows, key=lambda each: each.fraction)[:most]:
        part = min(row.fraction, 1.25) / 1.25 * 100
        lines.append(
            f'<div class="row"><span class="name">{escape(row_label(row))}</span><span class="time">'
            f'{row.fraction_text}</span><span class="track"><i class="fill {row.bound_by}" '
            f'style="left:0;width:{part:.1f}%" title="{row.fraction_text} of {row.bound_by}"></i>'
            f'<i class="one" style="left:80%"></i></span></div>'
        )
    return f'<div class="bars">{"".join(lines)}</div>'


# ---- scaling ----


def scaling(rows, key, palette, peers, title, x_title):
    """Rates against rows or width, with the peers and the limit: a small plot."""
    rows = sorted(rows, key=lambda row: row[key])
    use_flops = rows[0].has_roofline
    amount = (lambda row: row["flops"]) if use_flops else (lambda row: row["bytes"])
    values = [row[key] for row in rows]
    series = {"halyard": [(row[key], amount(row) / row.seconds / 1e9) for row in rows]}
    for peer in peers:
        points = [(row[key], amount(row) / (row.seconds * row.ratio(peer)) / 1e9) for row in rows if row.ratio(peer)]
        if len(points) > 1:
            series[peer] = points
    limit = [(row[key], amount(row) / row["limit_seconds"]["median"] / 1e9) for row in rows]
    rates = [rate for points in [*series.values(), limit] for _, rate in points]
    x = Log(min(values) / 1.15, max(values) * 1.15, 0, 0)
    y = Log(min(rates) / 1.3, max(rates) * 1.3, 0, 0, base=2 if max(rates) / min(rates) < 30 else 10)
    plot = Plot(340, 230, x, y, x_title, "GFLOP/s" if use_flops else "GB/s")
    plot.line(limit, "limit", "limit of the machine, measured beside each row")
    for name, points in series.items():
        plot.line(points, palette.colour(name), name)
        for place, rate in points:
            plot.point(place, rate, palette.colour(name), f"{name}, {place}: {significant(rate)}", 3)
    step = math.ceil(len(values) / 6)
    drawing = plot.svg(
        title,
        x_ticks=list(dict.fromkeys(values))[::step],
        x_format=lambda value: f"{value:g}",
        y_format=lambda value: short_number(round(value, 3)),
    )
    legend = palette.legend(list(series)[1:], ours="halyard")
    return f'<figure class="small"><figcaption>{escape(title)}</figcaption>{drawing}{legend}</figure>'


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
                peers = run.peers_of(rows, with_own=False)
                figures.append((len(rows), scaling(rows, key, palette, peers, name, title)))
    figures.sort(key=lambda each: -each[0])
    return [figure for _, figure in figures[:most]]


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
        lines.append(
            f'<div class="row"><span class="name">{escape(row_label(row).rsplit(" ", 1)[0])}</span>'
            f'<span class="time">{gain:.2f}×</span><span class="track"><i class="fill reading" '
            f'style="left:0;width:{min(gain / run.threads, 1.25) / 1.25 * 100:.1f}%"></i>'
            '<i class="one" style="left:80%"></i></span></div>'
        )
    return f'<div class="bars">{"".join(lines)}</div>'


def hot_and_cold(run):
    """(kernel and type, hot row, cold row) on all threads: of the same shape where there are such, else the largest of
    each state."""
    states = {}
    for row in run.rows:
        if row["threads"] == run.threads and "family" not in row.data:
            states.setdefault((row["kernel"], row["dtype"]), {}).setdefault(row["state"], []).append(row)
    pairs = []
    for (kernel, dtype), of_state in states.items():
        if len(of_state) == 2:
            choices = [(hot, cold) for hot in of_state["hot"] for cold in of_state["cold"]]
            best = max(choices, key=lambda each: (each[0].shape == each[1].shape, sum(row["bytes"] for row in each)))
            pairs.append((f"{kernel} {dtype}", *best))
    return pairs


def hot_cold_bars(pairs):
    speeds = [row.bytes_per_second / 1e9 for _, hot, cold in pairs for row in (hot, cold)]
    scale = Log(min(speeds) / 1.2, max(speeds) * 1.2, 0, 100)
    lines = []
    for name, hot, cold in pairs:
        marks = []
        places = [scale(row.bytes_per_second / 1e9) for row in (hot, cold)]
        low, high = min(places), max(places)
        marks.append(f'<i class="bridge" style="left:{low:.2f}%;width:{high - low:.2f}%"></i>')
        for css, row, place in zip(("hot", "cold"), (hot, cold), places):
            rate = row.bytes_per_second / 1e9
            marks.append(
                f'<i class="mark circle {css}" style="left:{place:.2f}%" '
                f'title="{escape(row["name"])}: {rate:.1f} GB/s, {row.fraction_text} of its limit"></i>'
            )
        name += f" {hot.shape}" if hot.shape == cold.shape else f" {hot.shape} and {cold.shape}"
        rates = f"{significant(hot.bytes_per_second / 1e9)} / {significant(cold.bytes_per_second / 1e9)}"
        lines.append(
            f'<div class="row"><span class="name">{escape(name)}</span><span class="time wide">{rates}</span>'
            f'<span class="track">{"".join(marks)}</span></div>'
        )
    keys = (
        '<p class="legend"><span class="key"><i class="mark circle hot"></i>in cache</span><span class="key">'
        '<i class="mark circle cold"></i>out of cache</span></p>'
    )
    return f'{keys}<div class="bars">{"".join(lines)}</div>'


# ---- accuracy ----


def accuracy_plot(run, palette, rows, width, height):
    """Each peer's largest error and time, both against ours at 1."""
    peers = [name for name in run.peers if name not in run.own_peers]
    points = []
    for row in rows:
        for peer in peers:
            result, ratio = row.peer(peer), row.ratio(peer)
            if ratio and result.get("ulps"):
                points.append((result["ulps"], ratio, peer, row))
    ours = [(row["ulps"], 1.0, "halyard", row) for row in rows if row.get("ulps")]
    if not points:
        return ""
    errors = [each[0] for each in points + ours]
    x = Log(max(min(errors) / 1.5, 0.05), max(max(errors) * 1.5, 10), 0, 0)
    y = Log(
        min([each[1] for each in points] + [0.5]) / 1.2, max([each[1] for each in points] + [2]) * 1.2, 0, 0, base=2
    )
    plot = Plot(width, height, x, y, "largest error, ULP", "time over ours")
    plot.line([(x.low, 1), (x.high, 1)], "limit", "our time")
    for error, ratio, name, row in points + ours:
        plot.point(
            error,
            ratio,
            palette.colour(name) + " dot",
            f"{name}, {row_label(row)}: {ulp_text(error)} ULP, {ratio_text(ratio)}",
            3.5,
        )
    return plot.svg("Largest error against time", y_format=lambda value: f"{value:g}×")


def level_table(run):
    """Bandwidth by level and stream."""
    streams = list(dict.fromkeys(each["stream"] for each in run.limits["bandwidth"]))
    lines = {}
    for each in run.limits["bandwidth"]:
        level = f"{each['level']}, {threads_text(each['threads'])} ({bytes_text(each['working_set'])})"
        lines.setdefault(level, [level]).append(f"{each['bytes_per_second'] / 1e9:.1f}")
    return [""] + streams, list(lines.values())

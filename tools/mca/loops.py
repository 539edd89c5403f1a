"""Innermost loops of compiled functions, from their disassembly, and what is in them.

A loop is what lies between the target of a backward branch and that branch, if the branch is reached by way of the target
alone: code that is moved out of the way, as what masks do is, branches back too. An innermost loop holds no other. Nothing is
marked by hand: of a function's innermost loops, the hot ones are those that do most.
"""
import bisect
import dataclasses
import re
import subprocess

INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*?)\s*$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
LEAVES = re.compile(r"^(?:b|br|ret|jmp|ret[lq])$")  # and never goes on to the next instruction
BRANCH = re.compile(r"^(?:b(?:\.\w+)?|cbn?z|tbn?z|j\w+)$")
TARGET = re.compile(r"(?:^|,\s*)(?:0x)?([0-9a-f]+)(?:\s+<[^>]*>)?$")


@dataclasses.dataclass
class Instruction:
    address: int
    name: str
    operands: str


@dataclasses.dataclass
class Loop:
    function: str
    instructions: list
    flops: int        # of floats; a multiply-add counts two
    loaded: int       # bytes, but from the stack
    stored: int       # bytes, but to the stack
    stack: int        # loads and stores of the stack

    def density(self):
        return (self.flops + self.loaded + self.stored) / len(self.instructions)

    def text(self):
        """For llvm-mca: what the loop does, each branch to the next instruction."""
        lines = []
        for number, each in enumerate(self.instructions):
            operands = each.operands
            if BRANCH.match(each.name):
                operands = TARGET.sub("", operands) + (", " if TARGET.sub("", operands) else "") + f".Lnext{number}"
            lines.append(f"{each.name} {operands}")
            if BRANCH.match(each.name):
                lines.append(f".Lnext{number}:")
        return "\n".join(lines) + "\n"


class Arm:
    """What AArch64 instructions do."""
    triple = "aarch64-linux-gnu"
    LANES = re.compile(r"v\d+\.(\d+)([bhsd])")
    SIZES = {"q": 16, "d": 8, "s": 4, "h": 2, "b": 1, "x": 8, "w": 4}
    BINARY = re.compile(r"^f(add|sub|mul|div|min|max|minnm|maxnm|sqrt|neg|abs)$")
    FUSED = re.compile(r"^(fml[as]|fn?m(add|sub))$")

    @classmethod
    def flops(cls, each):
        vector = cls.LANES.match(each.operands)
        lanes = int(vector.group(1)) if vector else 1
        if cls.FUSED.match(each.name):
            return 2 * lanes
        return lanes if cls.BINARY.match(each.name) else 0

    @classmethod
    def moved(cls, each):
        """(bytes loaded, bytes stored)"""
        if not re.match(r"^(ld|st)", each.name) or each.name.startswith("stlr"):
            return 0, 0
        registers = each.operands.split("[")[0]
        structure = cls.LANES.findall(registers)
        if re.match(r"^(ld|st)\d", each.name):
            single = re.search(r"\}\[\d+\]", registers)
            size = sum((1 if single or each.name.endswith("r") else int(n)) * {"b": 1, "h": 2, "s": 4, "d": 8}[t]
                       for n, t in structure)
            if single and not structure:
                size = {"b": 1, "h": 2, "s": 4, "d": 8}[re.search(r"\.([bhsd])", registers).group(1)]
        else:
            size = sum(cls.SIZES[r] for r in re.findall(r"\b([qdshbxw])(?:\d+|zr)\b", registers))
            size = {"b": 1, "h": 2}.get(each.name[-1], size) if each.name in ("ldrb", "ldrh", "strb", "strh") else size
        return (size, 0) if each.name.startswith("ld") else (0, size)

    @staticmethod
    def on_stack(each):
        return bool(re.search(r"\[sp\b", each.operands))


class X86:
    """What x86-64 instructions in AT&T syntax do."""
    triple = "x86_64-linux-gnu"
    WIDTH = {"x": 16, "y": 32, "z": 64}
    BINARY = re.compile(r"^v?(add|sub|mul|div|min|max|sqrt)[ps]s$")
    FUSED = re.compile(r"^vfn?m(add|sub)\d{3}[ps]s$")

    @classmethod
    def flops(cls, each):
        found = re.findall(r"%([xyz])mm", each.operands)
        lanes = 1 if each.name.endswith("ss") or not found else max(cls.WIDTH[w] for w in found) // 4
        if cls.FUSED.match(each.name):
            return 2 * lanes
        return lanes if cls.BINARY.match(each.name) else 0

    @classmethod
    def moved(cls, each):
        if "(" not in each.operands or each.name.startswith(("lea", "prefetch", "nop", "cs")):
            return 0, 0
        found = re.findall(r"%([xyz])mm", each.operands)
        if not found:
            return 0, 0
        size = 4 if re.search(r"ss$|ss[lq]?$|broadcast", each.name) else max(cls.WIDTH[w] for w in found)
        if re.match(r"^v?pmovzx|^vcvtph2ps|^vcvtps2ph", each.name):
            size //= 2
        stores = "(" in each.operands.rsplit(",", 1)[-1] or each.operands.endswith(")")
        stores = stores and re.match(r"^v?(mov|cvtps2ph|pmov[sdw]|extract)", each.name)
        return (0, size) if stores else (size, 0)

    @staticmethod
    def on_stack(each):
        return bool(re.search(r"\(%[re]sp", each.operands))


def disassembly(objdump, path):
    return subprocess.run([objdump, "-d", "--no-show-raw-insn", str(path)], check=True, capture_output=True, text=True).stdout


def functions(text):
    """(name, instructions) of each function of a disassembly."""
    name, body = None, []
    for line in text.splitlines():
        function = FUNCTION.match(line)
        if function:
            if body:
                yield name, body
            name, body = function.group(1), []
            continue
        match = INSTRUCTION.match(line)
        if match:
            operands = re.sub(r"\s+(//|# ).*$", "", match.group(3))
            body.append(Instruction(int(match.group(1), 16), match.group(2), operands))
    if body:
        yield name, body


def branches(body):
    """{index of a branch: index of its target} of a function."""
    at = {each.address: index for index, each in enumerate(body)}
    found = {}
    for index, each in enumerate(body):
        target = TARGET.search(each.operands) if BRANCH.match(each.name) else None
        if target and int(target.group(1), 16) in at:
            found[index] = at[int(target.group(1), 16)]
    return found


def dominators(body, targets):
    """{index that begins a block: the set of those that every way to it goes through, itself among them}."""
    starts = sorted({0} | set(targets.values()) | {index + 1 for index in range(len(body) - 1)
                                                   if index in targets or LEAVES.match(body[index].name)})
    before = {start: [] for start in starts}
    for start, end in zip(starts, starts[1:] + [len(body)]):
        if end - 1 in targets:
            before[targets[end - 1]].append(start)
        if end < len(body) and not LEAVES.match(body[end - 1].name):
            before[end].append(start)
    found = {start: {start} if start == 0 else set(starts) for start in starts}
    changed = True
    while changed:
        changed = False
        for start in starts[1:]:
            common = set.intersection(*(found[each] for each in before[start])) if before[start] else set()
            if found[start] != common | {start}:
                found[start] = common | {start}
                changed = True
    return starts, found


def loop_spans(body):
    """{(index of the first instruction, index of the last)} of a function's loops."""
    targets = branches(body)
    starts, found = dominators(body, targets)
    return {(begin, end) for end, begin in targets.items()
            if begin <= end and begin in found[starts[bisect.bisect(starts, end) - 1]]}


def innermost_loops(arch, text):
    loops = []
    for name, body in functions(text):
        spans = loop_spans(body)
        for begin, end in spans:
            if any((b, e) != (begin, end) and begin <= b and e <= end for b, e in spans):
                continue
            inside = body[begin:end + 1]
            moved = [arch.moved(each) for each in inside if not arch.on_stack(each)]
            loops.append(Loop(name, inside, sum(arch.flops(each) for each in inside),
                              sum(m[0] for m in moved), sum(m[1] for m in moved),
                              sum(arch.on_stack(each) for each in inside)))
    return loops

"""Runs clang-tidy over our C++ and CUDA sources, all cores, skipping files that passed unchanged.

Usage: tidy.py BUILD_DIR

A layer's .cu file is read as C++, its device half left out, as the CPU build compiles it. In a CUDA
build it has only nvcc's command, so it borrows the flags of a C++ file beside it.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDY = ROOT / ".venv/bin/clang-tidy"
OURS = ("kernels", "server", "tests")


def host_flags(command: str) -> list[str]:
    """The flags of a compile command that say how to read the source, for clang."""
    words = shlex.split(command)
    flags = []
    position = 0
    while position < len(words):
        word = words[position]
        if word in ("-I", "-isystem", "-D"):
            flags += words[position : position + 2]
            position += 1
        elif word.startswith(("-I", "-isystem", "-D", "-std=")):
            flags.append(word)
        position += 1
    return flags


def omp_include() -> list[str]:
    """Where gcc keeps omp.h, which clang's own headers lack here."""
    found = subprocess.run(
        ["g++", "-print-file-name=include"], capture_output=True, text=True, check=True
    )
    # After clang's own headers: gcc's intrinsics don't parse there.
    return ["-fopenmp", "-idirafter", found.stdout.strip()]


class Source:
    """One file to check: its flags, and the files of ours that it is made from."""

    def __init__(self, path: pathlib.Path, flags: list[str], inputs: set[pathlib.Path]) -> None:
        self.path = path
        self.flags = flags
        self.inputs = inputs

    def digest(self) -> str:
        """Changes whenever a run of clang-tidy could give another answer."""
        digest = hashlib.sha256(" ".join(self.flags).encode())
        tidy_version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
        digest.update(tidy_version)
        for path in sorted({self.path, ROOT / ".clang-tidy", *self.inputs}):
            digest.update(str(path).encode() + path.read_bytes())
        return digest.hexdigest()


def dependencies(build: pathlib.Path) -> dict[str, set[pathlib.Path]]:
    """For each object file, the files of ours that ninja recorded it was compiled from."""
    listing = subprocess.run(
        ["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True
    ).stdout
    result: dict[str, set[pathlib.Path]] = {}
    target = ""
    for line in listing.splitlines():
        if line and not line.startswith(" "):
            target = line.split(": #deps")[0]
            result[target] = set()
        elif line.strip():
            path = (build / line.strip()).resolve()
            if path.is_relative_to(ROOT) and path.exists() and ".cuda" not in path.parts:
                result[target].add(path)
    return result


def sources(build: pathlib.Path) -> list[Source]:
    """Every source of ours in the compilation database of this build."""
    depends = dependencies(build)
    entries = json.loads((build / "compile_commands.json").read_text())
    donor = next((e["command"] for e in entries if e["file"] == str(ROOT / "kernels/layer.cc")), "")
    extra = omp_include()
    result = []
    for entry in entries:
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in OURS:
            continue
        is_cuda = path.suffix == ".cu"
        if is_cuda and path.parent.name != "layers":
            continue  # device code alone: nothing for a C++ parser
        words = shlex.split(entry["command"])
        target = entry.get("output") or words[words.index("-o") + 1]
        flags = host_flags(donor if is_cuda and "nvcc" in words[0] + words[1] else entry["command"])
        flags = [flag for flag in flags if flag != "-DKERNELBOX_CUDA"] if is_cuda else flags
        result.append(Source(path, [*flags, *extra, "-xc++"], depends.get(target, set())))
    return result


def check(source: Source, stamps: pathlib.Path) -> tuple[bool, bool, str]:
    """Whether the source passed, whether that was known before, and what clang-tidy said."""
    name = str(source.path.relative_to(ROOT)).replace("/", "__")
    stamp = stamps / name
    digest = source.digest()
    if stamp.exists() and stamp.read_text() == digest:
        return True, True, ""
    run = subprocess.run(
        [TIDY, "--quiet", source.path, "--", *source.flags],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if run.returncode == 0:
        stamp.write_text(digest)
    errors = [line for line in run.stderr.splitlines() if "warnings generated" not in line]
    return run.returncode == 0, False, run.stdout + "\n".join(errors)


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    stamps = build / "tidy"
    stamps.mkdir(exist_ok=True)
    todo = sources(build)
    failed = known = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, (passed, cached, output) in zip(
            todo, pool.map(lambda item: check(item, stamps), todo), strict=True
        ):
            known += cached
            if not passed:
                failed += 1
                print(f"{source.path.relative_to(ROOT)}:\n{output}")
    print(f"{len(todo)} files, {known} of them unchanged since they passed, {failed} with faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

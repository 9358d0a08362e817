"""The maintainers' check of types: python .ci/type_check.py [--fresh]

Every ```python block of the README has to please `mypy --strict` beside mcp_server.py, and what
is wrong in WRONG has to be found. mcp_server.py itself is not checked: its inside has no types.
One line per file; exit 1 if one failed.
"""
import re
import shutil
import sys
import tempfile
from pathlib import Path

from interop import CACHE, HERE, counts, output_of, python_client, report

# Each line that ends with a comment is a mistake, and mypy has to call it that.
WRONG = '''
from mcp_server import Context, Server, prompt, register, resource

register(5)                      # call-overload

@register
def add(a: int, b: int) -> int:
    return a + b

add("2", 3)                      # arg-type

@register(name="wait", timeout=60)
def wait(seconds: float, ctx: Context) -> None:
    ctx.sleep("x")               # arg-type
    for number in ctx.track([1, 2]):
        number.lower()           # attr-defined

wait(1)                          # call-arg

@resource("notes://{topic}")
def note(topic: str) -> str:
    return topic

note(5)                          # arg-type

@prompt
def ask(topic: str) -> str:
    return topic

ask(5)                           # arg-type
register(nam="wait")             # call-overload
Server(timeout="60")             # arg-type
'''


def check(python, folder, name):
    """What mypy finds in one file -> [(line, "arg-type"), ...], and all that it says."""
    status, stdout, stderr = output_of(
        [python, "-m", "mypy", "--strict", "--follow-imports=silent", name], 120, folder)
    if status not in (0, 1):
        raise OSError(f"mypy: exit status {status}: {stdout} {stderr}")
    found = re.findall(r"^\S+?:(\d+): error: .*  \[(.*)\]$", stdout, re.M)
    if (status == 1) != bool(found):
        raise OSError(f"mypy: {stdout} {stderr}")
    return [(int(line), kind) for line, kind in found], stdout


def verdict(name, problem):
    report("FAIL" if problem else "PASS", "mypy", name, " ".join(problem.split())[:500])


def main():
    if "--fresh" in sys.argv[1:]:
        shutil.rmtree(CACHE / "mypy", ignore_errors=True)
    python = python_client("mypy", "mypy")
    readme = (HERE.parent / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE.parent / "mcp_server.py", folder)
        for number, code in enumerate(blocks if python else ()):
            name = re.match(r"# (\w+\.py)\n|", code)[1] or f"block_{number}.py"
            Path(folder, name).write_text(code, "utf-8")
            errors, said = check(python, folder, name)
            verdict(name, "it has a type: ignore" if "type: ignore" in code else
                    said if errors else "")
        if python:
            Path(folder, "wrong.py").write_text(WRONG, "utf-8")
            wanted = [(number, line.partition("# ")[2])
                      for number, line in enumerate(WRONG.splitlines(), 1) if "# " in line]
            errors, said = check(python, folder, "wrong.py")
            verdict("wrong.py", "" if errors == wanted else f"wanted {wanted}, got {said}")
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed")
    return 1 if counts["FAIL"] or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())

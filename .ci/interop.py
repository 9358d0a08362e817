"""The maintainers' check with real clients: python .ci/interop.py [--fresh] [--python PYTHON]

Installs the newest clients in a cache folder (once; --fresh does it again) and lets each of them
work through .ci/interop_server.py. One line per step; exit 1 if one failed.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcp_server_interop"
# The Inspector wants a newer node than many machines have, so that comes from npm, too.
NODE_PACKAGES = ["@modelcontextprotocol/inspector@latest", "@modelcontextprotocol/client@2",
                 "@modelcontextprotocol/sdk@1", "node@22"]
counts = {"PASS": 0, "FAIL": 0}


def report(verdict, label, step, reason=""):
    counts[verdict] += 1
    print(f"{verdict} {label} {step} {reason}".rstrip(), flush=True)


def output_of(command, seconds, cwd=None):
    """The exit status, stdout and stderr; the status is None when it took too long."""
    process = subprocess.Popen(command, cwd=cwd, text=True, encoding="utf-8", errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=seconds)
        return process.returncode, stdout, stderr
    except subprocess.TimeoutExpired:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)    # the session that was started above
        else:
            process.kill()
        try:
            stdout, stderr = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:    # something left the session and holds the pipes
            stdout = stderr = ""
        return None, stdout, stderr


def last_line(stdout, stderr):
    lines = (stderr.strip() or stdout.strip() or "no output").splitlines()
    return lines[-1]


# ----------------------------------------------------------------------- installing


def installed(folder, packages, install):
    """Whether `folder` has the packages, after installing them if need be."""
    stamp = folder / "installed.json"
    if stamp.exists() and json.loads(stamp.read_text()) == packages:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        install()
    except Exception as error:
        report("FAIL", folder.name, "install", error)
        return False
    stamp.write_text(json.dumps(packages))
    return True


def must(command, cwd):
    status, stdout, stderr = output_of(command, 600, cwd)
    if status != 0:
        lines = (stderr.strip() or stdout.strip() or "took too long").splitlines()
        errors = [line for line in lines if line.lower().startswith(("error", "npm error"))]
        raise OSError(" ".join((errors or lines)[:3]))


def python_client(name, requirement):
    """The interpreter of a virtual environment with that client, or None."""
    folder = CACHE / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def install():
        venv.create(folder, with_pip=True)
        must([str(python), "-m", "pip", "install", "-q", requirement], folder)
    return str(python) if installed(folder, [requirement], install) else None


def node_packages(name, packages):
    """A folder with these packages in node_modules, or None."""
    folder = CACHE / name

    def install():
        npm = shutil.which("npm")
        if not npm:
            raise OSError("there is no npm")
        (folder / "package.json").write_text('{"private": true}')
        must([npm, "install", "--no-audit", "--no-fund", "--loglevel=error", *packages], folder)
    return folder if installed(folder, packages, install) else None


# -------------------------------------------------------------------------- running


def run_client(label, command, cwd=None):
    """A client script that prints its steps."""
    status, stdout, stderr = output_of(command, 120, cwd)
    failed = False
    for line in stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        if verdict in counts:
            failed |= verdict == "FAIL"
            report(verdict, label, *rest.split(" ", 1))
    if status != (1 if failed else 0):
        what = "took too long" if status is None else f"exit status {status}"
        report("FAIL", label, "run", f"{what}: {last_line(stdout, stderr)}")


def inspector_steps():
    def fixed(result):
        return result["contents"][0]["text"] == "fixed note"
    return [
        ("tools/list", ["--strict"], lambda result: len(result["tools"]) == 8),
        ("tools/call", ["--tool-name", "add", "--tool-arg", "a=2", "b=3"],
         lambda result: result["structuredContent"] == {"total": 5, "terms": [2, 3]}),
        ("resources/list", [], lambda result: result["resources"][0]["uri"] == "note://fixed"),
        ("resources/templates/list", [],
         lambda result: result["resourceTemplates"][0]["uriTemplate"] == "note://by/{topic}"),
        ("resources/read", ["--uri", "note://fixed"], fixed),
        ("prompts/list", [], lambda result: result["prompts"][0]["name"] == "review"),
        ("prompts/get", ["--prompt-name", "review", "--prompt-args", "language=python"],
         lambda result: result["messages"][0]["content"]["text"] == "Review this python: pass"),
    ]


def run_inspector(label, command):
    """The Inspector's command line: one process per step."""
    for method, options, good in inspector_steps():
        status, stdout, stderr = output_of([*command, "--connect-timeout", "5000",
                                            "--method", method, *options], 15)
        reason = f"exit status {status}: {last_line(stdout, stderr)}"
        if status == 0:
            try:
                reason = "" if good(json.loads(stdout)) else f"unexpected: {stdout}"
            except (ValueError, LookupError) as error:
                reason = f"unexpected ({error!r}): {stdout}"
        report("FAIL" if reason else "PASS", label, method, " ".join(reason.split())[:300])
        if status is None:
            break    # so would the others


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--fresh", action="store_true", help="install the clients again")
    options.add_argument("--python", default=sys.executable, help="what runs the server")
    options = options.parse_args()
    if options.fresh:
        shutil.rmtree(CACHE, ignore_errors=True)
    server = [options.python, str(HERE / "interop_server.py")]
    started = time.monotonic()

    for name, requirement, modes in (("mcp-2.x", "mcp>=2,<3", ("auto", "legacy")),
                                     ("mcp-1.x", "mcp>=1,<2", ("1.x",))):
        python = python_client(name, requirement)
        for mode in modes if python else ():
            label = name if mode == "1.x" else f"{name}-{mode}"
            run_client(label, [python, str(HERE / "interop_client.py"), mode, *server])

    folder = node_packages("npm", NODE_PACKAGES)
    if folder:
        node = str(folder / "node_modules" / ".bin" / "node")
        for label, mode in (("ts-2.x-auto", "auto"), ("ts-2.x-legacy", "legacy"),
                            ("ts-1.x", "1.x")):
            run_client(label, [node, str(HERE / "interop_client.mjs"), mode, *server], folder)
        inspector = str(folder / "node_modules" / ".bin" / "mcp-inspector")
        for era in ("legacy", "modern"):
            run_inspector(f"inspector-{era}",
                          [node, inspector, "--cli", *server, "--protocol-era", era])

    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())

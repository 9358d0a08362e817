"""The maintainers' check on Python 3.14, where none is at hand: python .ci/newest_python.py

Pyodide is CPython in WebAssembly and comes from npm. It has no threads, processes or sockets, so
a test that asks for one is left out; those that remain try what is new in 3.14, such as
annotations that are looked up late. One line per failure; exit 1 if there is one, or if hardly
any test could be run.
"""
import re
import resource
import sys
from pathlib import Path

from interop import HERE, counts, node_packages, output_of, report

SCRIPT = '''
import { loadPyodide } from "pyodide";
const python = await loadPyodide({ stdout: console.log, stderr: console.error });
for (const [place, root] of [["/repository", process.argv[2]], ["/packages", process.argv[3]]]) {
    python.FS.mkdirTree(place);
    python.FS.mount(python.FS.filesystems.NODEFS, { root }, place);
}
await python.runPythonAsync(process.argv[4]);
'''
TESTS = '''
import faulthandler, os, sys
sys.dont_write_bytecode = True
sys.path[:0] = ["/repository", "/packages"]
os.chdir("/repository")
faulthandler.dump_traceback_later = lambda *args, **options: None  # it would need a thread
import pytest

class Possible:
    """Leaves out what fails for want of a thread, a process, a socket or a terminal."""

    wants = ("can't start new thread", "emscripten does not support", "Invalid argument",
             "out of pty devices")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        try:
            return (yield)
        except (OSError, RuntimeError) as error:
            if any(want in str(error) for want in self.wants):
                pytest.skip("not possible here")
            raise

pytest.main(["-q", "-p", "no:cacheprovider", "--tb=line", "-rf", "test_mcp_server.py"],
            plugins=[Possible()])
'''


def main():
    packages = next((path for path in sys.path if (Path(path) / "pytest").is_dir()), None)
    folder = node_packages("pyodide", ["pyodide@314"])
    if packages is None:
        report("FAIL", "3.14", "pytest", "run it with a Python that has pytest")
    elif folder:
        (folder / "run.mjs").write_text(SCRIPT)
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (most, most))  # some tests nest deeply
        _, stdout, stderr = output_of(["node", "--stack-size=50000", "run.mjs",
                                       str(HERE.parent), packages, TESTS], 120, folder)
        lines = stdout.splitlines() or stderr.splitlines() or ["no output"]
        for line in lines:
            if line.startswith("FAILED"):
                report("FAIL", "3.14", line)
        passed = re.search(r"(\d+) passed", lines[-1])
        good = passed and int(passed[1]) > 300 and "failed" not in lines[-1]
        report("PASS" if good else "FAIL", "3.14", "tests", lines[-1])
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed")
    return bool(counts["FAIL"])


if __name__ == "__main__":
    raise SystemExit(main())

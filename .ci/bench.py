#!/usr/bin/env python3
"""What mcp_server.py costs next to the floor: time, memory, threads.  Linux only.

    python3 .ci/bench.py            the floor and this server, about a minute
    python3 .ci/bench.py --quick    the same with fewer rounds, for a first look
    python3 .ci/bench.py --peers    also `mcp` and `fastmcp`, installed into a cache

Every contender is a black box: a process that is written to and read from through pipes,
with os.write and os.read, by the same client.  The rounds of the contenders are
interleaved, so that a busy moment of the machine hits all of them; a cell is the median of
its rounds, a ratio the median of the ratios in each round.  Round trips are measured with
client and server on one core: on two, they jump between two modes.
"""

import argparse
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                     "mcp_server_bench")
PEER_PYTHON = os.path.join(CACHE, "venv", "bin", "python")
PEERS = ("mcp", "fastmcp")
CORES = sorted(os.sched_getaffinity(0))
BOUND = 60  # seconds until a silent contender is a failure
# As users run it: with its .pyc, and with buffered streams.
ENV = {name: value for name, value in os.environ.items()
       if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
ENV["PYTHONPATH"] = ROOT

# -- the contenders: three typed tools, and sys.argv[1] more

TOOLS = '''
import sys, time

def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b

def echo(text: str) -> str:
    "Give the text back."
    return text

def work(kind: str, seconds: float) -> int:
    "Sleep or spin for some seconds; the number of modules loaded."
    end = time.perf_counter() + seconds
    if kind == "sleep":
        time.sleep(seconds)
    while kind == "spin" and time.perf_counter() < end:
        pass
    return len(sys.modules)
'''

MORE = '''
for number in range(int(sys.argv[1])):
    def more(a: int, b: int) -> int:
        "Add two integers."
        return a + b
    REGISTER
'''

FLOOR = TOOLS + '''
import json

def entry(function, name, **types):
    return {"name": name, "description": function.__doc__, "inputSchema": {
        "type": "object", "properties": {key: {"type": types[key]} for key in types},
        "required": list(types), "additionalProperties": False}}

functions = {"add": add, "echo": echo, "work": work}
entries = [entry(add, "add", a="integer", b="integer"), entry(echo, "echo", text="string"),
           entry(work, "work", kind="string", seconds="number")]
''' + MORE.replace("REGISTER", '''functions[f"more_{number}"] = more
    entries.append(entry(more, f"more_{number}", a="integer", b="integer"))''') + '''
def call(params):
    text = str(functions[params["name"]](**params["arguments"]))
    return {"content": [{"type": "text", "text": text}]}

def reply(message, result):
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    sys.stdout.buffer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\\n")
    sys.stdout.buffer.flush()

def serve(on_call):
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        message = json.loads(line)
        if "id" not in message:
            continue
        method = message["method"]
        if method == "tools/call":
            on_call(message)
        elif method == "tools/list":
            reply(message, {"tools": entries})
        elif method == "initialize":
            reply(message, {"protocolVersion": message["params"]["protocolVersion"],
                            "capabilities": {"tools": {}},
                            "serverInfo": {"name": "floor", "version": "1"}})
        else:
            reply(message, {})

def perform(message):
    reply(message, call(message["params"]))
'''

PLAIN_FLOOR = FLOOR + "serve(perform)\n"

# One parked worker is enough while calls are quick; a call that finds none gets another.
THREAD_FLOOR = FLOOR.replace("    sys.stdout.buffer.write(", "    with writing:\n"
                             "        sys.stdout.buffer.write(").replace(
    "    sys.stdout.buffer.flush()", "        sys.stdout.buffer.flush()") + '''
import threading
from queue import SimpleQueue
jobs, writing, parked, threads = SimpleQueue(), threading.Lock(), 0, 0

def live():
    global parked
    while True:
        parked += 1
        message = jobs.get()
        parked -= 1
        perform(message)

def hand_over(message):
    global threads
    jobs.put(message)
    if parked <= jobs.qsize() and threads < 512:
        threads += 1
        threading.Thread(target=live, daemon=True).start()

serve(hand_over)
'''

OURS = TOOLS + '''
from mcp_server import register, run
register(add), register(echo), register(work)
''' + MORE.replace("REGISTER", 'register(more, name=f"more_{number}")') + "run()\n"

PEER = '''
for tool in (add, echo, work):
    server.tool()(tool)
''' + MORE.replace("REGISTER", 'server.tool(name=f"more_{number}")(more)')

SOURCES = {
    "floor": PLAIN_FLOOR,
    "floor + thread": THREAD_FLOOR,
    "this server": OURS,
    "mcp": f"{TOOLS}\nfrom mcp.server import MCPServer\nserver = MCPServer('bench')\n{PEER}"
           "\nserver.run()\n",
    "fastmcp": f"{TOOLS}\nfrom fastmcp import FastMCP\nserver = FastMCP('bench')\n{PEER}"
               "\nserver.run(show_banner=False)\n",
}

# -- the client

def line(id, method, **params):
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"

def call(id, name, **arguments):
    return line(id, "tools/call", name=name, arguments=arguments)

HELLO = line(0, "initialize", protocolVersion="2025-06-18", capabilities={},
             clientInfo={"name": "bench", "version": "1"})
READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'

def percentile(times, percent):
    return sorted(times)[len(times) * percent // 100]

class Client:
    """One contender, running; `start` is the time from its spawn to its first answer."""

    def __init__(self, command):
        began = time.perf_counter()
        self.process = subprocess.Popen(command, env=ENV, stdin=subprocess.PIPE, bufsize=0,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.to, self.back = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.ask(HELLO)
        self.start = time.perf_counter() - began
        os.write(self.to, READY)

    def ask(self, line):
        """One short line there, one answer back."""
        os.write(self.to, line)
        answer = os.read(self.back, 65536)
        while not answer.endswith(b"\n"):
            more = os.read(self.back, 65536)
            if not more:
                raise EOFError(f"{self.process.args} has ended")
            answer += more
        return answer

    def exchange(self, data, lines):
        """Write any amount while reading -> seconds until so many lines are back."""
        began = time.perf_counter()
        data, poll = memoryview(data), select.poll()
        poll.register(self.back, select.POLLIN)
        poll.register(self.to, select.POLLOUT)
        os.set_blocking(self.to, False)
        while lines > 0:
            ready = dict(poll.poll(BOUND * 1000))
            if self.to in ready:
                data = data[os.write(self.to, data[:65536]):]
                if not data:
                    poll.unregister(self.to)
            if self.back in ready or not ready:
                answers = os.read(self.back, 2**20) if ready else b""
                if not answers:
                    raise EOFError(f"{self.process.args} has ended, or says nothing")
                lines -= answers.count(b"\n")
        os.set_blocking(self.to, True)
        return time.perf_counter() - began

    def p(self, percent, line, count):
        """A percentile of so many round trips, in seconds."""
        times = []
        for _ in range(count):
            began = time.perf_counter()
            self.ask(line)
            times.append(time.perf_counter() - began)
        return percentile(times, percent)

    def status(self, field):
        """A number from /proc: VmRSS and VmHWM (peak) are kB."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(next(row for row in file if row.startswith(field)).split()[1])

    def switches(self):
        """How often any of its threads has gone to sleep so far."""
        total, tasks = 0, f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/status") as file:
                total += int(next(row for row in file if row.startswith("volun")).split()[1])
        return total

    def close(self):
        """End its input -> seconds until it has ended."""
        began = time.perf_counter()
        self.process.stdin.close()
        self.process.wait()  # with a limit it would poll
        took = time.perf_counter() - began
        self.process.stdout.close()
        return took

class Bench:
    """The contenders, and the table that fills up."""

    def __init__(self, names, folder, quick):
        self.names, self.quick, self.rows, self.commands = names, quick, [], {}
        venv.create(os.path.join(folder, "venv"))  # whatever is installed costs start time
        bare = os.path.join(folder, "venv", "bin", "python")
        for name in names:
            path = os.path.join(folder, "serve_" + name.replace(" ", "") + ".py")
            with open(path, "w") as file:
                file.write(SOURCES[name])
            self.commands[name] = [PEER_PYTHON if name in PEERS else bare, path]

    def client(self, name, more=0):
        return Client([*self.commands[name], str(more)])

    def rounds(self, count, measure, names=None, more=0, fresh=False, one_core=False):
        """measure(client) in interleaved rounds -> {name: [a value for each round]}, or
        several of these if it gives several values."""
        names = [name for name in self.names if name in (names or self.names)]
        count = min(count, max(3, count // 8)) if self.quick else count
        found = {name: [] for name in names}
        os.sched_setaffinity(0, CORES[-1:] if one_core else CORES)  # children inherit it
        clients = {} if fresh else {name: self.client(name, more) for name in names}
        for number in range(count):
            for name in names[number % len(names):] + names[:number % len(names)]:
                client = self.client(name, more) if fresh else clients[name]
                found[name].append(measure(client))
                if fresh and client.process.poll() is None:
                    client.close()
        for client in clients.values():
            client.close()
        os.sched_setaffinity(0, CORES)
        if isinstance(found[names[0]][0], tuple):
            columns = [zip(*found[name]) for name in names]
            return [dict(zip(names, values)) for values in zip(*columns)]
        return found

    def row(self, figure, values, form="{:.1f}", than=None, at_most=None, at_least=None,
            ahead=None, note=""):
        """A row of the table: medians.  The goal bounds ours, or the median of the ratios
        to `than`, round by round, as whatever else the machine does changes meanwhile;
        ahead: the peers' values have to be worse, "less" or "more"."""
        rounds, limit = values["this server"], at_most if at_least is None else at_least
        got = statistics.median([one / other for one, other in zip(rounds, values[than])]
                                if than else rounds)
        met = got <= limit if at_least is None else got >= limit
        values = {name: statistics.median(values[name]) for name in values}
        ours = values["this server"]
        peers = [values[name] for name in PEERS if name in values]
        if ahead and peers:
            met = met and (ours < min(peers) if ahead == "more" else ours > max(peers))
        cells = [form.format(values[name]) if name in values else "-" for name in self.names]
        goal = f"{'<=' if at_least is None else '>='} {limit:g}{f' x {than}' * bool(than)}"
        self.rows.append([figure, *cells, goal + note, f"{got:.2f}" if than else "",
                          "ok" if met else "MISS"])
        print(".", end="", file=sys.stderr, flush=True)

    def print_table(self):
        head = ["figure", *self.names, "goal", "ratio", ""]
        for cells in [head, ["---"] * len(head), *self.rows]:
            print("| " + " | ".join(cells) + " |")

# -- the figures

ADD = call(1, "add", a=2, b=3)
PING = line(1, "ping")

def add_calls(count):
    return b"".join(call(number, "add", a=number, b=3) for number in range(count))

def start_and_memory(bench):
    starts, resident = bench.rounds(40, lambda client: (
        client.start * 1000, client.status("VmRSS") / 1024), fresh=True)
    bench.row("cold start to the first answer, ms", starts, than="floor", at_most=1.5)
    if "mcp" in bench.names:
        bench.row("the same", starts, than="mcp", at_most=1 / 20)
    modules = bench.rounds(1, lambda client: int(json.loads(client.ask(call(
        1, "work", kind="count", seconds=0)))["result"]["content"][0]["text"]), fresh=True)
    bench.row("modules loaded while serving", modules, "{:.0f}", at_most=70)
    bench.row("memory after the handshake, MB", resident, than="floor", at_most=1.25)

def round_trips(bench):
    pings = bench.rounds(80, lambda client: client.p(50, PING, 300) * 1e6, one_core=True)
    bench.row("`ping` p50, us, one core", pings, than="floor", at_most=1.3)
    calls = bench.rounds(80, lambda client: client.p(50, ADD, 300) * 1e6, one_core=True)
    bench.row("`tools/call` p50, us, one core", calls, than="floor", at_most=2, ahead="more")

def throughput(bench):
    data = add_calls(5000)
    rates = bench.rounds(20, lambda client: 5000 / client.exchange(data, 5000))
    bench.row("pipelined calls per s, 5,000 at once", rates, "{:,.0f}",
              than="floor + thread", at_least=1.2, ahead="less")
    batch = b"[" + b",".join(add_calls(100).splitlines()) + b"]\n"
    batches = bench.rounds(20, lambda client: 5000 / client.exchange(batch * 50, 50),
                           ["this server"])
    batches["pipelined"] = rates["this server"]
    bench.row("calls per s in batches of 100", batches, "{:,.0f}", than="pipelined",
              at_least=1)

def sleeps(bench):
    names = [name for name in bench.names if name != "floor"]  # it would take 100 s
    data = b"".join(call(number, "work", kind="sleep", seconds=0.2) for number in range(500))

    def sleep(client):
        took = client.exchange(data, 500)
        time.sleep(0.1)
        return took, client.status("Threads")

    took, left = bench.rounds(10, sleep, names, fresh=True)
    bench.row("500 x sleep(0.2), s", took, "{:.2f}", at_most=0.4)
    bench.row("threads left 0.1 s after them", left, "{:.0f}", at_most=16)

    def ping_beside(kind, calls, percent, count):
        def measure(client):
            for number in range(calls):
                os.write(client.to, call(number + 10, "work", kind=kind, seconds=0.6))
            time.sleep(0.1)  # until they run
            times, lines = [], 0
            while lines == len(times) < count:  # all that was answered are pings
                began = time.perf_counter()
                lines += client.ask(PING).count(b"\n")
                times.append(time.perf_counter() - began)
            client.exchange(b"", calls + len(times) - lines)
            return percentile(times, percent) * 1000
        return measure

    pings = bench.rounds(6, ping_beside("sleep", 8, 50, 100), names, one_core=True)
    bench.row("`ping` p50 while 8 tools sleep, ms, one core", pings, "{:.3f}",
              than="floor + thread", at_most=1.5)
    pings = bench.rounds(6, ping_beside("spin", 1, 99, 40), names)
    bench.row("`ping` p99 while a tool computes, ms", pings, "{:.2f}", at_most=5)

def large(bench):
    data = call(1, "echo", text="x" * (10 * 2**20))
    rates, peak = bench.rounds(10, lambda client: (
        10 / client.exchange(data, 1), client.status("VmHWM") / 1024))
    bench.row("echo of 10 MiB, MiB/s", rates, than="floor", at_least=0.8)
    bench.row("peak memory of that, MB", peak, than="floor", at_most=1.2)

def many_tools(bench):
    starts = bench.rounds(20, lambda client: client.start * 1000, more=997, fresh=True)
    bench.row("cold start with 1,000 tools, ms", starts, than="floor", at_most=2.5)
    listing = line(1, "tools/list")

    def list_again(client):
        client.exchange(listing, 1)
        return client.exchange(listing, 1) * 1000

    bench.row("`tools/list` of 1,000, second time, ms",
              bench.rounds(20, list_again, more=997), "{:.2f}", than="floor", at_most=1)

def long_run(bench):
    data, warm_up, chunks = add_calls(5000), 2, 2 if bench.quick else 20

    def grow(client):
        for number in range(warm_up + chunks):
            if number == warm_up:
                before = client.status("VmRSS")
            client.exchange(data, 5000)
        return (client.status("VmRSS") - before) / 1024

    grown = bench.rounds(1, grow, ["this server"], fresh=True)
    bench.row(f"memory growth over {chunks * 5000:,} calls, MB", grown, "{:.2f}", at_most=1)

    def wake_ups(client):
        client.ask(ADD)
        time.sleep(0.3)
        before = client.switches()
        time.sleep(1)
        return client.switches() - before

    idle = bench.rounds(1, wake_ups, ["this server"], fresh=True)
    bench.row("wake-ups per second when idle", idle, "{:.0f}", at_most=0)
    ends = bench.rounds(20, lambda client: client.close() * 1000, fresh=True)
    bench.row("exit after EOF, idle, ms", ends, than="floor", at_most=4)

def growth(costs):
    """[10, 9, 12] -> 1.33: how much more a larger size costs than some smaller one."""
    return max(cost / min(costs[:at + 1]) for at, cost in enumerate(costs))

def flatness(bench):
    def sweep(measures):
        """Rounds that go through all the sizes -> the growth of their medians."""
        found = [[] for _ in measures]
        for _ in range(5 if bench.quick else 40):
            for times, measure in zip(found, measures):
                times.append(measure())
        return {"this server": [growth([statistics.median(times) for times in found])]}

    os.sched_setaffinity(0, CORES[-1:])
    clients = [bench.client("this server", size) for size in (7, 97, 997, 9997)]
    grown = sweep([lambda client=client: client.p(50, ADD, 300) for client in clients])
    bench.row("growth of a call's cost, 10 to 10,000 tools", grown, "{:.2f} x", at_most=1.2)
    depths = [(depth, add_calls(depth)) for depth in (1, 10, 100, 1000)]
    grown = sweep([lambda depth=depth, data=data: sum(
        clients[0].exchange(data, depth) for _ in range(1000 // depth)) / 1000
        for depth, data in depths])
    bench.row("growth of a call's cost, 1 to 1,000 in flight", grown, "{:.2f} x", at_most=1.2)
    for client in clients:
        client.close()
    os.sched_setaffinity(0, CORES)

# -- validation, inside one process

VALIDATION = '''
import json, statistics, timeit
from jsonschema import Draft202012Validator
from mcp_server import prepare
TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 1, "maximum": 100}
def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)[:2],
            "additionalProperties": False}
CASES = {
    "two integers": (closed(a={"type": "integer"}, b={"type": "integer"}), {"a": 2, "b": 3}),
    "a search": (closed(query={"type": "string", "minLength": 1}, limit=COUNT,
        order={"enum": ["new", "old"]}), {"query": "cats", "limit": 10, "order": "new"}),
    "a list of 20 edits": (closed(path=TEXT, edits={"type": "array", "items": closed(
        old=TEXT, new=TEXT, line=COUNT)}),
        {"path": "a.py", "edits": [{"old": "x", "new": "y", "line": 3}] * 20}),
    "two integers, one wrong": (closed(a={"type": "integer"}, b={"type": "integer"}),
        {"a": 2, "b": "3"}),
}
def median(check):
    timer = timeit.Timer(check)
    count = max(1, timer.autorange()[0] // 10)
    return statistics.median(timer.repeat(9, count)) / count * 1e6
for name, (schema, value) in CASES.items():
    ours, theirs = prepare(schema), Draft202012Validator(schema)
    wrong = bool(ours(value, "arguments"))
    assert wrong == bool(list(theirs.iter_errors(value))) == ("wrong" in name)
    print(json.dumps([name, median(lambda: ours(value, "arguments")),
                      median(lambda: list(theirs.iter_errors(value)))]))
'''

def print_validation():
    done = subprocess.run([PEER_PYTHON, "-c", VALIDATION], env=ENV, text=True,
                          stdout=subprocess.PIPE, check=True)
    print("\n| arguments checked | this server, us | `jsonschema`, us | goal | ratio | |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for name, ours, theirs in map(json.loads, done.stdout.splitlines()):
        judged = ">= 5 x faster", "ok" if theirs >= 5 * ours else "MISS"
        goal, verdict = judged if "wrong" not in name else ("", "")  # with its sentence: shown
        print(f"| {name} | {ours:.2f} | {theirs:.2f} | {goal} | {theirs / ours:.1f} | {verdict} |")

def install_peers():
    if not os.path.exists(PEER_PYTHON):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(CACHE, "venv")], check=True)
    subprocess.run([PEER_PYTHON, "-m", "pip", "install", "-q", "-U", *PEERS, "jsonschema"],
                   check=True)

def peers_have(package):
    return os.path.exists(PEER_PYTHON) and not subprocess.run(
        [PEER_PYTHON, "-c", f"import {package}"], stderr=subprocess.DEVNULL).returncode

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the rounds")
    parser.add_argument("--peers", action="store_true", help="with mcp and fastmcp from PyPI")
    options = parser.parse_args()
    if options.peers:
        install_peers()
    names = [name for name in SOURCES if options.peers or name not in PEERS]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(names, folder, options.quick)
        for name in names:  # a first start each: it writes the .pyc files
            bench.client(name).close()
        for figures in (start_and_memory, round_trips, throughput, sleeps, large, many_tools,
                        long_run, flatness):
            figures(bench)
    print(f"\n{time.strftime('%Y-%m-%d')}, {platform.python_implementation()} "
          f"{platform.python_version()}, {len(CORES)} cores: {' '.join(sys.argv)}\n")
    bench.print_table()
    if peers_have("jsonschema"):
        print_validation()

if __name__ == "__main__":
    main()

"""The maintainers' check with real gateways: python .ci/gateways.py [--fresh]

Starts each command of the README's section "Several machines" in front of the README's server.py,
and speaks HTTP with it: both eras, two clients at once, SSE, the client of the `mcp` package.
One line per step; exit 1 if one failed.
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from interop import (CACHE, HERE, counts, last_line, node_packages, output_of, python_client,
                     report)

# What the README says of them was seen with these.
MCP_PROXY, SUPERGATEWAY = "mcp-proxy>=0.13,<0.14", ["supergateway@4", "node@22"]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
SECONDS = 20    # for one step
KEY = "a key for all"

# These go into the README's server.py: who serves, and a question to the user.
MORE_TOOLS = '''
import os
from mcp_server import Context

@register
def whoami() -> str:
    return f"{os.getpid()} {os.environ.get('MCP_STATE_KEY')}"

@register
def drink(ctx: Context) -> str:
    answer = ctx.elicit("What to drink?", {"type": "object", "properties": {
        "drink": {"type": "string"}}, "required": ["drink"]})
    return f"{answer['content']['drink']} from {os.getpid()}"

'''
# For the interpreter that has `mcp`: the revision, 2 + 3, and what the user drinks.
MCP_CLIENT = '''
import asyncio, sys
from mcp import Client, types

async def on_elicitation(context, params):
    return types.ElicitResult(action="accept", content={"drink": "tea"})

async def main(url, mode):
    async with Client(url, mode=mode, elicitation_callback=on_elicitation) as client:
        print(client.protocol_version)
        for name, arguments in ("add", {"a": 2, "b": 3}), ("drink", {}):
            print((await client.call_tool(name, arguments)).content[0].text)

asyncio.run(main(*sys.argv[1:]))
'''


# --------------------------------------------------------------------- two small clients


def messages_in(body):
    """An answer as JSON, or as a stream of events: event: message, data: {...}"""
    if body.lstrip().startswith("{"):
        return [json.loads(body)]
    return [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:")]


class Client:
    """What both transports share; they send(message) -> the answer, if there is one."""

    def __init__(self, port):
        self.address = "127.0.0.1", port
        self.last_id = 0

    def ask(self, method, **params):
        """The whole answer, with its result or its error."""
        self.last_id += 1
        return self.send({"jsonrpc": "2.0", "id": self.last_id, "method": method,
                          "params": params})

    def call(self, tool, **arguments):
        result = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result["content"][0]["text"]

    def close(self):
        pass

    def shake_hands(self):
        answer = self.ask("initialize", protocolVersion=LEGACY, capabilities={},
                          clientInfo={"name": "gateways", "version": "1"})
        if "result" in answer:
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


class StreamableHttp(Client):
    """One POST per message; a session is what the gateway's header says."""

    def __init__(self, port):
        super().__init__(port)
        self.headers = {"Content-Type": "application/json",
                        "Accept": "application/json, text/event-stream"}

    def send(self, message):
        connection = http.client.HTTPConnection(*self.address, timeout=SECONDS)
        connection.request("POST", "/mcp", json.dumps(message), self.headers)
        response = connection.getresponse()
        session = response.getheader("Mcp-Session-Id")
        if session:
            self.headers["Mcp-Session-Id"] = session
        answers = messages_in(response.read().decode())
        connection.close()
        return next((answer for answer in answers if "id" in answer), None)


class Modern(StreamableHttp):
    """No handshake, no session: every request says by itself what it needs."""

    def ask(self, method, **params):
        self.headers.update({"MCP-Protocol-Version": MODERN, "Mcp-Method": method,
                             "Mcp-Name": params.get("name", "")})
        prefix = "io.modelcontextprotocol/"
        return super().ask(method, **params, _meta={
            prefix + "protocolVersion": MODERN,
            prefix + "clientInfo": {"name": "gateways", "version": "1"},
            prefix + "clientCapabilities": {"elicitation": {}}})


class Sse(Client):
    """The older way: one stream for all answers, and an address for POSTs that it names."""

    def __init__(self, port):
        super().__init__(port)
        self.connection = http.client.HTTPConnection(*self.address, timeout=SECONDS)
        self.connection.request("GET", "/sse", headers={"Accept": "text/event-stream"})
        self.stream = self.connection.getresponse()
        url = urlsplit(self.next_event())
        self.target = f"{url.path}?{url.query}"

    def close(self):
        self.stream.close()
        self.connection.close()

    def next_event(self):
        while True:
            line = self.stream.readline().decode()
            if line.startswith("data:"):
                return line[5:].strip()
            if not line:
                raise EOFError("the stream ended")

    def send(self, message):
        connection = http.client.HTTPConnection(*self.address, timeout=SECONDS)
        connection.request("POST", self.target, json.dumps(message),
                           {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()
        while "id" in message:
            answer = json.loads(self.next_event())
            if answer.get("id") == message["id"]:
                return answer


# ------------------------------------------------------------------------------ the steps


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")


def step(label, name, function):
    """Its result, or None if it failed."""
    try:
        result = function()
        report("PASS", label, name)
        return result
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        report("FAIL", label, name, reason[:300])


def connected(new_client):
    client = new_client()
    same(client.shake_hands()["result"]["protocolVersion"], LEGACY)
    return client


def tools(client):
    names = {tool["name"] for tool in client.ask("tools/list")["result"]["tools"]}
    same(names, {"add", "whoami", "drink"})
    same(client.call("add", a=2, b=3), "5")


def at_once(one, other):
    """Both call at the same time, with the same ids: each gets its own answers."""
    wrong = []

    def calls(client, number):
        got = [client.call("add", a=number, b=b) for b in range(5)]
        if got != [str(number + b) for b in range(5)]:
            wrong.append(got)
    threads = [Thread(target=calls, args=arguments) for arguments in ((one, 10), (other, 20))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    same(wrong, [])


def processes(clients, shared):
    """Who served them: one process for both, or one for each.  All know the key."""
    answers = [client.call("whoami") for client in clients for _ in range(2)]
    pids, keys = zip(*(answer.split(" ", 1) for answer in answers))
    same(set(keys), {KEY})
    same((pids[0] == pids[1], pids[0] == pids[2], pids[2] == pids[3]), (True, shared, True))
    return list(map(int, pids))


def legacy(label, new_client, shared):
    """-> the processes that served"""
    clients = []
    for name in ("first", "second"):
        client = step(label, f"{name}-handshake", partial(connected, new_client))
        if client is None:
            return []
        clients.append(client)
        step(label, f"{name}-tools", partial(tools, client))
    step(label, "both-at-once", partial(at_once, *clients))
    pids = step(label, "processes", partial(processes, clients, shared))
    for client in clients:    # a gateway that is told to end waits for its streams
        client.close()
    return pids or []


def question(client):
    """In the modern era a question ends the call, and the answer comes with the next one."""
    result = client.ask("tools/call", name="drink", arguments={})["result"]
    same(result["resultType"], "input_required")
    (key,) = result["inputRequests"]
    return {"requestState": result["requestState"], "inputResponses": {
        key: {"action": "accept", "content": {"drink": "tea"}}}}


def answered(client, answers):
    result = client.ask("tools/call", name="drink", arguments={}, **answers)["result"]
    same(result["content"][0]["text"].split()[0], "tea")


def not_answered(client, answers):
    error = client.ask("tools/call", name="drink", arguments={}, **answers)["error"]
    same(error["message"], "Continuation expired or backend unavailable")


def modern(label, port, other_port):
    client = Modern(port)
    step(label, "discover", lambda: same(
        MODERN in client.ask("server/discover")["result"]["supportedVersions"], True))
    step(label, "tools", partial(tools, client))
    step(label, "both-at-once", partial(at_once, Modern(port), Modern(port)))
    step(label, "processes", lambda: same(client.call("whoami") != client.call("whoami"), True))
    answers = step(label, "question", partial(question, client))
    if answers:
        step(label, "answer", partial(answered, client, answers))
        step(label, "answer-elsewhere", partial(not_answered, Modern(other_port), answers))


def refused(client):
    same("error" in client.ask("tools/list"), True)


def second_refused(one, other):
    """One process for both: it has had its handshake, and both hear all that it says."""
    problem = other.shake_hands()["error"]
    same(json.loads(one.next_event())["error"], problem)


def mcp_client(python, port, mode, wanted):
    status, out, err = output_of([python, "-c", MCP_CLIENT, f"http://127.0.0.1:{port}/mcp", mode],
                                 SECONDS)
    if status != 0:
        raise OSError(last_line(out, err))
    same([line.split(":")[0].split(" ")[0] for line in out.splitlines()], wanted)


def gone(pids):
    """Every process that served has ended."""
    deadline = time.monotonic() + 10
    for pid in pids:
        while True:
            try:
                os.kill(pid, 0)
            except OSError:
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"{pid} is still there")
            time.sleep(0.05)


# ------------------------------------------------------------------------------- running


def readme_part(pattern, what, text=(HERE.parent / "README.md").read_text("utf-8")):
    found = re.search(pattern, text, re.S | re.M)
    if not found:
        sys.exit(f"README.md: there is no {what}")
    return found[1]


@contextmanager
def running(folder, path, label, command):
    """The gateway, started by that command of the README -> its port, a free one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = re.sub(r"--port \d+", f"--port {port}", command)
    environment = {**os.environ, "MCP_STATE_KEY": KEY,
                   "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        gateway = subprocess.Popen(command, shell=True, cwd=folder, env=environment, stdout=log,
                                   stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if gateway.poll() is not None or time.monotonic() > deadline:
                        log.seek(0)
                        report("FAIL", label, "start", last_line(log.read(), ""))
                        port = None
                        break
                    time.sleep(0.1)
            yield port
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):    # the session started above
                try:
                    os.killpg(gateway.pid, number)
                    gateway.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass


def try_mcp_proxy(start, command, python):
    label, served = "mcp-proxy", []
    with start(label, command) as port:
        if port:
            served += legacy(f"{label}-http", partial(StreamableHttp, port), shared=True)
            served += legacy(f"{label}-sse", partial(Sse, port), shared=True)
            step(f"{label}-modern", "refused", partial(refused, Modern(port)))
            if python:
                step(f"{label}-mcp-2.x", "auto", partial(
                    mcp_client, python, port, "auto",
                    [LEGACY, "5", "elicitation/create"]))    # it cannot be asked
    step(label, "gone", partial(gone, served))


def try_supergateway(start, command, python):
    label, served = "supergateway", []
    with start(label, command) as port, start(label, command) as other_port:
        if port and other_port:
            served += legacy(f"{label}-http", partial(StreamableHttp, port), shared=False)
            modern(f"{label}-modern", port, other_port)
            for mode, version in (("auto", MODERN), ("legacy", LEGACY)) if python else ():
                step(f"{label}-mcp-2.x", mode, partial(
                    mcp_client, python, port, mode, [version, "5", "tea"]))
    step(label, "gone", partial(gone, served))
    label += "-sse"
    with start(label, re.sub(r"--outputTransport \S+|--stateful", "", command)) as port:
        one = step(label, "first-handshake", partial(connected, partial(Sse, port)))
        if one:
            step(label, "first-tools", partial(tools, one))
            step(label, "second-refused", partial(second_refused, one, Sse(port)))


def main():
    if "--fresh" in sys.argv[1:]:
        for name in ("mcp-proxy", "supergateway"):
            shutil.rmtree(CACHE / name, ignore_errors=True)
    started = time.monotonic()
    section = readme_part(r"^## Several machines$(.*?)^## ", 'section "Several machines"')
    commands = [readme_part(rf"^```sh\n(?:(?!^```).)*?^([^\n]*{name}.*?[^\\])$",
                            f"command for {name} in that section", section)
                for name in ("mcp-proxy", "supergateway")]
    server = readme_part(r"^```python\n(# server\.py\n.*?)^```$", "server.py")
    before_main = 'if __name__ == "__main__":'
    python = python_client("mcp-2.x", "mcp>=2,<3")
    proxy = python_client("mcp-proxy", MCP_PROXY)
    packages = node_packages("supergateway", SUPERGATEWAY)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shutil.copy(HERE.parent / "mcp_server.py", folder)
        (folder / "server.py").write_text(
            server.replace(before_main, MORE_TOOLS + before_main), "utf-8")
        if proxy:
            try_mcp_proxy(partial(running, folder, Path(proxy).parent), commands[0], python)
        if packages:
            modules = packages / "node_modules"
            (folder / "node_modules").symlink_to(modules)    # where npx looks first
            try_supergateway(partial(running, folder, modules / ".bin"), commands[1], python)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())

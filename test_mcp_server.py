"""The tests of mcp_server.py: bytes over real pipes, in the order of its sections.

A conversation is written as it looks on the wire: `-->` goes to the server, `<--` is
what must come back, next and exactly.  No test sleeps to wait; every wait has a bound.
"""

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import faulthandler
import functools
import importlib
import io
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import typing
import uuid
from typing import (Annotated, Any, Callable, Dict, Iterable, List, Literal, Mapping,
                    NamedTuple, NewType, Optional, Sequence, Set, Tuple, TypedDict, TypeVar,
                    Union)

import pytest

import mcp_server
from mcp_server import (Cancelled, Context, HintError, RpcError, SchemaError, Server,
                        ToolError, audio, embedded, json_type, link, prepare, schema_of,
                        show, text, validate)

BOUND = 20  # seconds: how long any wait may take before it is a failure
# A shell's background job ignores it, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
HERE = os.path.dirname(os.path.abspath(mcp_server.__file__))
CPYTHON = sys.implementation.name == "cpython"
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")
interruptible = pytest.mark.skipif(not CPYTHON, reason="needs asynchronous exceptions")

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {},
         "clientInfo": {"name": "test", "version": "1"}}


# ------------------------------------------------------------------------- harness


@pytest.fixture(autouse=True)
def bounded():
    """No test hangs for ever, whatever it waits for: the run would end and fail."""
    faulthandler.dump_traceback_later(10 * BOUND, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def request(id, method, params=None):
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def notification(method, params=None):
    message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def call(id, name, /, **arguments):
    return request(id, "tools/call", {"name": name, "arguments": arguments})


def cancel(id):
    return notification("notifications/cancelled", {"requestId": id})


def selectable(descriptor):
    """What can be waited for, and what reads from it: Windows only waits for sockets."""
    if os.name == "posix":
        return descriptor, functools.partial(os.read, descriptor)
    here, there = socket.socketpair()

    def carry():
        with there:
            try:
                while True:
                    data = os.read(descriptor, 1 << 16)
                    if not data:
                        return
                    there.sendall(data)
            except OSError:  # either end was closed
                pass
    threading.Thread(target=carry, daemon=True).start()
    return here, here.recv


def read_lines(descriptor, deadline):
    """Yield lines as they come; fail when the deadline passes first."""
    pieces = []
    source, read = selectable(descriptor)
    while True:
        ready, _, _ = select.select([source], [], [], max(0, deadline()))
        assert ready, f"nothing came in time; so far {b''.join(pieces)[:200]!r}"
        data = read(1 << 20)
        if not data:
            assert not pieces, f"half a line at the end: {b''.join(pieces)[:200]!r}"
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join([*pieces, line])
            pieces = []
        pieces += [rest] if rest else []


def parse(line):
    """A line from the server, which must be strict JSON."""
    def refuse(name):
        raise AssertionError(f"{name} on the wire")
    return json.loads(line.decode("ascii"), parse_constant=refuse)


class Wire:
    """A client's side of a conversation: two descriptors and nothing else."""

    def __init__(self, to_server, from_server):
        self.to_server, self.from_server = to_server, from_server
        self._until = time.monotonic() + BOUND
        self._lines = read_lines(from_server, lambda: self._until - time.monotonic())

    def send(self, *messages):
        """Write messages: dicts and lists as JSON, bytes as they are."""
        data = b"".join(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n"
                        for m in messages)
        view = memoryview(data)
        while view:
            view = view[os.write(self.to_server, view):]

    def recv(self):
        """The next message, or None at the end of the stream."""
        self._until = time.monotonic() + BOUND
        line = next(self._lines, None)
        return None if line is None else parse(line)

    def ask(self, message):
        self.send(message)
        return self.recv()

    def result(self, message):
        reply = self.ask(message)
        assert "result" in reply, reply
        return reply["result"]

    def error(self, message):
        reply = self.ask(message)
        assert "error" in reply, reply
        return reply["error"]

    def text(self, message):
        return self.result(message)["content"][0]["text"]

    def handshake(self, version="2025-11-25", **capabilities):
        reply = self.ask(request("hello", "initialize", {
            **HELLO, "protocolVersion": version, "capabilities": capabilities}))
        self.send(notification("notifications/initialized"))
        return reply["result"]

    def fence(self):
        """Prove that nothing is on its way: the answer to this ping comes next."""
        id = f"fence-{time.monotonic()}"
        assert self.ask(request(id, "ping")) == {"jsonrpc": "2.0", "id": id, "result": {}}

    def play(self, script):
        """Play a conversation: `-->` lines are sent, `<--` lines must come next."""
        for line in textwrap.dedent(script).strip().splitlines():
            if line.startswith("-->"):
                self.send(line[3:].strip().encode() + b"\n")
            elif line.startswith("<--"):
                assert self.recv() == json.loads(line[3:])

    def close(self):
        if self.to_server is not None:
            os.close(self.to_server)
            self.to_server = None


class Peer(Wire):
    """A server object on two pipes and a thread.  Leaving the `with` block closes its
    input and fails on any message that was not read and, when the last one is closed,
    any thread that stays."""

    count, threads = 0, set()  # Peers that are open, and what ran before the first

    def __init__(self, server, **handshake):
        if not Peer.count:
            Peer.threads = set(threading.enumerate())
        Peer.count += 1
        server_in, to_server = os.pipe()
        from_server, server_out = os.pipe()
        super().__init__(to_server, from_server)
        self._streams = os.fdopen(server_in, "rb"), os.fdopen(server_out, "wb")
        self._server = server
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        if handshake.pop("shake", True):
            self.welcome = self.handshake(**handshake)

    def _serve(self):
        try:
            self.all_back = self._server.serve(*self._streams)
        finally:
            for stream in reversed(self._streams):
                try:
                    stream.close()
                except OSError:
                    pass

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close()
        if kind is None:
            assert self.recv() is None, "the server said more than was expected"
        self.thread.join(BOUND)
        os.close(self.from_server)
        Peer.count -= 1
        if kind is None and not Peer.count:
            self.no_threads_left()

    def no_threads_left(self):
        keep = {"mcp-async", "mcp-serial", "mcp-wait"}  # made once, kept for good
        for thread in set(threading.enumerate()) - Peer.threads:
            if thread.name not in keep and not thread.name.startswith("asyncio"):
                thread.join(BOUND)
                assert not thread.is_alive(), f"{thread} was left behind"


class Process(Wire):
    """A server script in a process of its own."""

    def __init__(self, script, *, args=(), shake=True, env=None, stderr=None, **options):
        self.process = subprocess.Popen(
            [sys.executable, *args, "-c", textwrap.dedent(script)] if script else
            [sys.executable, *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr is None else stderr, bufsize=0,
            env={**os.environ, "PYTHONPATH": HERE, "PYTHONUNBUFFERED": "", **(env or {})},
            **options)
        super().__init__(self.process.stdin.fileno(), self.process.stdout.fileno())
        if shake:
            self.handshake()

    def close(self):
        self.process.stdin.close()

    def end(self):
        """Close its input -> (exit code, what was left on stdout, stderr)."""
        self.close()
        rest = list(self._lines)
        errors = self.process.stderr.read() if self.process.stderr else b""
        return self.process.wait(BOUND), rest, errors.decode()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait(BOUND)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def tool_server(*functions, **options):
    server = Server("test", "1", **options)
    for function in functions:
        server.register(function)
    return server


# ----------------------------------------------------------------- 3, 4. the wire


class OneMoreLine:
    """What waits to be read: a line, which is taken right after the first look."""

    def __init__(self):
        self.looks = 0

    def __bool__(self):
        self.looks += 1
        return self.looks == 1


def test_an_answer_is_not_held_for_a_line_that_was_taken_meanwhile():
    stream = io.BufferedWriter(io.BytesIO())
    writer = mcp_server.LineWriter(stream, None, OneMoreLine())
    writer._flushed = time.monotonic() + BOUND  # just now
    writer.write_line(b"answer\n")
    assert stream.raw.getvalue() == b"answer\n" and not writer.held


def test_no_answer_is_held_for_the_end_of_input():
    class Queue(mcp_server.deque):
        def append(self, line):
            assert line
            super().append(line)
    reader = mcp_server.LineReader(io.BytesIO(b"one\n\ntwo"))
    reader.ready = Queue()
    assert [reader.read_line() for _ in range(5)] == [b"one\n", b"\n", b"two", b"", b""]


BAD_LINES = [  # (name, line, code, id that comes back)
    ("text", b"hello", -32700, None),
    ("half an object", b'{"jsonrpc":"2.0","id":1', -32700, None),
    ("NaN", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700, None),
    ("Infinity", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
     -32700, None),
    ("invalid UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700, None),
    ("UTF-8 surrogates", b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}', -32700, None),
    ("UTF-16", '{"jsonrpc":"2.0"}'.encode("utf-16"), -32700, None),
    ("NUL bytes", b"\0\0\0", -32700, None),
    ("100,000 brackets", b"[" * 100_000, -32700, None),
    ("100,000 closed brackets", b"[" * 100_000 + b"]" * 100_000, -32700, None),
    ("100,000 objects", b'{"a":' * 100_000, -32700, None),
    ("two values", b"{} {}", -32700, None),
    ("a number", b"42", -32600, None),
    ("a string", b'"ping"', -32600, None),
    ("null", b"null", -32600, None),
    ("true", b"true", -32600, None),
    ("empty object", b"{}", -32600, None),
    ("empty batch", b"[]", -32600, None),
    ("no jsonrpc", b'{"id":7,"method":"ping"}', -32600, 7),
    ("old jsonrpc", b'{"jsonrpc":"1.0","id":"a","method":"ping"}', -32600, "a"),
    ("no method", b'{"jsonrpc":"2.0","id":7}', -32600, 7),
    ("method is a number", b'{"jsonrpc":"2.0","id":7,"method":1}', -32600, 7),
    ("method is a number, no id", b'{"jsonrpc":"2.0","method":1}', -32600, None),
    ("id null", b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
    ("id true", b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
    ("id object", b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
    ("id array", b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600, None),
    ("id infinite", b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', -32600, None),
    ("params a string", b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}', -32600, 7),
    ("params an array", b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', -32602, 7),
]


@pytest.mark.parametrize("line, code, id", [row[1:] for row in BAD_LINES],
                         ids=[row[0] for row in BAD_LINES])
def test_a_bad_line_gets_one_error_and_the_next_is_served(line, code, id):
    with Peer(Server("test")) as peer:
        reply = peer.ask(line + b"\n")
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", id)
        assert reply["error"]["code"] == code and reply["error"]["message"]
        peer.fence()


def test_integers_of_5000_digits_get_one_answer():
    with Peer(Server("test")) as peer:
        peer.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%s}}\n' % (b"7" * 5000))
        assert len({"result", "error"} & set(peer.recv())) == 1  # by the interpreter's limit
        peer.fence()


GOOD_LINES = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
    b'\n   \n\r\n\t\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
    b'  {"jsonrpc":"2.0","id":1,"method":"ping"}  \n',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}\n',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}\n',
    '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\u2028\x85"}}\n'.encode(),
]


@pytest.mark.parametrize("line", GOOD_LINES)
def test_an_odd_but_good_line_is_served_whole_and_byte_by_byte(line):
    with Peer(Server("test")) as peer:
        for pieces in ([line], [line[i:i + 1] for i in range(len(line))]):
            for piece in pieces:
                peer.send(piece)
            assert peer.recv() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("id", ["1", 1, 0, "", -1, 1.5, 1.0, 2**53 + 1, 10**30, "é\u2028",
                                "\ud800", "x" * 10_000])
def test_ids_come_back_with_their_value_and_type(id):
    with Peer(Server("test")) as peer:
        reply = peer.ask(request(id, "ping"))
        assert reply == {"jsonrpc": "2.0", "id": id, "result": {}}
        assert type(reply["id"]) is type(id)


@pytest.mark.parametrize("line", [
    b'{"jsonrpc":"2.0","method":"ping"}', b'{"jsonrpc":"2.0","method":"no/such"}',
    b'{"jsonrpc":"2.0","method":"tools/call","params":[1]}', b'{"method":"x"}',
    b'{"jsonrpc":"1.0","method":"notifications/cancelled","params":"x"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
    b'{"jsonrpc":"2.0","id":5,"result":{}}', b'{"jsonrpc":"2.0","id":"x","error":{}}',
    b'{"jsonrpc":"2.0","id":null,"error":null}', b'{"jsonrpc":"2.0","id":[],"result":1}',
])
def test_promise_2_notifications_and_stray_responses_are_never_answered(line):
    with Peer(Server("test")) as peer:
        peer.send(line + b"\n")
        peer.fence()


def test_a_line_without_newline_at_the_end_of_input_is_served():
    out = io.BytesIO()
    Server("test").serve(io.BytesIO(b'{"jsonrpc":"2.0","id":1,"method":"ping"}'), out)
    assert out.getvalue() == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
def test_promise_3_a_64_mb_line_is_refused_without_being_held():
    body = """
        import re, mcp_server
        def peak():
            return int(re.search("VmHWM:(.*) kB", open("/proc/self/status").read()).group(1))
        before = peak()
        mcp_server.run()
        print("grown by", peak() - before)
        """
    with Process(body) as peer:
        for _ in range(64):
            peer.send(b"x" * 2**20)
        assert peer.ask(b"\n")["error"]["code"] == -32600
        peer.fence()
        code, rest, errors = peer.end()
        assert (code, rest) == (0, [])
        # The limit is 16 MiB.  PyPy's bytearray doubles as it grows, and the old one is
        # still there meanwhile.
        most = 32 if CPYTHON else 60
        assert int(errors.split("grown by")[1]) < most * 1024  # kB


def test_the_line_limit_is_a_setting():
    with Peer(Server("test", max_line=300)) as peer:
        exact = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        assert peer.ask(exact + b" " * (299 - len(exact)) + b"\n")["result"] == {}
        assert peer.ask(exact + b" " * 300 + b"\n")["error"]["code"] == -32600
        peer.fence()


def test_decode_reads_back_what_encode_writes():
    for message in (request(1, "ping", {"a": [1, None, "\ud800"]}), request("1", "x")):
        back = mcp_server.decode(mcp_server.encode(message))
        assert (back.id, back.method, back.params) == (
            message["id"], message["method"], message.get("params", {}))


def mutations(seed, count):
    """Valid lines, damaged: flipped bits, cuts, swapped tokens."""
    pick = random.Random(seed)
    valid = [json.dumps(m).encode() for m in (
        request(1, "ping"), request("a", "tools/list"), call(3, "echo", value="x"),
        notification("notifications/cancelled", {"requestId": 3}), cancel("a"),
        [request(4, "ping"), call(5, "echo", value={"a": [1, 2.5, None, True]})],
        {"jsonrpc": "2.0", "id": 6, "result": {}}, request(7, "tools/call", {"name": 1}))]
    for _ in range(count):
        line = bytearray(pick.choice(valid))
        for _ in range(pick.randint(0, 3)):
            at = pick.randrange(len(line))
            how = pick.randrange(4)
            if how == 0:
                line[at] ^= 1 << pick.randrange(8)
            elif how == 1:
                line = line[:at + 1]
            elif how == 2:
                token = pick.choice([b"null", b"true", b"[]", b"{}", b'"', b",", b"1e400",
                                     b"\\ud800", b"\xff", b":", b"-"])
                line[at:at + pick.randint(0, 4)] = token
            else:
                other = pick.choice(valid)
                line = line[:at] + other[pick.randrange(len(other)):]
        if not (b"[" in line and b"cancelled" in line):  # may be answered or not: both right
            yield bytes(line).replace(b"\n", b" ")


def answers_due(line):
    """How many answers a line must get, by the rules alone; None where either is fine."""
    try:
        value = json.loads(line.decode("utf-8-sig"), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return 0 if not line.strip() else 1
    if isinstance(value, list):
        return 1 if not value or any(answer_due(entry) for entry in value) else 0
    return 1 if answer_due(value) else 0


def answer_due(entry):
    if not isinstance(entry, dict):
        return True
    if "id" not in entry and isinstance(entry.get("method"), str):
        return False  # a notification
    return "method" in entry or not {"result", "error"} & set(entry)  # else a response


@pytest.mark.parametrize("seed", range(4))
def test_promise_2_damaged_conversations_never_break_the_server(seed):
    def echo(value: object = None) -> str:
        return "ok"
    server = Server("test")
    server.register(echo, input_schema={"type": "object"}, name="echo")
    with Peer(server) as peer:
        for line in mutations(seed, 700):
            due = answers_due(line)
            peer.send(line + b"\n")
            if due:
                reply = peer.recv()
                for message in reply if isinstance(reply, list) else [reply]:
                    assert message["jsonrpc"] == "2.0" and "id" in message
                    assert len({"result", "error"} & set(message)) == 1
            else:
                peer.fence()


# ------------------------------------------------------------------------ batches


def test_a_batch_is_answered_by_one_array():
    def add(a: int, b: int) -> int:
        return a + b
    with Peer(tool_server(add)) as peer:
        replies = peer.ask([call(1, "add", a=1, b=2), notification("x"), 5, {},
                            request("1", "ping"), request(2, "no/such")])
        assert {json.dumps(r["id"]): r.get("error", {}).get("code") for r in replies} == {
            "1": None, '"1"': None, "null": -32600, "2": -32601}
        assert len(replies) == 5


def test_a_batch_of_notifications_is_not_answered():
    with Peer(Server("test")) as peer:
        peer.send([notification("x"), notification("notifications/cancelled")])
        peer.send([{"jsonrpc": "2.0", "id": 1, "result": {}}])
        peer.fence()


def test_a_batch_before_the_handshake_is_answered_but_cannot_hold_it():
    with Peer(Server("test"), shake=False) as peer:
        first, second = peer.ask([request(1, "ping"), request(2, "initialize", HELLO)])
        assert first["result"] == {} and second["error"]["code"] == -32600
        peer.handshake()


def test_batch_entries_run_at_the_same_time():
    meeting = threading.Barrier(3)

    def meet() -> str:
        meeting.wait(BOUND)
        return "met"
    with Peer(tool_server(meet)) as peer:
        replies = peer.ask([call(i, "meet") for i in range(3)])
        assert [r["result"]["content"][0]["text"] for r in replies] == ["met"] * 3


def test_a_cancelled_entry_is_left_out_of_the_array():
    started = threading.Event()

    def wait(ctx: Context) -> str:
        started.set()
        ctx.sleep(BOUND)
        return "too late"
    with Peer(tool_server(wait)) as peer:
        peer.send([call(1, "wait"), request(2, "ping")])
        assert started.wait(BOUND)
        assert peer.ask(cancel(1)) == [{"jsonrpc": "2.0", "id": 2, "result": {}}]
        started.clear()
        peer.send([call(3, "wait")])
        assert started.wait(BOUND)
        peer.send(cancel(3))
        peer.fence()


def test_a_batch_of_10_000():
    def double(n: int) -> int:
        return 2 * n
    with Peer(tool_server(double)) as peer:
        replies = peer.ask([call(i, "double", n=i) for i in range(10_000)])
        assert {r["id"]: int(r["result"]["content"][0]["text"]) for r in replies} == {
            i: 2 * i for i in range(10_000)}


def test_a_duplicate_id_is_refused_while_the_first_goes_on():
    started, finish = threading.Event(), threading.Event()

    def wait() -> str:
        started.set()
        finish.wait(BOUND)
        return "done"
    with Peer(tool_server(wait)) as peer:
        peer.send(call(1, "wait"))
        assert started.wait(BOUND)
        assert peer.error(request(1, "ping"))["code"] == -32600
        assert peer.result(request("1", "ping")) == {}  # another type, another id
        finish.set()
        assert peer.recv()["result"]["content"][0]["text"] == "done"
        assert peer.result(request(1, "ping")) == {}


# ------------------------------------------------------------------- cancellation


def text_of(reply):
    return reply["result"]["content"][0]["text"]


def stoppable(how):
    """A tool that runs for ever in one of the ways that must be stoppable."""
    started, ended = threading.Event(), threading.Event()

    def spin():  # apart: 3.13.0 forgets a `finally` around a bare loop
        while True:
            pass

    def forever(ctx: Context) -> str:
        started.set()
        try:
            if how == "sleeps":
                ctx.sleep(1000)
            while how == "looks":
                ctx.check_cancelled()
            if how == "tracks":
                for _ in ctx.track(iter(int, 1)):  # zeros, without end
                    pass
            if how == "runs a process":
                ctx.run([sys.executable, "-c", "import time; time.sleep(1000)"])
            if how == "spins":
                spin()
            while how == "swallows":
                try:
                    spin()
                except Exception:
                    pass
            return "never"
        finally:
            ended.set()
    return forever, started, ended


@interruptible
@pytest.mark.parametrize("how", [
    "sleeps", "looks", "tracks", "runs a process", "spins", "swallows"])
def test_promise_2_a_cancelled_call_stops_and_is_never_answered(how):
    forever, started, ended = stoppable(how)

    def quick() -> str:
        return "quick"
    with Peer(tool_server(forever, quick)) as peer:
        peer.send(call(1, "forever"))
        assert started.wait(BOUND)
        peer.send(cancel("1"))  # another id
        peer.fence()
        assert not ended.is_set()
        peer.send(cancel(1), cancel(1))
        assert ended.wait(BOUND)
        peer.fence()
        assert peer.text(call(1, "quick")) == "quick"
        peer.send(cancel(1))
        peer.fence()


def is_stopped(forever, started, ended):
    """A tool that would run for ever begins, is cancelled, ends, and is not answered."""
    with Peer(tool_server(forever)) as peer:
        peer.send(call(1, "forever"))
        assert started.wait(BOUND)
        peer.send(cancel(1))
        assert ended.wait(BOUND)
        peer.fence()


@interruptible
def test_an_async_tool_is_cancelled_as_a_task():
    started, ended = threading.Event(), threading.Event()

    async def forever(ctx: Context) -> str:
        started.set()
        try:
            await ctx.sleep(1000)
        finally:
            ended.set()
    is_stopped(forever, started, ended)


@posix
def test_the_whole_process_tree_dies_with_the_call(tmp_path):
    pids = tmp_path / "pids"
    grandchild = "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"
    child = ("import os, subprocess, sys, time; print(os.getpid(), flush=True);"
             f"subprocess.Popen([sys.executable, '-c', {grandchild!r}]); time.sleep(1000)")

    def spawn(ctx: Context) -> str:
        with open(pids, "w") as out:
            ctx.run([sys.executable, "-c", child], stdout=out)
        return "never"
    with Peer(tool_server(spawn)) as peer:
        peer.send(call(1, "spawn"))
        wait_until(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        peer.send(cancel(1))
        for pid in map(int, pids.read_text().split()):
            wait_until(lambda: not is_running(pid))
        peer.fence()


def wait_until(condition):
    """Poll for something that sends no signal, such as the death of a stranger."""
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        threading.Event().wait(0.005)


def is_running(pid):
    """Alive, and not merely a zombie that nobody has collected."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True


def test_ctx_run_captures_output_and_gives_the_child_no_stdin():
    def run(ctx: Context) -> str:
        done = ctx.run([sys.executable, "-c", "import sys; print(len(sys.stdin.read()));"
                        "print('bad', file=sys.stderr); sys.exit(3)"])
        return f"{done.returncode} {done.stdout.strip()} {done.stderr.strip()}"

    def feed(ctx: Context) -> str:
        return ctx.run([sys.executable, "-c", "print(input()[::-1])"], input="abc").stdout

    def slow(ctx: Context) -> str:
        ctx.run([sys.executable, "-c", "import time; time.sleep(1000)"], timeout=0.01)
        return "never"
    with Peer(tool_server(run, feed, slow)) as peer:
        assert peer.text(call(1, "run")) == "3 0 bad"
        assert peer.text(call(2, "feed")).strip() == "cba"
        assert "TimeoutExpired" in peer.text(call(3, "slow"))


@interruptible
def test_a_race_between_finishing_and_cancelling_yields_one_answer_or_none():
    hits = []

    def quick(n: int) -> int:
        for i in range(n):
            pass
        return n

    def victim() -> str:
        try:
            return "fine"
        except Cancelled:
            hits.append(1)
            raise
    with Peer(tool_server(quick, victim)) as peer:
        pick = random.Random(1)
        for i in range(3000):
            peer.send(call(i, "quick", n=pick.randrange(200)), cancel(i),
                      call(f"v{i}", "victim"))
            reply = peer.recv()
            if reply["id"] == i:
                assert text_of(reply).isdigit()
                reply = peer.recv()
            assert reply["id"] == f"v{i}" and text_of(reply) == "fine"
        peer.fence()
    assert not hits


@interruptible
def test_an_interrupt_never_hits_the_next_request_on_its_thread(monkeypatch):
    monkeypatch.setattr(mcp_server, "GRACE", 0.0005)  # interrupts while the tool ends

    def spin(until: float) -> str:
        while time.monotonic() < until:
            pass
        return "ended"
    with Peer(tool_server(spin)) as peer:
        for i in range(300):
            peer.send(call(i, "spin", until=time.monotonic() + 0.0008), cancel(i))
            message = peer.ask(call(f"n{i}", "spin", until=0.0))
            if message["id"] == i:  # it ended before the cancellation was read
                message = peer.recv()
            assert message["id"] == f"n{i}" and text_of(message) == "ended"


def test_a_tool_stuck_in_a_c_call_is_abandoned_and_its_slot_replaced(monkeypatch):
    monkeypatch.setattr(mcp_server, "GRACE", 0.01)
    stuck, free = threading.Event(), threading.Lock()
    free.acquire()

    def hang() -> str:
        stuck.set()
        free.acquire()  # a C call that no exception can reach
        return "late"

    def quick() -> str:
        return "quick"
    for options in ({}, {"serial": True}):
        stuck.clear()
        server = Server("test", max_workers=1)
        server.register(hang, **options)
        server.register(quick, **options)
        with Peer(server) as peer:
            peer.send(call(1, "hang"))
            assert stuck.wait(BOUND)
            peer.send(cancel(1))
            assert peer.text(call(2, "quick")) == "quick"
            free.release()  # now it returns: nobody hears of it


def test_time_outs_are_answered_as_errors_and_the_work_is_stopped():
    ended = threading.Event()

    def slow(ctx: Context) -> str:
        try:
            ctx.sleep(BOUND)
            return "never"
        finally:
            ended.set()
    server = Server("test", timeout=0.05)
    server.register(slow)
    server.register(slow, name="patient", timeout=BOUND)
    with Peer(server) as peer:
        peer.send(call(2, "patient"))
        result = peer.result(call(1, "slow"))
        assert result["isError"] and "timed out after 0.05 s" in result["content"][0]["text"]
        assert ended.wait(BOUND)
        peer.send(cancel(2))
        peer.fence()


# -------------------------------------------------------------------- never stuck


def test_promise_3_a_ping_is_answered_while_tools_run():
    started, finish = threading.Semaphore(0), threading.Event()

    def wait() -> str:
        started.release()
        finish.wait(BOUND)
        return "done"
    with Peer(tool_server(wait)) as peer:
        for i in range(20):
            peer.send(call(i, "wait"))
            assert started.acquire(timeout=BOUND)
            peer.fence()
        finish.set()
        assert {peer.recv()["id"] for i in range(20)} == set(range(20))


@interruptible
def test_a_ping_is_answered_while_a_tool_computes():
    forever, started, ended = stoppable("spins")
    with Peer(tool_server(forever)) as peer:
        peer.send(call(1, "forever"))
        assert started.wait(BOUND)
        for _ in range(20):
            peer.fence()
        peer.send(cancel(1))
        assert ended.wait(BOUND)


@pytest.mark.parametrize("behind, answers", [
    ([call(2, "wait")], 1), ([call(2, "wait"), call(3, "wait")], 2), ([b"\n"], 0),
    ([call(2, "wait_in_line"), call(3, "wait_in_line")], 2), ([b'{"jsonrpc"'], 0),
    ([notification("notifications/cancelled", {"requestId": 9})], 0),
    ([call(2, "wait"), notification("x")], 1), ([{"jsonrpc": "2.0", "id": 9, "result": {}}], 0),
], ids=lambda value: str(value)[:60])
def test_an_answer_does_not_wait_for_what_was_written_behind_its_call(behind, answers):
    go = threading.Event()

    def quick() -> str:
        return "done"

    def wait() -> str:
        assert go.wait(BOUND)
        return "waited"
    server = tool_server(quick, wait, max_workers=2)
    server.register(wait, name="wait_in_line", serial=True)
    with Peer(server) as peer:
        for _ in range(5):
            peer.send(call(0, "quick"), call(1, "quick"), *behind)
            assert {peer.recv()["id"] for _ in range(2)} == {0, 1}  # in either order
            go.set()
            assert {peer.recv()["id"] for _ in range(answers)} == set(range(2, 2 + answers))
            go.clear()
            if behind == [b'{"jsonrpc"']:
                assert peer.error(b"\n")["code"] == -32700


def test_500_calls_run_at_once_and_the_threads_are_given_back():
    meeting = threading.Barrier(500)

    def meet() -> str:
        meeting.wait(BOUND)
        return "met"
    with Peer(tool_server(meet)) as peer:
        before = threading.active_count()
        peer.send(*(call(i, "meet") for i in range(500)))
        assert {peer.recv()["id"] for i in range(500)} == set(range(500))
        wait_until(lambda: threading.active_count() <= before + mcp_server.SPARE_THREADS + 2)


def test_a_batch_of_quick_calls_does_not_keep_the_reader_for_long():
    go = threading.Event()

    def step() -> bool:
        return go.wait(0.0005)
    with Peer(tool_server(step)) as peer:
        peer.send([call(i, "step") for i in range(3_000)])
        peer.fence()  # long before the batch is done
        go.set()
        assert len(peer.recv()) == 3_000


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of a process")
def test_where_the_system_has_no_more_threads_calls_wait_for_those_there_are():
    with Process(script("""
            import resource

            @register
            def leave_room(threads: int) -> None:
                with open("/proc/self/statm") as file:
                    size = int(file.read().split()[0]) * resource.getpagesize()
                threading.stack_size(16 * 2**20)
                resource.setrlimit(resource.RLIMIT_AS, (size + threads * 16 * 2**20, -1))

            @register
            def nap() -> int:
                time.sleep(0.02)
                return threading.active_count()
            run()
            """)) as peer:
        peer.result(call("few", "leave_room", threads=4))
        peer.send(*(call(i, "nap") for i in range(100)))
        replies = [peer.recv() for _ in range(100)]
        assert {reply["id"] for reply in replies} == set(range(100))
        assert max(int(text_of(reply)) for reply in replies) < 20
        assert peer.end() == (0, [], "")


def test_max_workers_bounds_the_work_and_not_the_reading():
    running, peak, finish = [], [], threading.Event()

    def wait() -> str:
        running.append(1)
        peak.append(len(running))
        finish.wait(BOUND)
        running.pop()
        return "done"
    with Peer(tool_server(wait, max_workers=3)) as peer:
        peer.send(*(call(i, "wait") for i in range(10)))
        wait_until(lambda: len(running) == 3)
        peer.fence()
        peer.send(cancel(9))  # still in the queue: it never runs
        peer.fence()
        finish.set()
        assert {peer.recv()["id"] for i in range(9)} == set(range(9))
        assert max(peak) == 3 and len(peak) == 9


def test_cancelled_calls_give_their_slots_back():
    def wait(ctx: Context) -> str:
        ctx.sleep(BOUND)
        return "never"

    def quick() -> str:
        return "quick"
    with Peer(tool_server(wait, quick, max_workers=2)) as peer:
        for i in range(50):
            peer.send(call(i, "wait"), cancel(i))
        assert peer.text(call("q", "quick")) == "quick"


def test_a_client_that_does_not_read_meets_back_pressure():
    made = []

    def big() -> str:
        made.append(1)
        return "x" * 100_000
    with Peer(tool_server(big)) as peer:
        writer = threading.Thread(target=peer.send, args=[
            call(i, "big") for i in range(400)], daemon=True)
        writer.start()
        wait_until(lambda: made)
        stays_below(lambda: len(made), 50)  # of 400: the rest waits for the client
        assert sorted(peer.recv()["id"] for i in range(400)) == list(range(400))
        writer.join(BOUND)


def stays_below(count, limit):
    """Look for as long as a busy machine would need to break the promise."""
    for _ in range(100):
        assert count() < limit
        threading.Event().wait(0.002)


SERVER_SCRIPT = """
    import sys, os, threading, time, subprocess, atexit
    from mcp_server import register, run, Context, Server
    """


def script(body):
    return textwrap.dedent(SERVER_SCRIPT) + textwrap.dedent(body)


@posix
@pytest.mark.parametrize("stderr", ["full", "closed"])
def test_promise_3_a_full_or_closed_stderr_blocks_nothing(stderr):
    read_end, write_end = os.pipe()
    if stderr == "closed":
        os.close(read_end)
    body = script("""
        @register
        def noisy(n: int) -> int:
            "Prints a lot."
            print("x" * 20_000)
            print("y" * 20_000, file=sys.stderr, flush=True)
            if n % 5 == 0:
                raise ValueError("boom " * 50)
            return n
        run()
        """)
    with Process(body, stderr=write_end, env={"LOG_LEVEL": "debug"}) as peer:
        os.close(write_end)
        for i in range(30):
            reply = peer.ask(call(i, "noisy", n=i))
            assert reply["id"] == i and reply["result"].get("isError", False) == (i % 5 == 0)
        assert peer.end()[:2] == (0, [])
    if stderr == "full":
        os.close(read_end)


# -------------------------------------------------------------- the streams are ours


def test_promise_1_stdout_carries_protocol_lines_only():
    body = script("""
        print("at import, unflushed")
        atexit.register(lambda: print("at exit"))
        atexit.register(lambda: os.write(1, b"raw at exit"))

        @register
        def noisy() -> str:
            "Writes everywhere, reads everything."
            print("unflushed")
            print("flushed", flush=True)
            os.write(1, b"raw\\n")
            sys.__stdout__.write("original\\n")
            subprocess.run([sys.executable, "-c", "print('child')"])
            child = subprocess.run([sys.executable, "-c",
                "import sys; print(repr(sys.stdin.read()), file=sys.stderr)"],
                stderr=subprocess.PIPE)
            threading.Thread(target=print, args=("thread",)).start()
            try:
                input()
            except EOFError:
                return f"input ended, child read {child.stderr.decode().strip()}"
        run()
        print("after run", flush=True)
        """)
    with Process(body) as peer:
        assert peer.text(call(1, "noisy")) == "input ended, child read ''"
        peer.fence()
        code, rest, errors = peer.end()
    assert (code, rest) == (0, [])
    for word in ("at import", "unflushed", "flushed", "raw", "original", "child",
                 "thread", "after run", "at exit", "raw at exit"):
        assert word in errors


def test_serve_gives_the_streams_back():
    body = script("""
        server = Server("test")
        server.serve()
        print("mine again", flush=True)
        os.write(1, b"and raw\\n")
        sys.exit(0 if sys.stdin.read() == "" else 1)
        """)
    with Process(body) as peer:
        peer.close()
        assert [line.rstrip() for line in peer._lines] == [b"mine again", b"and raw"]
        assert peer.process.wait(BOUND) == 0


@posix
def test_serve_works_on_a_socket():
    def add(a: int, b: int) -> int:
        return a + b
    here, there = socket.socketpair()
    stream = there.makefile("rwb")
    thread = threading.Thread(target=tool_server(add).serve, args=(stream, stream), daemon=True)
    thread.start()
    wire = Wire(here.fileno(), here.fileno())
    wire.handshake()
    assert wire.text(call(1, "add", a=1, b=2)) == "3"
    here.shutdown(socket.SHUT_WR)
    thread.join(BOUND)
    assert not thread.is_alive()
    stream.close(), here.close(), there.close()


def test_what_a_tool_prints_shows_at_once():
    body = script("""
        @register
        def talk() -> str:
            "Prints."
            print("hello")
            return "done"
        run()
        """)
    with Process(body) as peer:
        assert peer.text(call(1, "talk")) == "done"
        assert peer.process.stderr.readline() == b"hello\n"  # while it runs


# ------------------------------------------------------------------------- ending


def test_promise_4_calls_written_just_before_the_end_are_all_answered():
    body = script("""
        @register
        def add(a: int, b: int) -> int:
            "Add."
            return a + b
        run()
        """)
    with Process(body) as peer:
        peer.send(*(call(i, "add", a=i, b=1) for i in range(100)))
        code, rest, errors = peer.end()
        assert (code, errors) == (0, "")
        assert {parse(line)["id"] for line in rest} == set(range(100))


ENDINGS = {
    "a tool in a C call": "time.sleep(1000)",
    "a tool that spins": "while True: pass",
    "a thread that is no daemon": "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "a child process": "ctx.run([sys.executable, '-c', 'import time; time.sleep(1000)'])",
}


def stuck_server(how):
    return script(f"""
        @register
        def stick(ctx: Context) -> str:
            "Does not end."
            ctx._session.connection.notify("started")
            {ENDINGS[how]}
        run()
        """)


@pytest.mark.parametrize("how", ENDINGS)
def test_promise_4_the_end_of_input_ends_the_process_within_the_bound(how):
    with Process(stuck_server(how)) as peer:
        assert peer.ask(call(1, "stick"))["method"] == "started"
        code, rest, errors = peer.end()
        assert code == 0 and "Traceback" not in errors


def test_promise_4_the_bounds_add_up_to_less_than_clients_wait():
    """The SDK clients send SIGTERM two seconds after they have closed stdin."""
    assert mcp_server.DRAIN + 3 * mcp_server.GRACE < 2


@posix
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_promise_4_signals_end_it_quietly(number, code, busy):
    with Process(stuck_server("a tool in a C call")) as peer:
        if busy:
            assert peer.ask(call(1, "stick"))["method"] == "started"
        peer.fence()
        peer.process.send_signal(number)
        assert peer.process.wait(BOUND) == code
        assert peer.recv() is None
        assert peer.process.stderr.read() == b""


@posix
def test_promise_4_a_closed_stdout_ends_it_though_stdin_stays_open():
    with Process(script("run()")) as peer:
        peer.process.stdout.close()
        assert peer.process.wait(BOUND) == 0
        assert peer.process.stderr.read() == b""


@posix
def test_promise_4_a_dead_parent_ends_it_though_stdin_stays_open():
    """A wrapper starts the server and dies; this test still holds the server's stdin."""
    wrapper = f"""
        import subprocess, sys, os
        child = subprocess.Popen([sys.executable, "-c", {script('run()')!r}])
        sys.stderr.write(str(child.pid) + "\\n"); sys.stderr.flush()
        os.read(int(sys.argv[1]), 1)
        """
    hold_read, hold_write = os.pipe()
    os.set_inheritable(hold_read, True)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(wrapper), str(hold_read)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        env={**os.environ, "PYTHONPATH": HERE}, pass_fds=[hold_read])
    server = int(process.stderr.readline())
    wire = Wire(process.stdin.fileno(), process.stdout.fileno())
    wire.handshake()
    os.write(hold_write, b"x")
    assert process.wait(BOUND) == 0
    wait_until(lambda: not is_running(server))
    assert wire.recv() is None
    os.close(hold_read), os.close(hold_write)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


@posix
def test_no_child_process_outlives_the_server(tmp_path):
    body = script(f"""
        @register
        def spawn(ctx: Context) -> str:
            "Runs a shell that runs a child."
            ctx.run("echo $$ > {tmp_path}/pid; sleep 1000 & wait", shell=True)
        run()
        """)
    for end in (lambda peer: peer.close(), lambda peer: peer.process.terminate()):
        with Process(body) as peer:
            peer.send(call(1, "spawn"))
            wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            pid = int((tmp_path / "pid").read_text())
            end(peer)
            assert peer.process.wait(BOUND) in (0, 143)
            wait_until(lambda: not is_running(pid))
            (tmp_path / "pid").unlink()


# ------------------------------------------------------------------------ logging


def test_a_healthy_run_writes_nothing_to_stderr():
    body = script("""
        @register
        def add(a: int, b: int) -> int:
            "Add."
            return a + b
        run()
        """)
    with Process(body, env={"LOG_LEVEL": ""}) as peer:
        peer.result(request(1, "tools/list"))
        assert peer.text(call(2, "add", a=1, b=2)) == "3"
        peer.result(call(3, "add", a="x"))
        assert peer.end() == (0, [], "")


def test_log_level_debug_shows_what_happens_and_hides_secrets():
    body = script("""
        import logging
        @register
        def login(user: str, password: str, note: str = "") -> str:
            "Log in."
            return f"handlers: {len(logging.root.handlers)} level: {logging.root.level}"
        run()
        """)
    with Process(body, env={"LOG_LEVEL": "debug"}) as peer:
        text = peer.text(call(1, "login", user="ann", password="hunter2", note="n" * 5000))
        assert text == "handlers: 0 level: 30"  # the host program's logging is its own
        peer.result(call(2, "login", user=5, api_key="k-123"))
        code, rest, errors = peer.end()
    assert "tools/call" in errors and '"ann"' in errors and "***" in errors
    assert "hunter2" not in errors and "k-123" not in errors
    assert "n" * 1000 not in errors and "5,000 characters" in errors
    assert re.search(r"tools/call id=1 took [\d.]+ ms", errors)
    assert "arguments.user: expected string, got integer 5" in errors
    assert errors.count(": in  {") == 4 and errors.count(": out {") == 3


# ---------------------------------------------------------------------- lifecycle


def test_a_whole_conversation():
    """https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle"""
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b
    with Peer(tool_server(add), shake=False) as peer:
        peer.play("""
            a client may probe a server that is not ready
            --> {"jsonrpc":"2.0","id":1,"method":"ping"}
            <-- {"jsonrpc":"2.0","id":1,"result":{}}
            --> {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
            <-- {"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"test","version":"1"}}}
            --> {"jsonrpc":"2.0","method":"notifications/initialized"}
            --> {"jsonrpc":"2.0","id":"a","method":"tools/list"}
            <-- {"jsonrpc":"2.0","id":"a","result":{"tools":[{"name":"add","description":"Add two integers.","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"],"additionalProperties":false}}]}}
            --> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3}}}
            <-- {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"5"}]}}
            """)


@pytest.mark.parametrize("asked, given", [
    ("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"),
    ("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"),
    ("2026-07-28", "2025-11-25"), ("2099-01-01", "2025-11-25"), ("1.0", "2025-11-25"),
    ("", "2025-11-25")])
def test_a_known_version_is_kept_and_another_answered_with_the_newest(asked, given):
    with Peer(Server("test"), version=asked) as peer:
        assert peer.welcome["protocolVersion"] == given
        assert peer.welcome["capabilities"] == {"logging": {}}


def test_requests_in_the_wrong_state_are_refused_and_say_what_comes_first():
    with Peer(Server("test"), shake=False) as peer:
        error = peer.error(request(1, "tools/list"))
        assert error["code"] == -32600 and "initialize" in error["message"]
        assert peer.error(request(2, "no/such"))["code"] == -32601
        peer.send(notification("notifications/initialized"))  # too early: ignored
        assert peer.error(request(3, "tools/list"))["code"] == -32600
        assert peer.error(request(4, "initialized"))["code"] == -32600
        peer.result(request(5, "initialize", HELLO))
        error = peer.error(request(6, "tools/list"))
        assert error["code"] == -32600 and "notifications/initialized" in error["message"]
        assert peer.result(request(7, "ping")) == {}
        assert peer.error(request(8, "initialize", HELLO))["code"] == -32600
        peer.send(notification("notifications/initialized"))
        assert peer.result(request(9, "tools/list")) == {"tools": []}
        assert peer.error(request(10, "initialize", HELLO))["code"] == -32600
        assert peer.result(request(11, "tools/list")) == {"tools": []}


@pytest.mark.parametrize("method", ["initialized", "notifications/initialized"])
def test_initialized_with_an_id_is_accepted_and_answered(method):
    with Peer(Server("test"), shake=False) as peer:
        peer.result(request(1, "initialize", HELLO))
        assert peer.result(request(2, method)) == {}
        assert peer.result(request(3, "tools/list")) == {"tools": []}


@pytest.mark.parametrize("params", [
    {**HELLO, "protocolVersion": 1}, {**HELLO, "protocolVersion": None},
    {**HELLO, "capabilities": []}, {**HELLO, "clientInfo": "me"}])
def test_initialize_with_a_wrong_type_changes_nothing(params):
    with Peer(Server("test"), shake=False) as peer:
        assert peer.error(request(1, "initialize", params))["code"] == -32602
        peer.handshake()


def test_initialize_with_missing_fields_is_answered():
    with Peer(Server("test"), shake=False) as peer:
        assert peer.result(request(1, "initialize"))["protocolVersion"] == "2025-11-25"


FIELDS = {  # what each revision may know of a tool and of the server
    "2024-11-05": ({"name", "description", "inputSchema"}, {"name", "version"}),
    "2025-03-26": ({"name", "description", "inputSchema", "annotations"},
                   {"name", "version"}),
    "2025-06-18": ({"name", "description", "inputSchema", "annotations", "title",
                    "outputSchema", "_meta"}, {"name", "version", "title"}),
    "2025-11-25": ({"name", "description", "inputSchema", "annotations", "title",
                    "outputSchema", "_meta", "icons"},
                   {"name", "version", "title", "description", "websiteUrl", "icons"}),
}


@pytest.mark.parametrize("version", FIELDS)
def test_fields_that_a_revision_does_not_know_are_not_sent(version):
    icons = [{"src": "https://example.com/i.png"}]
    server = Server("test", "1", title="Test", description="A test", icons=icons,
                    website_url="https://example.com", instructions="Be kind.")

    @server.register(title="Both", annotations={"readOnlyHint": True}, icons=icons,
                     meta={"example.com/x": 1}, output_schema={
                         "type": "object", "properties": {"n": {"type": "integer"}}})
    def structured() -> dict:
        return {"n": 1}

    @server.register
    def media() -> list:
        return [mcp_server.audio(b"abc", "audio/wav"), mcp_server.link("x://y", "y"),
                mcp_server.text("t", _meta={"a": 1})]
    with Peer(server, version=version) as peer:
        tool_fields, server_fields = FIELDS[version]
        assert set(peer.welcome["serverInfo"]) == server_fields
        assert peer.welcome["instructions"] == "Be kind."
        assert set(peer.result(request(1, "tools/list"))["tools"][0]) == tool_fields
        result = peer.result(call(2, "structured"))
        assert json.loads(result["content"][0]["text"]) == {"n": 1}
        assert ("structuredContent" in result) == (version >= "2025-06-18")
        blocks = peer.result(call(3, "media"))["content"]
        assert [block["type"] for block in blocks] == [
            "audio" if version >= "2025-03-26" else "resource",
            "resource_link" if version >= "2025-06-18" else "text", "text"]
        assert ("_meta" in blocks[2]) == (version >= "2025-06-18")


# ------------------------------------------------------------------ 9. validation

STR, INT, NUM, BOOL = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
NAN, INF = float("nan"), float("inf")

# (schema, values that fit, values that do not)
KEYWORD_CASES = [
    (True, [1, None, {}], []),
    (False, [], [1, None, {}]),
    ({}, [1, "a", []], []),
    ({"type": "integer"}, [1, 1.0, -3, 10**30], [1.5, True, "1", None, INF, NAN]),
    ({"type": "number"}, [1, 1.5], [True, "1"]),
    ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
    ({"type": "null"}, [None], [0, False, "", []]),
    ({"type": "array"}, [[], [1]], [{}, "a"]),
    ({"type": "object"}, [{}, {"a": 1}], [[], "a"]),
    ({"type": ["string", "null"]}, ["", None], [1, []]),
    ({"enum": [1, "a", None, [0], {"a": 1}]}, [1, 1.0, "a", None, [0], [0.0], {"a": 1.0}],
     [True, "b", 0, [False], {"a": True}, {}]),
    ({"const": 0}, [0, 0.0, -0.0], [False, "", None]),
    ({"const": False}, [False], [0, 0.0]),
    ({"const": {"a": [1, {"b": 2}]}}, [{"a": [1.0, {"b": 2}]}], [{"a": [1, {"b": 3}]}]),
    ({"multipleOf": 0.0001}, [0.0075, 1, "x"], [0.00751]),
    ({"multipleOf": 0.01}, [19.99, 4.35, 1e308], [0.001]),
    ({"multipleOf": 3}, [0, 9, 9.0, 3 * 10**5000], [10, 1e308, INF, -INF, NAN, 10**5000]),
    ({"multipleOf": 0.123456789}, [0], [1e308]),
    ({"minimum": 1.5}, [1.5, 2, 10**400, INF, "x", True], [1, -(10**400), NAN]),
    ({"maximum": 3}, [3, 3.0, -INF], [3.1, 10**400]),
    ({"exclusiveMinimum": 3}, [3.1], [3, 3.0]),
    ({"exclusiveMaximum": 3}, [2.9], [3]),
    ({"minimum": 2**53 + 1}, [2**53 + 1], [2.0**53]),
    ({"minLength": 2}, ["ab", "\U0001f600\U0001f600", 1], ["a", "\U0001f600"]),
    ({"maxLength": 1}, ["", "\U0001f600"], ["ab"]),
    ({"pattern": "^a+$"}, ["aa", 5], ["", "ab", "aa\n"]),
    ({"pattern": "a"}, ["bab"], ["b"]),
    ({"prefixItems": [INT, STR]}, [[], [1], [1, "a", None], "x"], [["a"], [1, 2]]),
    ({"items": INT}, [[], [1, 2.0], {}], [[1, "a"], [True]]),
    ({"prefixItems": [STR], "items": INT}, [["a", 1]], [["a", "b"]]),
    ({"items": False}, [[]], [[1]]),
    ({"contains": INT}, [["a", 1], {}], [[], ["a"]]),
    ({"contains": INT, "minContains": 2, "maxContains": 3}, [[1, 2], [1, 2, 3, "a"]],
     [[1], [1, 2, 3, 4]]),
    ({"contains": INT, "minContains": 0}, [[], ["a"]], []),
    ({"minContains": 5, "maxContains": 0}, [[], [1]], []),
    ({"minItems": 1}, [[1], "x"], [[]]),
    ({"maxItems": 1.0}, [[1]], [[1, 2]]),
    ({"uniqueItems": True}, [[1, True, "1", [1], [True], None, {}, []]],
     [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], [[1], [1.0]], [None, None]]),
    ({"uniqueItems": False}, [[1, 1]], []),
    ({"properties": {"a": INT}}, [{}, {"a": 1}, {"b": "x"}, []], [{"a": "x"}]),
    ({"patternProperties": {"^a": INT}}, [{"ab": 1, "b": "x"}], [{"ab": "x"}]),
    ({"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": INT},
     [{"a": "s", "xy": "s", "b": 1}], [{"b": "s"}]),
    ({"additionalProperties": False}, [{}, 5], [{"a": 1}]),
    ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
    ({"required": ["a"]}, [{"a": None}, []], [{}, {"b": 1}]),
    ({"minProperties": 1}, [{"a": 1}, []], [{}]),
    ({"maxProperties": 1}, [{}], [{"a": 1, "b": 2}]),
    ({"dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 1}, 5], [{"a": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"b": 1}, {"a": 1, "b": 1}, 5],
     [{"a": 1}]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
    ({"anyOf": [STR, {"minimum": 2}]}, ["a", 2], [1]),
    ({"oneOf": [INT, {"minimum": 2}]}, [1, 2.5], [2, 1.5]),
    ({"not": STR}, [1], ["a"]),
    ({"if": INT, "then": {"minimum": 5}, "else": {"minLength": 2}}, [5, "ab", None], [4, "a"]),
    ({"then": False, "else": False}, [1], []),
    ({"format": "email", "title": 5, "x-mine": []}, ["no mail"], []),
    ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": INT}}, [1], ["a"]),
    ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "integer"}}}, [1], ["a"]),
    ({"properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
     [{}, {"next": {"next": {}}}], [{"next": {"nxt": {}}}]),
    ({"$ref": "#/components/x", "components": {"x": {"items": {"$ref": "#/components/y"}},
                                               "y": INT}}, [[1]], [["a"]]),
    ({"$id": "http://a/b", "$ref": "c", "$defs": {"c": {"$id": "c", "$ref": "#/$defs/d",
                                                        "$defs": {"d": INT}}}}, [1], ["a"]),
    ({"$id": "http://a/tree", "$dynamicAnchor": "node", "$ref": "base",
      "unevaluatedProperties": False, "$defs": {"base": {
          "$id": "base", "$dynamicAnchor": "node",
          "properties": {"v": True, "kids": {"items": {"$dynamicRef": "#node"}}}}}},
     [{"v": 1, "kids": [{"v": 2}]}], [{"w": 1}, {"kids": [{"w": 1}]}]),
    ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
     [{"a": 1}], [{"b": 1}]),
    ({"anyOf": [{"required": ["a"], "properties": {"a": {}}}, {"properties": {"b": {}}}],
      "unevaluatedProperties": False}, [{"a": 1, "b": 1}, {"b": 1}], [{"c": 1}]),
    ({"not": {"not": {"properties": {"a": {}}}}, "unevaluatedProperties": False},
     [{}], [{"a": 1}]),
    ({"if": {"required": ["a"], "properties": {"a": {}}}, "unevaluatedProperties": INT},
     [{"a": "s"}, {"b": 1}], [{"b": "s"}]),
    ({"prefixItems": [{}], "contains": STR, "unevaluatedItems": False},
     [[1], [1, "a"]][1:], [[1], [1, "a", 2]]),
    ({"allOf": [{"prefixItems": [{}]}, {"unevaluatedItems": True}], "unevaluatedItems": False},
     [[1, 2]], []),
]


@pytest.mark.parametrize("schema, good, bad", KEYWORD_CASES, ids=[str(row[0])[:50] for row in KEYWORD_CASES])
def test_keyword(schema, good, bad):
    check = prepare(schema)
    assert [value for value in good if check(value, "v")] == []
    assert [value for value in bad if not check(value, "v")] == []


PATTERNS = [
    (r"^\d+$", ["12"], ["\u0663", "12\n"]),
    (r"^\w$", ["a", "_"], ["\xe9"]),
    (r"^\W$", ["\xe9"], ["a"]),
    (r"^\s$", [" ", "\xa0", "\ufeff", "\u2029", "\v"], ["\x1c", "\x85", "a"]),
    (r"^\S$", ["a", "\x1c", "\U0001f600"], ["\xa0", " "]),
    (r"^[\s\S]$", ["\n", "a", "\U0010ffff"], [""]),
    (r"^[^\s]$", ["a"], ["\ufeff"]),
    (r"^.$", ["a", "\x85"], ["\n", "\r", "\u2028"]),
    (r"^[.$]$", [".", "$"], ["a"]),
    (r"^[[a]$", ["[", "a"], ["]"]),
    (r"^\[a\]$", ["[a]"], ["a"]),
    (r"^(?<year>\d{4})$", ["2024"], ["24"]),
    (r"(?<=a)b", ["ab"], ["cb"]),
    (r"^\$\.\u00e9$", ["$.\xe9"], ["a"]),
    (r"^[a-z&&~|]+$", ["a&~|"], ["A"]),
    (r"^(-[a-z]+)+(\d{2})*(a+)?[(a+)+]\(a+\)+$", ["-ab-c12+(a))"], ["-+(a)"]),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pattern, good, bad", PATTERNS)
def test_patterns_are_ecma_262(pattern, good, bad):
    check = prepare({"pattern": pattern})
    assert [text for text in good if check(text)] == []
    assert [text for text in bad if not check(text)] == []


ARGS = {"type": "object", "additionalProperties": False, "required": ["query"], "properties": {
    "query": STR, "limit": {"type": "number"}, "tags": {"type": "array", "items": STR},
    "mode": {"enum": ["asc", "desc", None]}, "to": {"anyOf": [STR, {"items": INT}]}}}
MESSAGES = [
    ({"query": "a", "limit": "ten"}, ['arguments.limit: expected number, got string "ten"']),
    ({"query": "a", "tags": ["a", "b", 3]}, ["arguments.tags[2]: expected string, got integer 3"]),
    ({}, ["arguments.query: expected string (required), got nothing"]),
    ([], ["arguments: expected object, got array of 0 items"]),
    ({"query": "a", "limt": 1},
     ['arguments: unknown property "limt" (did you mean "limit"?); '
      "valid: query, limit, tags, mode, to"]),
    ({"query": "a", "a b\ud800": 1},
     ['arguments: unknown property "a b\\ud800"; valid: query, limit, tags, mode, to']),
    ({"query": "a", "mode": "up"},
     ['arguments.mode: expected "asc" or "desc" or null, got string "up"']),
    ({"query": 5, "limit": None},
     ["arguments.query: expected string, got integer 5",
      "arguments.limit: expected number, got null"]),
    ({"query": "a", "to": [1, "x"]},
     ["arguments.to: expected string or integer at arguments.to[1], got array of 2 items"]),
]


@pytest.mark.parametrize("value, messages", MESSAGES)
def test_messages(value, messages):
    assert validate(value, ARGS, "arguments") == messages


def test_a_name_that_is_no_identifier_is_quoted_in_the_path():
    assert validate({"a b": [1]}, {"additionalProperties": {"items": STR}}) == [
        'value["a b"][0]: expected string, got integer 1']


REFUSED = [
    (5, "#: expected a schema"), (None, "#: "), ([], "#: "),
    ({"minimum": "3"}, '#/minimum: expected integer or number, got string "3"'),
    ({"required": "a"}, "#/required: expected array"), ({"required": [1]}, "#/required: "),
    ({"type": "strnig"}, '#/type: expected types among string, integer, number, boolean, '
                         'array, object, null, got string "strnig"'),
    ({"type": [["string"]]}, "#/type: "), ({"type": 5}, "#/type: "),
    ({"properties": []}, "#/properties: expected object"),
    ({"properties": {"a/b": {"items": {"minLength": 1.5}}}},
     "#/properties/a~1b/items/minLength: expected integer, got number 1.5"),
    ({"properties": {"a": 5}}, "#/properties/a: expected a schema"),
    ({"$defs": {"unused": {"pattern": "("}}}, '#/$defs/unused/pattern: "(" is no pattern'),
    ({"patternProperties": {"[": {}}}, '#/patternProperties: "[" is no pattern'),
    ({"pattern": r"a\Z"}, r"\Z is not supported"), ({"pattern": r"\p{L}"}, r"\p is not"),
    ({"pattern": "[]"}, "[] is not supported"), ({"pattern": r"\k"}, "is no pattern"),
    *[({"pattern": pattern}, "write a+, not (a+)+") for pattern in (
        "^(a+)+$", "([a-z]*)*", r"(?:\d+)*x", r"(?<n>[\]a(]+){2,}", r"(\u00e9{1,9}?)+", r"(\(+)+")],
    ({"$schema": "http://json-schema.org/draft-04/schema#"}, "draft-04"),
    ({"$schema": "http://json-schema.org/draft-04/schema#"}, "#/$schema: expected the dialect"),
    ({"$ref": "http://example.com/x"}, "is never fetched; copy what it means into $defs"),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "never fetched"),
    ({"items": {"$ref": "#/$defs/a"}}, '#/items/$ref: "#/$defs/a" is not in this schema'),
    ({"$ref": "#/$comment", "$comment": "x"}, "#/$ref: expected a schema"),
    ({"$ref": 5}, "#/$ref: expected string"), ({"$id": 5}, "#/$id: expected string"),
    ({"$id": "http://a", "items": {"$id": "//[x"}}, "is no URI"),
    ({"multipleOf": 0}, "#/multipleOf: expected a number above 0"),
    ({"uniqueItems": 1}, "#/uniqueItems: "), ({"enum": "a"}, "#/enum: "),
    ({"dependentRequired": {"a": "b"}}, "#/dependentRequired: "), ({"allOf": {}}, "#/allOf: "),
    ({"minimum": True}, "#/minimum: "), ({"if": 1}, "#/if: "), ({"$anchor": 1}, "#/$anchor: "),
    ({"$ref": "#"}, "refers to itself"), ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
    ({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {
        "a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "refers to itself"),
    ({"$dynamicAnchor": "x", "$dynamicRef": "#x"}, "refers to itself"),
]


@pytest.mark.parametrize("schema, words", REFUSED, ids=lambda x: str(x)[:50])
def test_a_schema_that_cannot_be_used_is_refused(schema, words):
    with pytest.raises(SchemaError) as caught:
        prepare(schema)
    assert words in str(caught.value)


def test_draft_07_spellings():
    check = prepare({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"s": STR}, "items": [{"$ref": "#/definitions/s"}, INT],
        "additionalItems": False, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}})
    assert check(["a", 1]) == check({"a": 1, "b": 1}) == check({"c": 1, "d": 1}) == []
    assert check(["a", "b"]) and check(["a", 1, 2]) and check({"a": 1}) and check({"c": 1})


def nest(depth, wrap, value):
    for _ in range(depth):
        value = wrap(value)
    return value


def test_hostile_values_and_schemas_are_bounded():
    deep = nest(50_000, lambda x: [x], 1)
    for schema in ({"items": {"$ref": "#"}}, {"const": 1}, {"enum": [[1]]}, {"not": {"const": 1}}):
        assert validate(deep, schema) == [
            "value: expected less depth, got a value nested too deeply"]
    assert "too deeply" in validate([deep, deep], {"uniqueItems": True})[0]
    with pytest.raises(SchemaError, match="too deeply"):
        prepare(nest(50_000, lambda x: {"not": x}, {}))
    assert validate(5, {"if": {"const": 5}, "then": {"$ref": "#"}})  # a loop met late
    many = list(range(100_000))
    assert validate(many, {"uniqueItems": True}) == []
    assert validate([n * (2**61 - 1) for n in many], {"uniqueItems": True}) == []
    assert validate("x", {"enum": many})
    assert len(validate(many, {"items": STR})) == mcp_server.MAX_PROBLEMS + 1
    assert validate(many, {"items": STR})[-1] == "value: ... and more"
    assert len(validate({str(n): n for n in many}, {"additionalProperties": False})) == 21
    long = "a" * (mcp_server.MAX_MATCHED + 1)
    for schema in ({"pattern": "^a+$"}, {"not": {"pattern": "b"}}, {"anyOf": [{"pattern": "b"}, {}]}):
        assert "expected 10000 characters or less" in validate(long, schema)[0]
    assert validate({long: 1}, {"patternProperties": {"b": {}}})
    tree = nest(8, lambda x: {"t": "9", "l": x, "r": x}, {"t": "9"})
    nodes = [{"properties": {"t": {"const": str(n)}, "l": {"$ref": "#"}, "r": {"$ref": "#"}}}
             for n in range(10)]
    assert validate(tree, {"oneOf": nodes}) == []


@pytest.mark.parametrize("value", [
    10**5000, -(10**5000), INF, -INF, NAN, 1e308, "\ud800", "x" * 10**6, {"\ud800": 1},
    [[]] * 9], ids=range(10))
def test_odd_values_never_raise_and_messages_stay_short(value):
    for schema in (False, {"const": 7}, {"not": {}}, {"multipleOf": 0.1, "maximum": 2, "minLength": 9**9},
                   {"enum": [1, "a", 10**5000]}, {"items": STR}, {"additionalProperties": STR},
                   {"maximum": -(10**5000)}, {"contains": {}, "minContains": 10**5000}):
        for text in validate(value, schema):
            assert len(text) < 300
            text.encode()
    assert len(show(value)) < 90


def test_show_json_type_same():
    assert [json_type(v) for v in (5, 5.0, 5.5, True, None, "", [], {})] == [
        "integer", "integer", "number", "boolean", "null", "string", "array", "object"]
    assert [show(v) for v in ("ten", 5, 1.5, True, None, [1], {"a": 1, "b": 2})] == [
        'string "ten"', "integer 5", "number 1.5", "boolean true", "null", "array of 1 item",
        "object of 2 keys"]
    def same(a, b):
        return mcp_server.identity(a) == mcp_server.identity(b)
    assert same(1, 1.0) and same({"a": [1]}, {"a": [1.0]}) and same(10**20, 1e20)
    assert not same(1, True) and not same([0], [False]) and not same("1", 1)
    assert not same([], {}) and not same(None, False) and not same(["array"], "array")


def test_subclasses_count_as_their_json_class():
    from collections import OrderedDict
    from enum import IntEnum
    Size = IntEnum("Size", "small large")
    assert validate(OrderedDict(a=Size.large), {"type": "object", "properties": {
        "a": {"type": "integer", "maximum": 2}}}) == []
    assert validate(OrderedDict(a=Size.large), {"properties": {"a": {"maximum": 1}}})


def test_validate_is_pure_and_sees_changes():
    schema = {"properties": {"a": INT}, "unevaluatedProperties": False}
    before = json.dumps(schema)
    assert validate({"a": "x"}, schema) and json.dumps(schema) == before
    schema["properties"]["a"] = STR
    assert validate({"a": "x"}, schema) == []


# ----------------------------------------------------------------------- 10. hints

def arr(items, **more):
    return {"type": "array", "items": items, **more}


def obj(required=(), extra=False, **properties):
    return {"type": "object", "properties": properties, "required": list(required),
            "additionalProperties": extra}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    A = (1, 2)
    B = object()


@dataclasses.dataclass
class Point:
    """A point.

    Attributes:
        x: across
        y: up
    """
    x: int
    y: "int | None" = None
    tags: List[str] = dataclasses.field(default_factory=list)
    scale: float = 1.5
    hidden: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Line:
    a: Point
    b: Optional[Point] = None

    def __post_init__(self):
        if self.b and self.a.x == self.b.x:
            raise ValueError("a line needs\ntwo points")


@dataclasses.dataclass
class Maybe:
    n: Optional[int] = 5
    when: Optional[dt.date] = dt.date(2024, 5, 1)
    many: Optional[List[Optional[int]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Node:
    value: int
    next: "Optional[Node]" = None


@dataclasses.dataclass
class Early:
    x: int
    early: dataclasses.InitVar[int]


@dataclasses.dataclass
class Shared:
    x: int
    many: typing.ClassVar[int] = 5


class Movie(TypedDict):
    title: str
    year: Optional[int]


class Loose(TypedDict, total=False):
    a: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Twin(Pair):
    """Its fields are inherited."""


class Limit:
    def __init__(self, **limits):
        self.__dict__.update(limits)


UserId = NewType("UserId", int)
T = TypeVar("T")
POINT = obj(["x"], x={"description": "across", **INT}, y={"description": "up", **INT},
            tags=arr(STR), scale={**NUM, "default": 1.5})

SCHEMAS = [
    (str, STR), (int, INT), (float, NUM), (bool, BOOL), 
    (Any, {}), (object, {}),
    (list, arr({})), (list[int], arr(INT)), (List[int], arr(INT)), (List, arr({})),
    (Sequence[str], arr(STR)), (Iterable[str], arr(STR)),
    (list[list[int]], arr(arr(INT))),
    (set[int], arr(INT, uniqueItems=True)), (Set[int], arr(INT, uniqueItems=True)),
    (frozenset[str], arr(STR, uniqueItems=True)),
    (tuple, arr({})), (tuple[int, ...], arr(INT)),
    (tuple[int, int], arr(INT, minItems=2, maxItems=2)),
    (Tuple[int, str], arr({"anyOf": [INT, STR]}, minItems=2, maxItems=2)),
    (tuple[int, Optional[str]], arr({}, minItems=2, maxItems=2)),
    (dict, obj(extra=True)), (Dict, obj(extra=True)), (dict[str, Any], obj(extra=True)),
    (dict[str, int], obj(extra=INT)), (Mapping[str, float], obj(extra=NUM)),
    (dict[int, str], HintError),
    (Literal["a", "b"], {**STR, "enum": ["a", "b"]}),
    (Literal[1, "b"], {"enum": [1, "b"]}),
    (Literal["a", None], {**STR, "enum": ["a"]}),
    (Color, {**STR, "enum": ["red", "blue"]}), (Level, {**INT, "enum": [1, 2]}),
    (Odd, {**STR, "enum": ["A", "B"]}), (Literal[Color.RED], {**STR, "enum": ["red"]}),
    (Optional[int], INT), (Union[int, None], INT), (Union[int, str], {"anyOf": [INT, STR]}),
    (Union[float, int, None], {"anyOf": [INT, NUM]}),
    (Optional[Any], {}),
    (list[Optional[int]], arr({})), (dict[str, Optional[int]], obj(extra=True)),
    (Annotated[int, "how many"], {**INT, "description": "how many"}),
    (Annotated[int, Limit(ge=1, lt=9, le=None)],
     {**INT, "minimum": 1, "exclusiveMaximum": 9}),
    (Annotated[int, Limit(gt=0, le=8, multiple_of=2)],
     {**INT, "exclusiveMinimum": 0, "maximum": 8, "multipleOf": 2}),
    (Annotated[str, Limit(min_length=1, max_length=3, pattern="^a")],
     {**STR, "minLength": 1, "maxLength": 3, "pattern": "^a"}),
    (Annotated[list[int], Limit(min_length=1)], arr(INT, minItems=1)),
    (Annotated[dict[str, int], Limit(max_length=2)], {**obj(extra=INT), "maxProperties": 2}),
    (Annotated[Optional[str], Limit(min_length=1), "t"],
     {**STR, "minLength": 1, "description": "t"}),
    (Annotated[int, Limit(metadata=[Limit(ge=1)], description="d")],
     {**INT, "minimum": 1, "description": "d"}),
    (Point, POINT),
    (Line, obj(["a"], a=POINT, b=POINT)),
    (list[Point], arr(POINT)),
    (Movie, obj(["title"], title=STR, year=INT)), (Loose, obj(a=INT)),
    (Pair, obj(["left"], left=INT, right={**STR, "default": "r"})),
    (dt.datetime, {**STR, "format": "date-time"}), (dt.date, {**STR, "format": "date"}),
    (dt.time, {**STR, "format": "time"}), (dt.timedelta, {**NUM, "title": "seconds"}),
    (pathlib.Path, STR), (uuid.UUID, {**STR, "format": "uuid"}),
    (decimal.Decimal, {"anyOf": [NUM, STR]}), (bytes, {**STR, "contentEncoding": "base64"}),
    (UserId, INT), ("list[int]", arr(INT)), ("int | None", INT),
    ("dict[str, int | str]", obj(extra={"anyOf": [INT, STR]})),
    (List["int"], arr(INT)),
    (T, HintError), (List[T], HintError), (Callable, HintError),
    (Annotated[float, Limit(ge=-INF)], HintError), (Annotated[int, Limit(ge=10**5000)], HintError),
    (Twin, obj(["left"], left=INT, right={**STR, "default": "r"})), (Shared, obj(["x"], x=INT)),
    (Early, HintError), (dict[pathlib.Path, int], HintError), (List[int].__class__, HintError),
    (set[list[int]], HintError), (frozenset[Movie], HintError), (set[Point], HintError),
    (Literal, HintError), (enum.Enum, HintError), (Union, HintError), (Annotated, HintError),
    (dt, HintError), (list[int, str], HintError), (dict[str], HintError),
    (Annotated[str, Limit(ge="b")], HintError), (Annotated[int, Limit(multiple_of=0)], HintError),
    (Annotated[str, Limit(min_length=1.5)], HintError),
    (Annotated[str, Limit(pattern="[")], HintError),
    (Annotated[dt.date, Limit(ge=dt.date(2024, 5, 1))], HintError),
    (Annotated[bytes, Limit(max_length=3)], HintError),
    (Annotated[decimal.Decimal, Limit(ge=1)], HintError),
    (Annotated[Union[list[int], str], Limit(min_length=2)], HintError),
    (Annotated[int, Limit(metadata=None, ge=len)], INT),
    (Callable[[int], int], HintError), (Node, HintError), ("Nowhere", HintError),
    ("not a hint", HintError), (threading.Thread, HintError),
    (complex, HintError), (type, HintError), (1, HintError),
]



def test_every_schema_is_portable():
    """What makes clients drop a tool never occurs, at any depth."""
    for hint, expected in SCHEMAS:
        if expected is not HintError:
            words = json.dumps(schema_of(hint))
            assert not re.search(r'"\$ref"|"\$defs"|"\$schema"|prefixItems|"null"', words)


@pytest.mark.parametrize("hint, expected", SCHEMAS, ids=lambda x: str(x)[:50])
def test_schema_of_a_hint(hint, expected):
    if expected is HintError:
        with pytest.raises(HintError) as caught:
            schema_of(hint)
        assert "write" in str(caught.value) or "import" in str(caught.value)
    else:
        assert schema_of(hint) == expected
        assert json.loads(json.dumps(schema_of(hint))) == expected


def arrive(hint, **arguments):
    """Send arguments to a tool whose x has that hint -> (result, what the tool got)."""
    came = []

    def take(x):
        came.append(x)
    take.__annotations__["x"] = hint
    return tool_server(take).call("take", **arguments), came


LOADS = [
    (int, 2, 2), (int, 2.0, 2), (int, 2.5, ValueError), (int, True, ValueError),
    (int, "5", ValueError), (int, float("inf"), ValueError), (int, 10**400, 10**400),
    (float, 2, 2.0), (float, True, ValueError), (float, 10**400, ValueError),
    (float, 2**53 + 1, float(2**53)), (bool, True, True), (bool, 1, ValueError),
    (str, "x", "x"), (str, 1, ValueError), (Any, [1], [1]),
    (list[int], [1, 2.0], [1, 2]), (list[int], {"a": 1}, ValueError),
    (set[int], [1, 2], {1, 2}), (frozenset[str], ["a"], frozenset("a")),
    (tuple[int, ...], [1, 2], (1, 2)), (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, str], ["a", 1], ValueError), (tuple[int, str], [1], ValueError),
    (dict[str, dt.date], {"a": "2024-05-01"}, {"a": dt.date(2024, 5, 1)}),
    (Literal[1, "b"], 1.0, 1), (Literal[1, "b"], True, ValueError),
    (Literal[True], 1, ValueError), (Literal["a", None], None, None),
    (Color, "red", Color.RED), (Color, "RED", ValueError), (Level, 2, Level.HIGH),
    (Level, True, ValueError), (Odd, "A", Odd.A), (Color, [], ValueError),
    (Literal[Color.RED], "red", Color.RED),
    (Union[int, str], "5", "5"), (Union[int, str], 5, 5), (Union[str, int], 5, 5),
    (Union[float, int], 1, 1), (Union[int, float], 1.5, 1.5),
    (Union[dt.date, str], "2024-05-01", dt.date(2024, 5, 1)),
    (Union[dt.date, str], "soon", "soon"), (Union[int, bool], True, True),
    (Union[list[int], list[str]], ["a"], ["a"]), (Union[int, str], None, ValueError),
    (Optional[int], None, None), (Optional[int], 3.0, 3), (int, None, ValueError),
    (list[Optional[int]], [1, None], [1, None]), (list[int], [None], ValueError),
    (Point, {"x": 1}, Point(1)), (Point, {"x": 1, "y": None}, Point(1)),
    (Point, {}, ValueError), (Point, {"x": 1, "z": 2}, ValueError),
    (Point, {"x": 1, "hidden": 2}, ValueError),
    (Line, {"a": {"x": 1}, "b": {"x": 2.0}}, Line(Point(1), Point(2))),
    (Line, {"a": {"x": 1}, "b": {"x": 1}}, ValueError),
    (Union[Pair, Loose], {"a": 1}, {"a": 1}),
    (Union[Pair, Loose], {"left": 1}, Pair(1, "r")),
    (Movie, {"title": "t"}, {"title": "t", "year": None}),
    (Movie, {"title": "t", "year": None}, {"title": "t", "year": None}),
    (Maybe, {}, Maybe()), (Maybe, {"n": 1.0, "many": [None]}, Maybe(1, many=[None])),
    (Maybe, {"n": None, "when": None, "many": None}, Maybe(None, None, None)),
    (List[Maybe], [{"n": None}], [Maybe(None)]), (Union[Maybe, int], {"n": None}, Maybe(None)),
    (Optional[Union[int, dt.date]], None, None), (Maybe, {"n": "x"}, ValueError),
    (Loose, {}, {}), (Loose, {"a": None}, ValueError), (Pair, {"left": 1}, Pair(1)),
    (dt.datetime, "2024-05-01T12:30:00Z",
     dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.timezone.utc)),
    (dt.datetime, "2024-05-01T12:30:00", dt.datetime(2024, 5, 1, 12, 30)),
    (dt.datetime, "2024-05-01T12:30:00.5z",
     dt.datetime(2024, 5, 1, 12, 30, 0, 500_000, dt.timezone.utc)),
    (dt.time, "12:30:00.12345678", dt.time(12, 30, 0, 123_456)),
    (dt.datetime, "soon", ValueError), (dt.date, 5, ValueError),
    (dt.time, "12:30", dt.time(12, 30)),
    (dt.timedelta, 90, dt.timedelta(seconds=90)), (dt.timedelta, True, ValueError),
    (dt.timedelta, 1e300, ValueError),
    (pathlib.Path, "a/b", pathlib.Path("a/b")), (pathlib.Path, 5, ValueError),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678",
     uuid.UUID("12345678-1234-5678-1234-567812345678")),
    (uuid.UUID, "x", ValueError), (uuid.UUID, 5, ValueError),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    (decimal.Decimal, 0.1, decimal.Decimal("0.1")), (decimal.Decimal, "x", ValueError),
    (decimal.Decimal, True, ValueError),
    (bytes, base64.b64encode(b"hi").decode(), b"hi"), (bytes, "?", ValueError),
    (UserId, 5.0, 5),
]



@pytest.mark.parametrize("hint, value, expected", LOADS, ids=lambda x: str(x)[:40])
def test_arguments_arrive_as_the_annotated_types(hint, value, expected):
    result, came = arrive(hint, x=value)
    if expected is ValueError:
        assert result["isError"] and not came
        assert re.search("(?m)^arguments.*: ", result["content"][0]["text"])
    else:
        assert came == [expected] and type(came[0]) is type(expected)


def test_the_short_way_of_plain_arguments_leads_where_the_long_one_does():
    def plain(s: str, i: int, f: float = 0.5, b: bool = True) -> str: ...
    def mixed(s: str, path: pathlib.Path = pathlib.Path()) -> str: ...
    def none() -> str: ...
    values = ["x", 5, True, 1.5, 2.0, float("inf"), None, ["x"], pathlib.Path()]
    whole = {"s": "x", "i": 1, "f": 1.5, "b": False}
    given = [{}, *({**whole, name: value} for value in values for name in "sifbx"),
             {"s": "x"}, {"s": "x", "i": 1}, *({"s": "x", "path": value} for value in values)]
    for fn, schema, expected in ((plain, None, 6), (mixed, None, 0), (none, None, 1),
                                 (plain, {"type": "object", "required": ["z"]}, 0),
                                 (none, {"type": "object", "required": ["z"]}, 0)):
        server, short = Server("x"), 0
        server.register(fn, name="fn", input_schema=schema)
        tool = server.tools["fn"]
        for arguments in given:
            if {name: type(arguments[name]) for name in arguments} == tool.signature.usual:
                assert tool.ready(arguments, False) == arguments
                short += 1
        assert short == expected


LOAD_MESSAGES = [
    (dt.date, "soon", 'arguments.x: expected date, got string "soon"'),
    (list[int], [1, "a", None], 'arguments.x[1]: expected integer, got string "a"\n'
     "arguments.x[2]: expected integer, got null"),
    (list[dt.date], ["x"], 'arguments.x[0]: expected date, got string "x"'),
    (Line, {"a": {"x": "1"}, "b": 5}, 'arguments.x.a.x: expected integer, got string "1"\n'
     "arguments.x.b: expected object, got integer 5"),
    (Line, {"a": {"x": 1}, "b": {"x": 1}}, "arguments.x: a line needs two points"),
    (Color, "green", 'arguments.x: expected "red" or "blue", got string "green"'),
    (tuple[int, str], ["a", "b"], 'arguments.x[0]: expected integer, got string "a"'),
    (list[Optional[int]], [None, "a"],
     'arguments.x[1]: expected integer, got string "a"'),
    (Point, {"x": 1, "z": 1}, 'arguments.x: unknown property "z"; valid: x, y, tags, scale'),
]


@pytest.mark.parametrize("hint, value, message", LOAD_MESSAGES, ids=lambda x: str(x)[:40])
def test_messages_name_the_path_what_was_expected_and_what_came(hint, value, message):
    text = arrive(hint, x=value)[0]["content"][0]["text"]
    assert text == f"Invalid arguments for tool 'take':\n{message}"


GOOGLE = """Add two numbers.

    Slowly.

    Args:
        a (int): the first,
            on two lines
        b: the second: with colon
        **rest: more

    Returns:
        the sum
    """
NUMPY = """Add two numbers.

    Parameters
    ----------
    a : int
        the first,
        on two lines
    x, y : float, optional
        both

    Returns
    -------
    int
        the sum
    """
REST = """Add two numbers.

    :param a: the first,
        on two lines
    :param int b: the second
    :type a: int
    :returns: the sum
    """
DOCS = [
    (None, ("", {})), ("", ("", {})), ("  One line. ", ("One line.", {})),
    ("One.\n\n    Two.\n      Deep.\n    ", ("One.\n\nTwo.\n  Deep.", {})),
    (GOOGLE, ("Add two numbers.\n\nSlowly.\n\nReturns:\n    the sum",
              {"a": "the first, on two lines", "b": "the second: with colon",
               "rest": "more"})),
    (NUMPY, ("Add two numbers.\n\nReturns\n-------\nint\n    the sum",
             {"a": "the first, on two lines", "x": "both", "y": "both"})),
    (REST, ("Add two numbers.\n\n:returns: the sum",
            {"a": "the first, on two lines", "b": "the second"})),
    ("Note: Args are:\n    not this", ("Note: Args are:\nnot this", {})),
    ("Do.\n\nArgs:\n    a (:obj:`int`): one\n    b (list of (int, str)): two (so: 2)\n",
     ("Do.", {"a": "one", "b": "two (so: 2)"})),
]


@pytest.mark.parametrize("doc, expected", DOCS, ids=range(len(DOCS)))
def test_docstrings(doc, expected):
    assert mcp_server.read_doc(doc) == expected



def tool_schema(fn, **options):
    server = Server("test")
    server.register(fn, name="f", **options)
    return server.tools["f"].entry["inputSchema"]


def test_parameters_of_every_kind():
    def f(a: int, b: int = 2, /, c: Optional[str] = None, *, d: bool = True,
          ctx: Optional[Context] = None) -> str:
        """Do it.

        Args:
            a: the first
        """
        return json.dumps([a, b, c, d, ctx is not None])
    assert tool_schema(f) == obj(
        ["a"], a={**INT, "description": "the first"}, b={**INT, "default": 2}, c=STR,
        d={**BOOL, "default": True})
    server = tool_server(f)
    assert server.tools["f"].entry["description"] == "Do it."
    for given, got in (({"a": 1}, [1, 2, None, True, True]),
                       ({"a": 1, "b": 3, "c": None}, [1, 3, None, True, True]),
                       ({"a": 1.0, "c": "x", "d": False}, [1, 2, "x", False, True])):
        assert json.loads(server.call("f", **given)["content"][0]["text"]) == got


def test_null_is_taken_only_where_the_hint_has_none():
    def f(a: Optional[int], b: int = 6, c: Optional[int] = 5) -> str:
        return json.dumps([a, b, c])
    server = tool_server(f)
    assert tool_schema(f)["required"] == []
    assert server.call("f")["content"][0]["text"] == "[null, 6, 5]"
    assert server.call("f", a=None, c=None)["content"][0]["text"] == "[null, 6, null]"
    assert server.call("f", b=None)["isError"]
    schema = schema_of(dict[str, list[Union[Line, int]]])
    value = {"k": [{"a": {"x": 1, "y": None}, "b": None}, 5]}
    assert mcp_server.without_nulls(value, schema) == {"k": [{"a": {"x": 1}}, 5]}
    assert value["k"][0]["b"] is None


def test_string_annotations_are_read(tmp_path):
    (tmp_path / "late.py").write_text(textwrap.dedent("""
        from __future__ import annotations
        import dataclasses, typing
        from mcp_server import Context
        @dataclasses.dataclass
        class P:
            x: int | None
            n: list[int | str]
        class D(typing.TypedDict):
            p: P | None
        def f(a: int, c: Context | None, p: P | None = None, d: D | None = None) -> P:
            return P(a, [1])
        def g(a: Gone): ...
        """))
    sys.path.insert(0, str(tmp_path))
    try:
        late = importlib.import_module("late")
    finally:
        sys.path.remove(str(tmp_path))
    p = obj(["n"], x=INT, n=arr({"anyOf": [INT, STR]}))
    assert tool_schema(late.f) == obj(["a"], a=INT, p=p, d=obj(p=p))
    server = tool_server(late.f)
    assert server.tools["f"].entry["outputSchema"] == p
    assert server.call("f", a=1)["structuredContent"] == {"x": 1, "n": [1]}
    with pytest.raises(HintError, match="tool 'f': parameter 'a': the hint 'Gone'"):
        tool_schema(late.g)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="before, a def looks its hints up")
def test_a_hint_that_nobody_has_defined_is_named():
    names = {}
    exec(compile(textwrap.dedent("""
        def f(a: Gone): ...
        def g(a: int) -> Gone: ...
        class C:
            def f(self, a: Gone): ...
        def h(a: Gone, **options): ...
        """), "late.py", "exec", dont_inherit=True), names)
    for function in (names["f"], names["C"]().f):
        with pytest.raises(HintError, match="tool 'f': parameter 'a': the hint 'Gone'"):
            tool_schema(function)
    with pytest.raises(HintError, match="tool 'f': a hint cannot be read .*Gone"):
        tool_schema(names["h"])
    assert tool_schema(names["g"]) == obj(["a"], a=INT)


class Adder:
    """Adds."""

    def __call__(self, a: int, b: int = 1): ...
    def method(self, a: int, b: int = 1): ...
    @classmethod
    def clsm(cls, a: int, b: int = 1): ...
    @staticmethod
    def stat(a: int, b: int = 1): ...


def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)
    return wrapper


def base(a: int, b: int = 1, c: str = ""): ...


CALLABLES = [Adder(), Adder().method, Adder.clsm, Adder().clsm, Adder.stat, Adder().stat,
             functools.partial(base, c="x"), wrapped(Adder.stat),
             wrapped(wrapped(Adder.stat)), wrapped(Adder().method)]


@pytest.mark.parametrize("fn", CALLABLES, ids=range(len(CALLABLES)))
def test_every_kind_of_callable_is_a_tool(fn):
    schema = tool_schema(fn)
    assert schema["properties"]["a"] == INT
    assert schema["properties"]["b"] == {**INT, "default": 1}
    assert not {"self", "cls"} & set(schema["properties"])


def refused():
    def no_hint(x): ...
    def odd_default(x=[]): ...
    def star(*xs: int): ...
    def kwargs(**xs: int): ...
    def bad_class(x: Dict[str, threading.Thread]): ...
    def bad_default(x: Any = object()): ...
    def nan(x: float = float("nan")): ...
    def huge(x: int = 10**5000): ...
    def recursive(x: Node): ...
    def two(ctx: Context, context: Context): ...
    def misfit(x: int = "a"): ...
    def no_choice(x: Literal["a"] = "b"): ...
    def nans(x: List[float] = [float("nan")]): ...
    def early(x: Early): ...
    def context(ctx): ...
    return [(no_hint, "tool 'f': parameter 'x': it has no type hint; write x: str"),
            (context, "write ctx: Context"), (Adder.method, "with an object made first"),
            (lambda cls, a: 1, r"write register\(Class.method\), after the class"),
            (odd_default, "parameter 'x': it has no type hint"),
            (lambda x: x, "parameter 'x'"), (star, r"parameter \*xs: clients send arguments by name"),
            (kwargs, "input_schema"),
            (bad_class, "parameter 'x': Thread has no JSON form; write str"),
            (bad_default, "parameter 'x': the default .* is not JSON; use None"),
            (two, "parameter 'context': one Context is enough"),
            (misfit, "parameter 'x': its default: expected integer, got string \"a\""),
            (no_choice, "its default: expected \"a\""), (nans, "expected number, got null"),
            (early, "Early field 'early': .* has no JSON form"),
            (nan, "use None"), (huge, "the default .* is not JSON; use None"),
            (recursive, "parameter 'x': Node field 'next': Node contains itself; write")]


@pytest.mark.parametrize("fn, message", refused(), ids=lambda x: str(x)[:40])
def test_what_cannot_be_expressed_is_refused_at_registration(fn, message):
    with pytest.raises(HintError, match=message):
        tool_schema(fn)


def test_defaults_stand_in_the_schema():
    def f(a: Color = Color.RED, b: pathlib.Path = pathlib.PurePosixPath("x"),
          c: dt.date = dt.date(2024, 5, 1), d: Point = Point(1, 2),
          e: dt.timedelta = dt.timedelta(minutes=1), g: Tuple[int, int] = (1, 2),
          h: decimal.Decimal = decimal.Decimal("1.5"), i: Odd = Odd.B,
          j: Set[int] = {1}, k: Level = Level.LOW, n: Any = None): ...
    found = {name: field.get("default", "none")
             for name, field in tool_schema(f)["properties"].items()}
    assert found == {"a": "red", "b": "x", "c": "2024-05-01", "e": 60.0, "g": [1, 2],
                     "d": {"x": 1, "y": 2, "tags": [], "scale": 1.5, "hidden": 0},
                     "h": "1.5", "i": "B", "j": [1], "k": 1, "n": "none"}


def test_an_explicit_schema_is_kept_to_the_letter():
    came = []

    def f(when: dt.date, odd: Callable = None, bare=object(), **rest):
        came.append((when, odd, rest))
    schema = {"type": "object", "properties": {"when": {"type": "string"}},
              "$defs": {"x": {"$anchor": "y"}}, "if": {"required": ["z"]}}
    assert tool_schema(f, input_schema=schema) is schema
    server = Server("test")
    server.register(f, input_schema=schema)
    server.call("f", when="2024-05-01", z=1, odd=2)
    assert came == [(dt.date(2024, 5, 1), 2, {"z": 1})]
    assert server.call("f", when=None)["isError"]
    for function in (lambda a, /: a, lambda a: a):
        server.register(function, name="g", input_schema={"type": "object"})
        assert "arguments.a: expected a value (required), got nothing" in (
            text_of({"result": server.call("g")}))
        server.unregister("g")


def test_conversion_copes_with_whatever_a_written_schema_lets_through():
    def f(ctx: Context, /, b: Optional[int] = None, p: Optional[Point] = None,
          c: Optional[Color] = None, m: Optional[Dict[str, dt.date]] = None) -> str:
        return f"{b} {p} {c} {m} {ctx.request_id}"
    server = Server("test")
    server.register(f, input_schema={"type": "object"})
    assert text_of({"result": server.call("f", b=None, p=None)}) == "None None None None 2"
    for bad in ({"p": 5}, {"m": 5}, {"c": "green"}, {"m": {"a": "soon"}}, {"b": "x"}):
        result = server.call("f", **bad)
        assert result["isError"] and "Invalid arguments" in result["content"][0]["text"]


MODEL_PARTS = [  # (a schema that a model brings, the same for every client)
    ({"type": "array", "prefixItems": [INT, STR], "minItems": 2},
     {"type": "array", "items": {"anyOf": [INT, STR]}, "minItems": 2}),
    ({"enum": ["a", None]}, {"enum": ["a"]}),
    ({"anyOf": [INT, STR, {"type": "null"}]}, {"anyOf": [INT, STR]}),
    ({"type": "object", "properties": {"discriminator": INT, "$ref": INT, "default": INT},
      "required": ["discriminator"], "discriminator": {"propertyName": "x"}},
     obj(["discriminator"], **{"discriminator": INT, "$ref": INT, "default": INT})),
    ({"const": {"$ref": 1}, "examples": [{"$ref": None}]},
     {"const": {"$ref": 1}, "examples": [{"$ref": None}]}),
    ({"type": "string", "pattern": "["}, HintError),
]


@pytest.mark.parametrize("brought, expected", MODEL_PARTS, ids=str)
def test_what_a_model_brings_is_made_portable(brought, expected):
    class Brought:
        @staticmethod
        def model_json_schema():
            return {"type": "object", "properties": {"x": brought}, "required": ["x"]}
    if expected is HintError:
        with pytest.raises(HintError, match="Brought has no good schema .*#/properties/x"):
            schema_of(Brought)
    else:
        assert schema_of(Brought) == obj(["x"], x=expected)


def test_what_a_dataclass_or_an_enum_shows_of_itself():
    def f(color: Odd) -> Shared:
        assert color is Odd.A
        return Shared(1)
    server = tool_server(f)
    assert server.call("f", color="A")["structuredContent"] == {"x": 1}
    assert mcp_server.plain([Odd.A, Color.RED, Level.LOW]) == ["A", "red", 1]


def test_a_callable_object_is_read_itself():
    class Caller:
        func = "text"

        async def __call__(self, a: int, ctx: Context) -> str:
            return f"{a} {ctx.request_id}"
    server = Server("test")
    server.register(Caller(), name="f")
    assert server.call("f", a=1)["content"][0]["text"] == "1 2"


def test_the_choices_of_a_union_are_told_apart():
    fields = [{"properties": {name: INT}, "additionalProperties": False} for name in "ab"]
    assert validate({"c": 1}, {"anyOf": fields}, "x") == [
        'x: expected no unknown property "c"; valid: a or no unknown property "c"; valid: b, '
        "got object of 1 key"]


def test_a_long_list_of_problems_is_cut():
    text = arrive(List[dt.date], x=["soon"] * 100_000)[0]["content"][0]["text"]
    assert len(text) < 3000


@pytest.mark.skipif(not hasattr(typing, "NotRequired"), reason="needs Python 3.11")
def test_required_and_not_required():
    class A(TypedDict):
        a: int
        b: typing.NotRequired[int]

    class B(TypedDict, total=False):
        a: typing.Required[Annotated[int, "t"]]
        b: "typing.NotRequired[int]"
    assert schema_of(A) == obj(["a"], a=INT, b=INT)
    assert schema_of(B) == obj(["a"], a={**INT, "description": "t"}, b=INT)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12")
def test_type_statements():
    scope = {}
    exec("type Ids = list[int]\ntype Json = list[Json]", scope)
    assert schema_of(scope["Ids"]) == arr(INT)
    with pytest.raises(HintError, match="contains itself"):
        schema_of(scope["Json"])


@pytest.mark.skipif(sys.version_info < (3, 10), reason="needs Python 3.10")
def test_bar_unions():
    assert schema_of(int | None) == INT
    assert schema_of(list[int | str]) == arr({"anyOf": [INT, STR]})


class Model:
    """As pydantic's models are: they bring a schema and a check of their own."""

    def __init__(self, value):
        self.value = value

    @staticmethod
    def model_json_schema():
        return {"$defs": {"In": {"type": "object", "properties": {"n": {"type": "integer"}},
                                 "required": ["n"]}},
                "type": "object", "required": ["inner", "maybe"], "title": "Model",
                "properties": {
                    "inner": {"$ref": "#/$defs/In"},
                    "maybe": {"anyOf": [{"$ref": "#/$defs/In"}, {"type": "null"}],
                              "default": None}}}

    @classmethod
    def model_validate(cls, value):
        if value["inner"]["n"] < 0:
            raise ValueError("n is\ntoo small")
        return cls(value)


def test_a_model_brings_its_own_schema_and_check():
    inner = obj(["n"], n=INT)
    assert schema_of(Model) == {**obj(["inner"], inner=inner, maybe=inner), "title": "Model"}
    result, came = arrive(Model, x={"inner": {"n": 1}, "maybe": None})
    assert came[0].value == {"inner": {"n": 1}, "maybe": None}
    result, came = arrive(Model, x={"inner": {"n": -1}})
    assert "arguments.x: n is too small" in result["content"][0]["text"]

    class Loop(Model):
        @staticmethod
        def model_json_schema():
            return {"$ref": "#/$defs/L", "$defs": {"L": {"items": {"$ref": "#/$defs/L"}}}}
    with pytest.raises(HintError, match="L contains itself"):
        schema_of(Loop)


def test_plain_functions_need_no_heavy_module():
    body = """
        import sys, mcp_server
        def f(a: int, b: str = 'x', c: 'list[int]' = None, d: dict[str, float] = {}):
            'Doc.'
        server = mcp_server.Server("s")
        server.register(f)
        server.call("f", a=1)
        bad = {'typing', 'inspect', 'dataclasses', 'ast', 'base64', 'datetime', 'difflib'}
        print(sorted(bad & set(sys.modules)))
        """
    done = subprocess.run([sys.executable, "-S", "-c", textwrap.dedent(body)], cwd=HERE,
                          capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


COERCE = [
    (int, "5", 5), (int, 5, 5), (int, "007", "007"), (int, "1e3", 1000), (int, "", ""),
    (int, "null", "null"), (int, "5.5", "5.5"), (int, "true", "true"), (int, " 5 ", 5),
    (int, '"5"', '"5"'), (int, "NaN", "NaN"), (int, "0x10", "0x10"), (int, "-3", -3),
    (float, "2.5", 2.5), (float, "Infinity", "Infinity"), (float, "NaN", "NaN"),
    (bool, "true", True), (bool, "True", "True"), (bool, "1", "1"), (bool, 1, 1),
    (str, "5", "5"), (str, '{"a": 1}', '{"a": 1}'), (str, "null", "null"), (str, 5, 5),
    (Optional[str], "null", "null"), (Optional[int], "null", "null"),
    (Optional[int], "5", 5), (Union[int, str], "5", "5"), (Any, "5", "5"),
    (Union[int, bool], "true", True), (Union[Literal["a"], int], "5", "5"),
    (list[int], "[1]", [1]), (list[int], ["1", 2], [1, 2]), (list[int], '["1"]', [1]),
    (list[int], ["1", "x"], [1, "x"]), (list[str], ["1"], ["1"]),
    (list[str], '["1"]', ["1"]), (list[int], "[" * 100000, "[" * 100000),
    (dict[str, int], '{"a": 1}', {"a": 1}), (dict[str, int], {"a": "1"}, {"a": 1}),
    (Point, {"x": "1", "tags": '["a"]'}, {"x": 1, "tags": ["a"]}),
    (Line, {"a": '{"x": "1"}'}, {"a": {"x": 1}}),
    (Union[list[int], bool], '["1"]', [1]), (Literal[1, 2], "2", 2), (Literal[1], "3", "3"),
]



@pytest.mark.parametrize("hint, value, expected", COERCE, ids=lambda x: str(x)[:30])
def test_coerce_converts_only_what_is_refused_as_it_is(hint, value, expected):
    before = json.dumps(value)
    result = mcp_server.coerce(value, schema_of(hint), lambda v, s: not validate(v, s))
    assert result == expected and type(result) in (type(expected), float)
    assert json.dumps(value) == before


def test_coerce_leaves_alone_what_a_reference_describes():
    server = Server("test", coerce=True)
    server.register(lambda a, b: f"{a} {b}", name="f", input_schema={
        "type": "object", "$defs": {"n": INT},
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": INT}})
    assert server.call("f", a=1, b="2")["content"][0]["text"] == "1 2"
    assert "arguments.a: expected integer" in server.call("f", a="1", b=2)["content"][0]["text"]


def test_coerce_prepares_a_schema_once_for_all_items():
    fits, prepared = mcp_server.fitting(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcp_server, "prepare", lambda schema: prepared.append(schema) or prepare(schema))
        assert mcp_server.coerce(["5"] * 1000, schema_of(List[int]), fits) == [5] * 1000
    assert len(prepared) == 2


# -------------------------------------------------------------------------- tools


def test_register_works_bare_called_named_as_a_call_and_on_methods():
    server = Server("test")

    class Shop:
        def price(self, item: str) -> str:
            """What it costs."""
            return f"{item}: 3"

    @server.register
    def bare() -> str:
        return "bare"

    @server.register()
    def called() -> str:
        return "called"

    @server.tool(name="other-name", description="Does it.", title="T")
    def named() -> str:
        return "named"

    def plain_function() -> str:
        return "plain"
    shop = Shop()
    assert server.register(plain_function) is plain_function
    assert server.register(shop.price) == shop.price
    assert bare() == "bare" and called() == "called" and named() == "named"
    assert [server.call(name)["content"][0]["text"] for name in (
        "bare", "called", "other-name", "plain_function")] == [
        "bare", "called", "named", "plain"]
    assert server.call("price", item="tea")["content"][0]["text"] == "tea: 3"


def tool_names(peer):
    return [tool["name"] for tool in peer.result(request("list", "tools/list"))["tools"]]


def test_the_default_server_is_behind_the_module_functions():
    assert mcp_server.register.__self__ is mcp_server.run.__self__
    assert isinstance(mcp_server.register.__self__, Server)


BAD_REGISTRATIONS = [  # (name, what is done, what the message must say)
    ("spaces", lambda s: s.register(lambda: 1, name="my tool"), "name='my_tool'"),
    ("lambda", lambda s: s.register(lambda: 1), "name='lambda'"),
    ("too long", lambda s: s.register(lambda: 1, name="x" * 65), "1 to 64"),
    ("dots", lambda s: s.register(lambda: 1, name="a.b"), "name='a_b'"),
    ("empty prefix result", lambda s: s.include(tool_server(ok), prefix="a "), "a_ok"),
    ("duplicate", lambda s: (s.register(ok), s.register(ok)), "unregister('ok')"),
    ("not callable", lambda s: s.register("sum"), '@register(name="...")'),
    ("no hint", lambda s: s.register(no_hint), "x"),
    ("star args", lambda s: s.register(star_args), "args"),
    ("bad default", lambda s: s.register(bad_default), "None"),
    ("unknown class", lambda s: s.register(unknown_class), "x"),
    ("builtin", lambda s: s.register(len), "write a def"),
    ("class", lambda s: s.register(threading.Thread), "write a def"),
    ("root not an object", lambda s: s.register(ok, input_schema={"type": "array"}),
     '"type": "object"'),
    ("other dialect", lambda s: s.register(ok, input_schema={
        "type": "object", "$schema": "http://json-schema.org/draft-04/schema#"}), "draft-04"),
    ("dangling $ref", lambda s: s.register(ok, input_schema={
        "type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}), "#/$defs/no"),
    ("bad pattern", lambda s: s.register(ok, input_schema={
        "type": "object", "properties": {"a": {"pattern": "("}}}), "pattern"),
    ("meta not JSON", lambda s: s.register(ok, meta={"a": object()}), "plain JSON"),
    ("unregister unknown", lambda s: s.unregister("nope"), "nope"),
    ("a class for a server", lambda s: Server.register(ok), 'Server("name")'),
    ("icons no list", lambda s: s.register(ok, icons="a.png"), "options.icons: expected array"),
    ("icons no objects", lambda s: s.prompt(icons=["a.png"])(ok), "options.icons[0]: expected"),
    ("an icon of nothing", lambda s: s.register(ok, icons=[{}]), "options.icons[0].src"),
    ("description no text", lambda s: s.register(ok, description=("a",)), "description: expec"),
    ("title no text", lambda s: s.resource("a://b", title=5)(ok), "options.title: expected str"),
    ("annotations no object", lambda s: s.register(ok, annotations="x"), "options.annotations"),
    ("a hint that is no hint", lambda s: s.register(ok, annotations={"readOnlyHint": "maybe"}),
     'options.annotations.readOnlyHint: expected boolean, got string "maybe"'),
    ("meta no object", lambda s: s.register(ok, meta="x"), "options._meta: expected object"),
    ("a time limit in words", lambda s: s.register(ok, timeout="5"), "options.timeout: expected"),
    ("a negative time limit", lambda s: Server(timeout=-1), "options.timeout: expected at least"),
    ("no workers", lambda s: Server(max_workers=0), "options.max_workers: expected at least 1"),
    ("workers in words", lambda s: Server(max_workers="4"), "options.max_workers: expected int"),
    ("pages of nothing", lambda s: Server(page_size=0), "options.page_size: expected at least"),
    ("an odd scope", lambda s: s.resource("a://b", cache_scope="all")(ok), '"public" or "priv'),
]


def ok() -> str:
    return "ok"


def no_hint(x):
    return x


def star_args(*args: int) -> str:
    return ""


def bad_default(x: list = [object()]) -> str:  # noqa
    return ""


def unknown_class(x: threading.Thread) -> str:
    return ""


@pytest.mark.parametrize("act, hint", [row[1:] for row in BAD_REGISTRATIONS],
                         ids=[row[0] for row in BAD_REGISTRATIONS])
def test_a_bad_registration_is_refused_with_the_way_out(act, hint):
    with pytest.raises((ValueError, TypeError)) as caught:
        act(Server("test"))
    assert hint in str(caught.value)


def test_changes_while_serving_are_announced_and_listed():
    server = tool_server(ok)
    other = tool_server(ok)

    @other.register
    def more() -> str:
        return "more"
    with Peer(server) as peer:
        changed = notification("notifications/tools/list_changed")
        peer.fence()  # it has read notifications/initialized
        server.register(ok, name="again")
        assert peer.recv() == changed
        assert tool_names(peer) == ["ok", "again"]
        server.unregister("ok")
        assert peer.recv() == changed
        server.include(other, prefix="x_")
        assert peer.recv() == changed and peer.recv() == changed
        assert tool_names(peer) == ["again", "x_ok", "x_more"]
        assert peer.text(call(1, "x_more")) == "more"
        assert peer.error(call(2, "ok")) == {
            "code": -32602, "message": "Unknown tool: ok",
            "data": {"availableTools": ["again", "x_ok", "x_more"]}}


def test_lists_are_paged_and_cursors_survive_changes():
    server = Server("test", page_size=2)
    for name in "abcde":
        server.register(ok, name=name)
    with Peer(server) as peer:
        page = peer.result(request(1, "tools/list"))
        assert [tool["name"] for tool in page["tools"]] == ["a", "b"]
        server.unregister("a")
        peer.recv()
        page = peer.result(request(2, "tools/list", {"cursor": page["nextCursor"]}))
        assert [tool["name"] for tool in page["tools"]] == ["c", "d"]
        server.unregister("d")  # the very entry that the cursor names
        peer.recv()
        page = peer.result(request(3, "tools/list", {"cursor": page["nextCursor"]}))
        assert [tool["name"] for tool in page["tools"]] == ["e"] and "nextCursor" not in page
        for bad in ("", "x", "bnVsbA==", "e30=", "\ud800", "éé", 5, None, {}):
            assert peer.error(request(4, "tools/list", {"cursor": bad}))["code"] == -32602


@pytest.mark.parametrize("params", [
    {}, {"name": 5}, {"name": "ok", "arguments": []}, {"name": "ok", "arguments": "{}"},
    {"name": "nope"}, {"name": None}])
def test_a_malformed_tools_call_is_invalid_params(params):
    with Peer(tool_server(ok)) as peer:
        assert peer.error(request(1, "tools/call", params))["code"] == -32602
        assert peer.result(request(2, "tools/call", {"name": "ok"}))["content"]


@pytest.mark.parametrize("version", mcp_server.PROTOCOL_VERSIONS)
def test_arguments_are_checked_before_the_tool_runs(version):
    ran = []

    def search(query: str, limit: int = 10) -> str:
        ran.append(query)
        return query
    with Peer(tool_server(search), version=version) as peer:
        reply = peer.ask(call(1, "search", limit="ten", qery="x"))
        if version < "2025-11-25":
            assert reply["error"]["code"] == -32602
            message = reply["error"]["message"]
        else:
            assert reply["result"]["isError"]
            message = text_of(reply)
        for part in ("arguments.limit: expected integer, got string \"ten\"", "query", "qery"):
            assert part in message
        assert not ran


RETURNS = [  # (name, what the tool returns, the content that arrives)
    ("str", "hé", [{"type": "text", "text": "hé"}]),
    ("empty", "", [{"type": "text", "text": ""}]),
    ("None", None, []),
    ("int", 5, [{"type": "text", "text": "5"}]),
    ("bool", True, [{"type": "text", "text": "true"}]),
    ("float", 1.5, [{"type": "text", "text": "1.5"}]),
    ("NaN", float("nan"), [{"type": "text", "text": "null"}]),
    ("dict", {"a": [1, "é"]}, [{"type": "text", "text": '{"a": [1, "é"]}'}]),
    ("nested NaN", [float("inf"), 1], [{"type": "text", "text": "[null, 1]"}]),
    ("list of str", ["a", "b"], [{"type": "text", "text": '["a", "b"]'}]),
    ("surrogate", "\ud800x", [{"type": "text", "text": "\ud800x"}]),
    ("text bytes", b"hi", [{"type": "text", "text": "hi"}]),
    ("png bytes", b"\x89PNG1", [{"type": "image", "data": "iVBORzE=",
                                 "mimeType": "image/png"}]),
    ("other bytes", b"\xff\x00", [{"type": "resource", "resource": {
        "uri": "data:result", "mimeType": "application/octet-stream", "blob": "/wA="}}]),
    ("block", mcp_server.text("t"), [{"type": "text", "text": "t"}]),
    ("image", mcp_server.image(b"\x01", "image/gif"), [
        {"type": "image", "data": "AQ==", "mimeType": "image/gif"}]),
    ("base64", mcp_server.audio("AQ==", "audio/wav"), [
        {"type": "audio", "data": "AQ==", "mimeType": "audio/wav"}]),
    ("mix", ["a", mcp_server.embedded("x://y", "t", "text/plain"), 3], [
        {"type": "text", "text": "a"},
        {"type": "resource", "resource": {"uri": "x://y", "mimeType": "text/plain",
                                          "text": "t"}},
        {"type": "text", "text": "3"}]),
    ("link", mcp_server.link("x://y", "y", size=3), [
        {"type": "resource_link", "uri": "x://y", "name": "y", "size": 3}]),
]


@pytest.mark.parametrize("value, content", [row[1:] for row in RETURNS],
                         ids=[row[0] for row in RETURNS])
def test_what_a_tool_returns_becomes_content(value, content):
    def give() -> object:
        return value
    server = Server("test")
    server.register(give)
    with Peer(server) as peer:
        assert peer.result(call(1, "give")) == {"content": content}


def test_python_objects_become_json():
    import dataclasses
    import datetime
    import decimal
    import enum
    import pathlib
    import uuid

    class Color(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Point:
        x: int
        when: datetime.date

    class Scalar:  # as numpy has them
        def tolist(self):
            return 2.5

    class Plot:  # as matplotlib has them
        def savefig(self, file, format):
            file.write(b"\x89PNG")
    zero = uuid.UUID(int=0)
    assert mcp_server.plain({
        "p": Point(1, datetime.date(2026, 1, 2)), Color.RED: {3, 1}, 5: (1, 2),
        "path": pathlib.PurePosixPath("a/b"), "d": decimal.Decimal("1.10"), "u": zero,
        "t": datetime.timedelta(seconds=90), "n": Scalar(), "b": b"\x01"}) == {
        "p": {"x": 1, "when": "2026-01-02"}, "red": [1, 3], "5": [1, 2], "path": "a/b",
        "d": "1.10", "u": str(zero), "t": 90.0, "n": 2.5, "b": "AQ=="}
    assert mcp_server.blocks_of(Plot()) == [mcp_server.image(b"\x89PNG")]


def test_structured_output_comes_from_a_dataclass_or_a_schema():
    import dataclasses

    @dataclasses.dataclass
    class Weather:
        city: str
        degrees: float

    def weather(city: str) -> Weather:
        return Weather(city, 21.5)

    def broken() -> dict:
        return {"n": "x"}
    server = tool_server(weather)
    server.register(broken, output_schema={"type": "object", "properties": {
        "n": {"type": "integer"}}})
    with Peer(server) as peer:
        listed = peer.result(request(1, "tools/list"))["tools"]
        assert listed[0]["outputSchema"]["required"] == ["city", "degrees"]
        result = peer.result(call(2, "weather", city="Oslo"))
        assert result["structuredContent"] == {"city": "Oslo", "degrees": 21.5}
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        result = peer.result(call(3, "broken"))
        assert result["isError"] and "result.n: expected integer" in result["content"][0]["text"]


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Hopeless(BaseException):
    def __str__(self):
        raise self


def recurse():
    recurse()


def raiser(error):
    def act():
        raise error
    return act


OUTCOMES = [  # (name, what the tool does, what the client must read)
    ("ValueError", raiser(ValueError("no such city")), "ValueError: no such city"),
    ("SystemExit", raiser(SystemExit(3)), "SystemExit: 3"),
    ("KeyboardInterrupt", raiser(KeyboardInterrupt()), "KeyboardInterrupt"),
    ("GeneratorExit", raiser(GeneratorExit()), "GeneratorExit"),
    ("MemoryError", raiser(MemoryError()), "MemoryError"),
    ("RecursionError", recurse, "RecursionError"),
    ("Cancelled by itself", raiser(Cancelled()), "Cancelled"),
    ("StopIteration", raiser(StopIteration()), "StopIteration"),
    ("unprintable", raiser(Unprintable()), "Unprintable"),
    ("worse than unprintable", raiser(Hopeless()), "Hopeless"),
    ("ToolError", raiser(ToolError("Say please.")), "Say please."),
    ("unserialisable", lambda: threading.Lock(), "cannot be sent as JSON"),
    ("sys.exit", lambda: sys.exit("bye"), "bye"),
]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("act, says", [row[1:] for row in OUTCOMES],
                         ids=[row[0] for row in OUTCOMES])
def test_promise_6_every_failure_is_answered_with_a_sentence(act, says, is_async, capfd):
    def tool() -> str:
        return act()

    async def async_tool() -> str:
        return act()
    with Peer(tool_server(tool, async_tool)) as peer:
        result = peer.result(call(1, "async_tool" if is_async else "tool"))
        assert result["isError"] and says in result["content"][0]["text"]
        assert "Traceback" not in result["content"][0]["text"]
        peer.fence()
    assert ("Traceback" in capfd.readouterr().err) == (says != "Say please.")


def test_an_rpc_error_is_a_protocol_error():
    def tool() -> str:
        raise RpcError(-32099, "Not today", {"retry": True})

    def odd() -> str:
        raise RpcError(-32099, "Odd", {"x": object()})
    with Peer(tool_server(tool, odd)) as peer:
        assert peer.error(call(1, "tool")) == {
            "code": -32099, "message": "Not today", "data": {"retry": True}}
        assert peer.error(call(2, "odd"))["code"] == -32603


def test_big_deep_and_circular_values_are_answered():
    def big() -> str:
        return "é" * 10_000_000

    def deep() -> object:
        value = []
        for _ in range(100_000):
            value = [value]
        return value

    def circular() -> object:
        value = {}
        value["self"] = value
        return value
    with Peer(tool_server(big, deep, circular)) as peer:
        assert len(peer.text(call(1, "big"))) == 10_000_000
        assert peer.result(call(2, "deep"))["isError"]
        assert peer.result(call(3, "circular"))["isError"]
        peer.fence()


def test_masked_errors_carry_a_reference_that_is_in_the_log(capfd):
    def leak() -> str:
        raise ValueError("password is hunter2")
    with Peer(tool_server(leak, mask_errors=True)) as peer:
        text = peer.text(call(1, "leak"))
        assert "hunter2" not in text
        reference = re.search(r"reference (\w+)", text).group(1)
    errors = capfd.readouterr().err
    assert reference in errors and "hunter2" in errors


def test_serial_tools_share_one_thread_and_others_do_not_wait():
    seen, entered, finish = [], threading.Event(), threading.Event()
    server = Server("test")

    @server.register(serial=True)
    def first() -> str:
        seen.append(threading.get_ident())
        entered.set()
        finish.wait(BOUND)
        return "first"

    @server.register(serial=True)
    def second() -> str:
        seen.append(threading.get_ident())
        return "second"
    server.register(ok)
    with Peer(server) as peer:
        peer.send(call(1, "first"), call(2, "second"))
        assert entered.wait(BOUND)
        assert peer.text(call(3, "ok")) == "ok"
        finish.set()
        assert [text_of(peer.recv()) for _ in range(2)] == ["first", "second"]
    assert len(seen) == 2 and len(set(seen)) == 1


def test_async_tools_run_on_one_loop_at_the_same_time():
    import asyncio
    meeting = []

    async def meet(n: int, ctx: Context) -> str:
        meeting.append(asyncio.get_running_loop())
        while len(meeting) < 10:
            await ctx.sleep(0.001)
        done = await ctx.run([sys.executable, "-c", "print(6 * 7)"]) if n == 0 else None
        return done.stdout.strip() if done else "met"
    with Peer(tool_server(meet)) as peer:
        peer.send(*(call(i, "meet", n=i) for i in range(10)))
        replies = {reply["id"]: text_of(reply) for reply in (peer.recv() for _ in range(10))}
    assert replies == {0: "42", **{i: "met" for i in range(1, 10)}}
    assert len(set(meeting)) == 1


def test_the_context_knows_the_request_and_the_client():
    def who(ctx: Context) -> dict:
        return {"id": ctx.request_id, "version": ctx.protocol_version, "meta": ctx.meta,
                "client": ctx.client_info["name"], "can": ctx.client_capabilities,
                "cancelled": ctx.cancelled}
    with Peer(tool_server(who), version="2025-06-18", sampling={}) as peer:
        assert "ctx" not in json.dumps(peer.result(request(0, "tools/list")))
        message = call("x", "who")
        message["params"]["_meta"] = {"trace": 1}
        assert json.loads(peer.text(message)) == {
            "id": "x", "version": "2025-06-18", "meta": {"trace": 1}, "client": "test",
            "can": {"sampling": {}}, "cancelled": False}


def test_coerce_and_allow_extra_are_settings_of_a_tool_or_the_server():
    def double(n: int) -> int:
        return 2 * n
    server = tool_server(double)
    server.register(double, name="coerced", coerce=True)
    server.register(double, name="extra", allow_extra=True)
    with Peer(server) as peer:
        assert peer.result(call(1, "double", n="4"))["isError"]
        assert peer.text(call(2, "coerced", n="4")) == "8"
        assert peer.result(call(3, "double", n=4, m=5))["isError"]
        assert peer.text(call(4, "extra", n=4, m=5)) == "8"
    assert text_of({"result": tool_server(double, coerce=True).call("double", n="4")}) == "8"


# ----------------------------------------------------------------------- resources


def library(**options):
    """A server with one resource of every kind."""
    server = Server("library", "1", **options)

    @server.resource("notes://today", size=5)
    def today() -> str:
        """Today's note."""
        return "hello"

    @server.resource("img://logo.png")
    def logo() -> bytes:
        return b"\x89PNG"

    @server.resource("data://all", title="All", annotations={"audience": ["user"]})
    def everything() -> dict:
        return {"a": [1, None]}

    @server.resource("dir://two", mime_type="inode/directory")
    def several() -> list:
        return [mcp_server.embedded("dir://two/a", "A"), mcp_server.embedded("dir://two/b", b"B")]

    @server.resource("notes://{topic}/{number}")
    def note(topic: str, number: int, ctx: Context) -> str:
        return f"{topic} {number} {ctx.request_id}"

    @server.resource("file:///{+path}")
    def file(path: str) -> str:
        return path

    @server.resource("search://{kind}{?q,lang}")
    def search(kind: str, q: str = "none", lang: str = "en") -> str:
        return f"{kind}|{q}|{lang}"

    @server.resource("bad://{how}")
    def bad(how: str) -> str:
        if how == "exit":
            sys.exit("bye")
        raise {"tool": ToolError("not today"), "rpc": RpcError(-5, "five", {"n": 1}),
               "value": ValueError("arguments")}[how]
    return server


def read(uri, id=1):
    return request(id, "resources/read", {"uri": uri})


def test_resources_are_listed_and_read():
    with Peer(library()) as peer:
        assert peer.welcome["capabilities"]["resources"] == {
            "listChanged": True, "subscribe": True}
        listed = peer.result(request(1, "resources/list"))["resources"]
        assert listed[0] == {"uri": "notes://today", "name": "today", "size": 5,
                             "description": "Today's note."}
        assert listed[1] == {"uri": "img://logo.png", "name": "logo", "mimeType": "image/png"}
        assert [entry["uri"] for entry in listed] == [
            "notes://today", "img://logo.png", "data://all", "dir://two"]
        templates = peer.result(request(2, "resources/templates/list"))["resourceTemplates"]
        assert [entry["uriTemplate"] for entry in templates] == [
            "notes://{topic}/{number}", "file:///{+path}", "search://{kind}{?q,lang}",
            "bad://{how}"]
        for uri, contents in {
            "notes://today": [{"uri": "notes://today", "mimeType": "text/plain",
                               "text": "hello"}],
            "img://logo.png": [{"uri": "img://logo.png", "mimeType": "image/png",
                                "blob": "iVBORw=="}],
            "data://all": [{"uri": "data://all", "mimeType": "application/json",
                            "text": '{"a": [1, null]}'}],
            "dir://two": [{"uri": "dir://two/a", "mimeType": "text/plain", "text": "A"},
                          {"uri": "dir://two/b", "mimeType": "application/octet-stream",
                           "blob": "Qg=="}],
        }.items():
            assert peer.result(read(uri)) == {"contents": contents}


TEMPLATE_URIS = [  # (URI, the text that is read; None: there is no such resource)
    ("notes://a/5", "a 5 1"), ("notes://a%20b/5", "a b 5 1"), ("notes://%C3%A9/5", "é 5 1"),
    ("notes://a/x", None), ("notes://a/5/6", None), ("notes://a", None), ("notes:///5", None),
    ("notes://a%252Fb/5", "a%2Fb 5 1"),  # decoded once, and not again
    ("notes://a%2Fb/5", None), ("notes://a%2fb/5", None), ("notes://../5", None),
    ("notes://%2e%2e/5", None), ("notes://%2E./5", None), ("notes://./5", None),
    ("notes://..%2f..%2fetc/5", None), ("notes://a%5Cb/5", None), ("notes://a\\b/5", None),
    ("notes://a%00/5", None), ("notes://C%3A/5", None), ("notes://c:/5", None),
    ("notes://a%0Ab/5", None), ("notes://...%20/5", "...  5 1"),
    ("file:///a/b.txt", "a/b.txt"), ("file:///a%2Fb", "a/b"), ("file:////etc/passwd", None),
    ("file:///%2Fetc/passwd", None), ("file:///../etc", None), ("file:///a/../../etc", None),
    ("file:///a/%2e%2e/etc", None), ("file:///a/..", None), ("file:///..%2f..", None),
    ("file:///a%5c..%5cb", None), ("file:///C:/x", None), ("file:///c%3a/x", None),
    ("file:///a/./b", None), ("file:///a..b/c", "a..b/c"), ("file:///a%00b", None),
    ("file:///a/..;/b", "a/..;/b"),
    ("search://x", "x|none|en"), ("search://x?q=1", "x|1|en"),
    ("search://x?lang=de&q=a%20b%26c", "x|a b&c|de"), ("search://x?q=", "x||en"),
    ("search://x?other=1", "x|none|en"), ("search://x#f", None),
    ("nowhere://x", None), ("", None), ("notes://{topic}/{number}", None),
    ("notes://" + "a" * 10_000_000 + "/5", None),
]


@pytest.mark.parametrize("uri, text", TEMPLATE_URIS, ids=lambda x: str(x)[:30])
def test_promise_7_a_template_cannot_be_walked_out_of(uri, text):
    with Peer(library()) as peer:
        reply = peer.ask(read(uri))
        if text is None:
            assert reply["error"]["code"] == -32002 and reply["error"]["data"] == {"uri": uri}
        else:
            assert reply["result"]["contents"][0]["text"] == text


@pytest.mark.parametrize("template", [
    "x://{a", "x://a}", "x://{a,b}", "x://{?q}/more", "x://{#a}", "x://{/a}", "x://{a:3}",
    "x://{a*}", "x://{a}{a}", "x://{a}{b}", "x://{}", "no-scheme", "x://{other}", 5])
def test_a_template_that_is_not_supported_is_refused(template):
    def f(a: str = "", b: str = "", q: str = "") -> str:
        return a
    server = Server("test")
    server.resource("x://{a}{?q,b}")(f)
    with pytest.raises((ValueError, TypeError)):
        server.resource(template)(f)

    def needs(a: str) -> str:
        return a
    with pytest.raises(ValueError, match="differ in a; name both the same"):
        server.resource("x://fixed")(needs)


def test_failures_of_resources_are_protocol_errors(capfd):
    with Peer(library()) as peer:
        assert peer.error(read("bad://tool")) == {"code": -32603, "message": "not today"}
        assert peer.error(read("bad://rpc")) == {"code": -5, "message": "five",
                                                "data": {"n": 1}}
        assert "KeyError: 'x'" in peer.error(read("bad://x"))["message"]
        assert "SystemExit: bye" in peer.error(read("bad://exit"))["message"]
        assert peer.error(request(1, "resources/read"))["code"] == -32602
    assert "Traceback" in capfd.readouterr().err


def test_subscribers_hear_of_changes():
    server = library()
    with Peer(server) as peer:
        server.resource_updated("notes://today")
        assert peer.result(request(1, "resources/subscribe", {"uri": "notes://today"})) == {}
        server.resource_updated("notes://today")
        assert peer.recv() == notification("notifications/resources/updated",
                                           {"uri": "notes://today"})
        server.resource_updated("data://all")
        assert peer.result(request(2, "resources/unsubscribe", {"uri": "notes://today"})) == {}
        server.resource_updated("notes://today")
        server.unregister("notes://today")
        assert peer.recv() == notification("notifications/resources/list_changed")
        assert peer.error(read("notes://today"))["code"] == -32002
        assert peer.error(request(3, "resources/subscribe", {"uri": 5}))["code"] == -32602


@pytest.mark.parametrize("masked", [False, True])
def test_a_template_that_finds_nothing_says_not_found(masked):
    server = Server("test", mask_errors=masked)

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return {"milk": "buy milk"}[name]

    @server.resource("notes://all")
    def notes() -> str:
        return {}["no such key"]
    with Peer(server) as peer:
        error = peer.error(read("notes://tea"))
        assert error["code"] == -32002 and ("KeyError" in error["message"]) is not masked
        assert peer.error(modern(2, "resources/read", {"uri": "notes://tea"}))["code"] == -32602
        assert peer.error(read("notes://all"))["code"] == -32603  # that is a fault


# ------------------------------------------------------------------------- prompts


def prompter():
    server = Server("prompts", "1")

    @server.prompt(title="Review")
    def review(code: str, style: Literal["short", "long"] = "short", lines: int = 3,
               strict: bool = False) -> str:
        """Review code.

        Args:
            code: what to review
        """
        return f"{code}|{style}|{lines}|{strict}"

    @server.prompt(name="forms")
    def several(form: str) -> object:
        return {"block": mcp_server.image(b"x"), "list": ["a", mcp_server.text("b")],
                "messages": [{"role": "assistant", "content": "c"},
                             {"role": "user", "content": mcp_server.text("d")}],
                "exit": None if form != "exit" else sys.exit(1)}[form]

    @server.resource("city://{country}/{city}")
    def city(country: str, city: str) -> str:
        return city

    @server.completion("city://{country}/{city}", "city")
    def cities(value, others):
        names = {"no": ["Oslo", "Odda"], "many": [f"c{i}" for i in range(250)]}
        return [name for name in names.get(others.get("country"), []) if name.startswith(value)]

    @server.completion("review", "code")
    async def codes(value):
        return [value + "!"]
    return server


def test_prompts_are_listed_and_got():
    def get(name, **arguments):
        return request(1, "prompts/get", {"name": name, "arguments": arguments})
    with Peer(prompter()) as peer:
        listed = peer.result(request(1, "prompts/list"))["prompts"]
        assert listed[0] == {
            "name": "review", "title": "Review", "description": "Review code.", "arguments": [
                {"name": "code", "description": "what to review", "required": True},
                {"name": "style", "required": False}, {"name": "lines", "required": False},
                {"name": "strict", "required": False}]}
        result = peer.result(get("review", code="x", lines="5", strict="true"))
        assert result == {"description": "Review code.", "messages": [
            {"role": "user", "content": {"type": "text", "text": "x|short|5|True"}}]}
        assert [m["role"] for m in peer.result(get("forms", form="messages"))["messages"]] == [
            "assistant", "user"]
        assert [m["content"]["type"] for form in ("block", "list") for m in
                peer.result(get("forms", form=form))["messages"]] == ["image", "text", "text"]
        for bad, says in ((get("nope"), "nope"), (get("review"), "arguments.code"),
                          (get("review", code="x", cod="y"), '"cod"'),
                          (get("review", code="x", style="no"), "arguments.style"),
                          (get("review", code="x", lines="many"), "arguments.lines"),
                          (request(2, "prompts/get", {"name": "review", "arguments": []}), "")):
            error = peer.error(bad)
            assert error["code"] == -32602 and says in error["message"]
        assert peer.error(get("forms", form="exit"))["code"] == -32603


def test_completion_from_types_and_functions():
    def complete(ref, name, value, **context):
        return request(1, "completion/complete", {
            "ref": ref, "argument": {"name": name, "value": value},
            **({"context": {"arguments": context}} if context else {})})
    review, place = ({"type": "ref/prompt", "name": "review"},
                     {"type": "ref/resource", "uri": "city://{country}/{city}"})
    with Peer(prompter()) as peer:
        for message, values in (
                (complete(review, "style", ""), ["short", "long"]),
                (complete(review, "style", "LO"), ["long"]),
                (complete(review, "strict", "t"), ["true"]),
                (complete(review, "lines", "1"), []),
                (complete(review, "code", "x"), ["x!"]),
                (complete(place, "city", "O", country="no"), ["Oslo", "Odda"]),
                (complete(place, "city", "O"), []), (complete(place, "country", "n"), [])):
            assert peer.result(message)["completion"] == {
                "values": values, "total": len(values), "hasMore": False}
        many = peer.result(complete(place, "city", "c", country="many"))["completion"]
        assert (len(many["values"]), many["total"], many["hasMore"]) == (100, 250, True)
        for bad in (complete({"type": "ref/prompt", "name": "no"}, "x", ""),
                    complete({**place, "type": "x"}, "city", ""), complete(review, "no", ""),
                    request(1, "completion/complete", {
                        "ref": place, "argument": {"name": "city", "value": ""},
                        "context": {"arguments": "no"}}),
                    complete(review, "code", 5), request(1, "completion/complete"),
                    request(1, "completion/complete", {"ref": review, "argument": 5})):
            assert peer.error(bad)["code"] == -32602


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources", "resourceTemplates"])
def test_every_list_is_paged(kind):
    server = Server("test", page_size=2)
    for i in range(5):
        server.register(ok, name=f"t{i}")
        server.prompt(ok, name=f"p{i}")
        server.resource(f"x://{i}")(ok)
        server.resource(f"x{i}://{{a}}")(lambda a="": a)
    method = {"resourceTemplates": "resources/templates/list"}.get(kind, f"{kind}/list")
    with Peer(server) as peer:
        sizes, params = [], {}
        while params is not None:
            page = peer.result(request(1, method, params))
            sizes.append(len(page[kind]))
            params = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
        assert sizes == [2, 2, 1]
        other = peer.result(request(1, "prompts/list" if kind == "tools" else "tools/list"))
        assert peer.error(request(1, method, {"cursor": other["nextCursor"]}))["code"] == -32602


# ------------------------------------------------------------ logging and progress


def test_log_messages_respect_the_level():
    def speak(ctx: Context) -> str:
        for level in mcp_server.LOG_LEVELS:
            ctx.log(level, {"level": level, "nan": float("nan")}, logger="me")
        ctx.debug("d"), ctx.info("i"), ctx.warning("w"), ctx.error("e")
        return "spoken"

    def wrong(ctx: Context) -> str:
        ctx.log("loud", "x")
        return ""
    with Peer(tool_server(speak, wrong)) as peer:
        for threshold, levels in (("emergency", 1), ("debug", 12), ("warning", 7)):
            assert peer.result(request(1, "logging/setLevel", {"level": threshold})) == {}
            peer.send(call(2, "speak"))
            messages = [peer.recv() for _ in range(levels)]
            assert all(m["method"] == "notifications/message" for m in messages)
            assert text_of(peer.recv()) == "spoken"
        assert messages[0]["params"] == {"level": "warning", "logger": "me",
                                         "data": {"level": "warning", "nan": None}}
        assert "one of debug" in peer.text(call(3, "wrong"))
        assert peer.error(request(4, "logging/setLevel", {"level": "loud"}))["code"] == -32602


def with_token(message, token):
    message["params"]["_meta"] = {"progressToken": token}
    return message


@pytest.mark.parametrize("version, token", [
    ("2025-11-25", "t"), ("2025-03-26", 0), ("2024-11-05", 5)])
def test_promise_8_progress(version, token):
    late = []

    def work(ctx: Context) -> str:
        for value in (1, 1, 0.5, 2):
            ctx.report_progress(value, 3, "step")
        late.append(ctx)
        return "done"

    def items(ctx: Context) -> list:
        return [item for item in ctx.track("ab")]
    with Peer(tool_server(work, items), version=version) as peer:
        assert peer.text(call(1, "work")) == "done"  # no token: no progress
        peer.send(with_token(call(2, "work"), token))
        for value in (1, 2):
            params = {"progressToken": token, "progress": value, "total": 3}
            if version >= "2025-03-26":
                params["message"] = "step"
            assert peer.recv() == notification("notifications/progress", params)
        assert text_of(peer.recv()) == "done"
        late[-1].report_progress(3)  # after the answer: nothing
        peer.send(with_token(call(3, "items"), token))
        assert [peer.recv()["params"]["progress"] for _ in range(2)] == [1, 2]
        assert text_of(peer.recv()) == '["a", "b"]'
        peer.send(with_token(call(4, "work"), {"not": "a token"}))
        assert text_of(peer.recv()) == "done"


def test_promise_8_a_heartbeat_keeps_the_clock_running():
    finish = threading.Event()

    def slow(ctx: Context) -> str:
        ctx.report_progress(7, 10)
        finish.wait(BOUND)
        return "done"
    with Peer(tool_server(slow, heartbeat=0.01)) as peer:
        peer.send(with_token(call(1, "slow"), "t"))
        beats = [peer.recv()["params"] for _ in range(4)]
        assert beats[0]["progress"] == 7 and beats[-1]["total"] == 10
        values = [beat["progress"] for beat in beats]
        assert values == sorted(set(values)) and values[-1] < 7.01
        finish.set()
        while "result" not in peer.recv():
            pass
    with Peer(tool_server(slow, heartbeat=None)) as peer:
        peer.send(with_token(call(1, "slow"), "t"))
        assert peer.recv()["params"]["progress"] == 7
        assert text_of(peer.recv()) == "done"


@pytest.mark.parametrize("progress, total", [
    (NAN, None), ("half", None), (decimal.Decimal(1), None), (True, None), (1, "2")])
def test_a_progress_that_is_no_number_is_refused(progress, total):
    def odd(ctx: Context) -> str:
        ctx.report_progress(progress, total)
    with Peer(tool_server(odd)) as peer:
        assert "expected finite numbers, got" in peer.text(with_token(call(1, "odd"), "t"))


def test_an_alarm_that_fails_does_not_end_the_foreman(capfd):
    finish, errors = threading.Event(), []

    def odd(ctx: Context) -> str:
        ctx.report_progress(10**400)  # to which nothing can be added

        def failed():
            errors.append(capfd.readouterr().err)
            return "an alarm failed" in "".join(errors)
        wait_until(failed)
        return "done"

    def slow() -> str:
        finish.wait(BOUND)
        return "done"
    with Peer(tool_server(odd, slow, heartbeat=0.01)) as peer:
        peer.send(with_token(call(1, "odd"), "t"))
        while "result" not in peer.recv():
            pass
        peer.send(call(2, "slow"))
        peer.fence()  # somebody reads
        finish.set()
        assert text_of(peer.recv()) == "done"


# -------------------------------------------------------------- asking the client

COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


def asker(**options):
    server = Server("asker", "1", **options)

    @server.register
    def favourite(ctx: Context) -> str:
        return json.dumps(ctx.elicit("Which colour?", COLOR))

    @server.register
    async def favourite_async(ctx: Context) -> str:
        return json.dumps(await ctx.elicit("Which colour?", COLOR))

    @server.register
    def poem(ctx: Context) -> str:
        return ctx.sample("A poem", 50, system_prompt="Rhyme.")["content"]["text"]

    @server.register
    def roots(ctx: Context) -> list:
        return ctx.list_roots()

    @server.register
    def sign_in(ctx: Context) -> str:
        return ctx.elicit_url("Sign in", "https://example.com")["action"]

    @server.register
    def both(ctx: Context) -> dict:
        return ctx.ask({"who": {"method": "roots/list"},
                        "what": {"method": "elicitation/create", "params": {
                            "message": "m", "requestedSchema": COLOR}}})
    return server


ABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def respond(question, result):
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


@pytest.mark.parametrize("tool", ["favourite", "favourite_async"])
def test_a_tool_asks_the_user_and_waits(tool):
    with Peer(asker(), **ABLE) as peer:
        question = peer.ask(call(1, tool))
        assert question["method"] == "elicitation/create"
        assert question["params"] == {"message": "Which colour?", "requestedSchema": COLOR}
        peer.fence()  # the reader is free meanwhile
        answer = {"action": "accept", "content": {"color": "red"}}
        assert json.loads(text_of(peer.ask(respond(question, answer)))) == answer
        question = peer.ask(call(2, tool))
        assert json.loads(text_of(peer.ask(respond(question, {"action": "decline"})))) == {
            "action": "decline"}
        for bad in ({"action": "accept", "content": {"color": 5}}, {"action": "accept"},
                    {"action": "shrug"}, {}, "text"):
            question = peer.ask(call(3, tool))
            result = peer.ask(respond(question, bad))["result"]
            assert result["isError"] and "does not fit" in result["content"][0]["text"]
        question = peer.ask(call(4, tool))
        result = peer.ask({"jsonrpc": "2.0", "id": question["id"],
                           "error": {"code": -1, "message": "User rejected"}})["result"]
        assert result["isError"] and "User rejected" in result["content"][0]["text"]


def test_sampling_roots_url_and_several_at_once():
    with Peer(asker(), **ABLE) as peer:
        question = peer.ask(call(1, "poem"))
        assert (question["method"], question["params"]) == ("sampling/createMessage", {
            "messages": [{"role": "user", "content": {"type": "text", "text": "A poem"}}],
            "maxTokens": 50, "systemPrompt": "Rhyme."})
        assert text_of(peer.ask(respond(question, {
            "role": "assistant", "model": "m", "content": {"type": "text", "text": "Ode"}}))
        ) == "Ode"
        question = peer.ask(call(2, "roots"))
        assert text_of(peer.ask(respond(question, {"roots": [{"uri": "file:///a"}]}))) == (
            '[{"uri": "file:///a"}]')
        question = peer.ask(call(3, "sign_in"))
        assert question["params"]["mode"] == "url" and question["params"]["elicitationId"]
        assert text_of(peer.ask(respond(question, {"action": "accept"}))) == "accept"
        first, second = peer.ask(call(4, "both")), peer.recv()
        peer.send(respond(second, {"action": "cancel"}), respond(first, {"roots": []}))
        assert json.loads(text_of(peer.recv())) == {
            "who": {"roots": []}, "what": {"action": "cancel"}}


@pytest.mark.parametrize("tool, capabilities", [
    ("favourite", {}), ("favourite", {"elicitation": {"url": {}}}), ("poem", {}),
    ("roots", {"sampling": {}}), ("sign_in", {"elicitation": {}}),
    ("sign_in", {"elicitation": {"form": {}}}), ("both", {"elicitation": {}})])
def test_only_what_the_client_declared_is_asked(tool, capabilities):
    with Peer(asker(), **capabilities) as peer:
        result = peer.result(call(1, tool))
        assert result["isError"] and "not declared" in result["content"][0]["text"]


def test_many_tools_ask_at_once():
    with Peer(asker(), **ABLE) as peer:
        peer.send(*(call(i, "favourite") for i in range(30)))
        questions = [peer.recv() for _ in range(30)]
        assert len({question["id"] for question in questions}) == 30
        peer.send(*(respond(q, {"action": "cancel"}) for q in reversed(questions)))
        assert {peer.recv()["id"] for _ in range(30)} == set(range(30))


@pytest.mark.parametrize("tool", ["favourite", "favourite_async"])
def test_cancelling_the_call_cancels_the_question(tool):
    with Peer(asker(), **ABLE) as peer:
        question = peer.ask(call(1, tool))
        assert peer.ask(cancel(1)) == cancel(question["id"])
        peer.send(respond(question, {"action": "accept"}))  # too late: ignored
        peer.fence()


def test_a_question_has_a_time_limit():
    with Peer(asker(patience=0.01), **ABLE) as peer:
        question = peer.ask(call(1, "favourite"))
        assert peer.recv() == cancel(question["id"])
        result = peer.recv()["result"]
        assert result["isError"] and "silent for too long" in result["content"][0]["text"]


def test_the_end_of_input_wakes_every_waiter():
    with Peer(asker(), **ABLE) as peer:
        peer.send(call(1, "favourite"), call(2, "poem"))
        peer.recv(), peer.recv()
        peer.close()
        replies = {reply["id"]: reply["result"] for reply in (peer.recv(), peer.recv())}
        assert all("client is gone" in replies[i]["content"][0]["text"] for i in (1, 2))


def test_a_form_is_cut_down_to_what_the_revision_knows():
    form = {"type": "object", "required": ["many", "one"], "properties": {
        "name": {"type": "string", "default": "x"}, "sure": {"type": "boolean", "default": True},
        "one": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["a"]}}}}

    def fill(ctx: Context) -> str:
        return ctx.elicit("Fill", form)["action"]
    with Peer(tool_server(fill), version="2025-11-25", elicitation={}) as peer:
        question = peer.ask(call(1, "fill"))
        assert question["params"]["requestedSchema"] == form
        assert text_of(peer.ask(respond(question, {"action": "cancel"}))) == "cancel"
    with Peer(tool_server(fill), version="2025-06-18", elicitation={}) as peer:
        question = peer.ask(call(1, "fill"))
        assert question["params"] == {"message": "Fill", "requestedSchema": {
            "type": "object", "required": ["one"], "properties": {
                "name": {"type": "string"}, "sure": {"type": "boolean", "default": True},
                "one": {"type": "string", "enum": ["a"], "enumNames": ["A"]}}}}
        assert text_of(peer.ask(respond(question, {"action": "cancel"}))) == "cancel"


FORM_FIELDS = [  # (a field, what a client of 2025-11-25 is sent, or what is said of it)
    ({"type": "string", "format": "uuid"}, {"type": "string"}),
    ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
    ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, ...),
    ({"type": "object", "properties": {}}, "expected a string"),
    ({"type": "array", "items": {"type": "string"}}, "or a list of choices"),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "expected a string"),
    ({}, "expected a string")]


@pytest.mark.parametrize("field, sent", FORM_FIELDS, ids=str)
def test_a_form_has_plain_fields_only(field, sent):
    def fill(ctx: Context) -> str:
        return ctx.elicit("Fill", {"properties": {"f": field}})["action"]
    with Peer(tool_server(fill), elicitation={}) as peer:
        reply = peer.ask(call(1, "fill"))
        if isinstance(sent, str):
            assert "elicit: f: " in text_of(reply) and sent in text_of(reply)
        else:
            assert reply["params"]["requestedSchema"] == {
                "type": "object", "required": [],
                "properties": {"f": field if sent is ... else sent}}
            peer.ask(respond(reply, {"action": "cancel"}))


SAMPLES = [  # (revision, what to sample, the messages that the client is sent, or None)
    ("2025-11-25", [{"role": "user", "content": [text("a"), text("b")]}],
     [{"role": "user", "content": [text("a"), text("b")]}]),
    ("2025-06-18", [{"role": "user", "content": [text("a"), text("b")]}],
     [{"role": "user", "content": text("a")}, {"role": "user", "content": text("b")}]),
    ("2025-03-26", [text("a", _meta={"k": 1})], [{"role": "user", "content": text("a")}]),
    ("2025-03-26", audio(b"x"), [{"role": "user", "content": audio(b"x")}]),
    ("2024-11-05", audio(b"x"), None),
    ("2025-11-25", link("a://b", "b"), None), ("2025-11-25", embedded("a://b", "b"), None)]


@pytest.mark.parametrize("version, asked, sent", SAMPLES)
def test_what_is_sampled_fits_the_revision(version, asked, sent):
    def dream(ctx: Context) -> str:
        return ctx.sample(asked, include_context="allServers")["content"]["text"]
    with Peer(tool_server(dream), version=version, sampling={}) as peer:
        reply = peer.ask(call(1, "dream"))
        if sent is None:
            assert "sample: expected text, images or sounds" in text_of(reply)
            return
        params = reply["params"]
        assert params["messages"] == sent
        assert ("includeContext" in params) == (version < "2025-11-25")
        answer = {"role": "assistant", "model": "m", "content": text("yes")}
        assert text_of(peer.ask(respond(reply, answer))) == "yes"
        question = peer.ask(call(2, "dream"))
        assert "does not fit" in text_of(peer.ask(respond(question, {"content": None})))


def test_sampling_with_tools_needs_a_revision_that_has_them():
    def act(ctx: Context) -> str:
        return str(ctx.sample("x", tools=[])["model"])
    for version in ("2025-06-18", "2025-11-25"):
        with Peer(tool_server(act), version=version, sampling={"tools": {}}) as peer:
            reply = peer.ask(call(1, "act"))
            if version == "2025-06-18":
                assert "not declared" in text_of(reply)
            else:
                peer.ask(respond(reply, {"content": {}, "model": "m"}))


def test_a_question_that_cannot_be_sent_withdraws_the_others():
    def ask(ctx: Context) -> str:
        return str(ctx.ask({"a": {"method": "roots/list"}, "b": {
            "method": "roots/list", "params": {"no": object()}}}))
    with Peer(tool_server(ask), roots={}) as peer:
        question = peer.ask(call(1, "ask"))
        assert peer.recv() == cancel(question["id"])
        assert peer.recv()["result"]["isError"]


def test_after_the_end_of_input_nothing_new_is_started():
    started, go = threading.Event(), threading.Event()

    def late(ctx: Context) -> str:
        started.set()
        assert go.wait(BOUND)
        server.resource_updated("a://b")
        server.register(late, name="later")
        return str(ctx.list_roots())
    server = tool_server(late)
    server.resource("a://b")(lambda: "x")
    with Peer(server, roots={}) as peer:
        assert peer.result(request(1, "resources/subscribe", {"uri": "a://b"})) == {}
        peer.send(call(2, "late"))
        assert started.wait(BOUND)
        peer.close()
        connection = server._sessions[0].connection
        assert connection._ended.wait(BOUND)
        go.set()
        reply = peer.recv()
        assert reply["id"] == 2 and "the client is gone" in text_of(reply)


def test_a_handler_reads_resources_of_its_own_server():
    server = library()

    @server.register
    def peek(uri: str, ctx: Context) -> str:
        return ctx.read_resource(uri)[0]["text"]

    @server.register
    async def peek_async(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri))[0]["text"]
    with Peer(server) as peer:
        for tool in ("peek", "peek_async"):
            assert peer.text(call(1, tool, uri="notes://today")) == "hello"
            result = peer.result(call(2, tool, uri="no://x"))
            assert result["isError"] and "not found" in result["content"][0]["text"]


# -------------------------------------------------------------------- the modern era

MCP = "io.modelcontextprotocol/"


def modern(id, method, params=None, capabilities=None, **meta):
    """A request of revision 2026-07-28: it says itself who asks."""
    return request(id, method, {**(params or {}), "_meta": {
        MCP + "protocolVersion": "2026-07-28",
        MCP + "clientCapabilities": capabilities or {},
        **{MCP + key: value for key, value in meta.items()}}})


def modern_call(id, name, capabilities=None, rounds=None, /, **arguments):
    return modern(id, "tools/call", {"name": name, "arguments": arguments, **(rounds or {})},
                  capabilities)


def test_a_modern_conversation():
    """https://modelcontextprotocol.io/specification/2026-07-28/basic/lifecycle"""
    with Peer(tool_server(ok, instructions="Be kind."), shake=False) as peer:
        peer.play("""
            --> {"jsonrpc":"2.0","id":"p1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}
            <-- {"jsonrpc":"2.0","id":"p1","result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"instructions":"Be kind.","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}}
            --> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ok","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}
            <-- {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"ok"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}}
            """)


def marked(**keys):
    return {"_meta": {MCP + key: value for key, value in keys.items()}}


ROUTES = [  # (name, method, params, code before a handshake, code after it; None: a result)
    ("unmarked ping", "ping", {}, None, None),
    ("unmarked list", "tools/list", {}, -32600, None),
    ("unmarked discover", "server/discover", {}, -32602, -32601),
    ("unmarked listen", "subscriptions/listen", {}, -32602, -32601),
    ("unmarked unknown", "no/such", {}, -32601, -32601),
    ("progress token only", "ping", {"_meta": {"progressToken": 1}}, None, None),
    ("capabilities only", "server/discover", marked(clientCapabilities={}), -32602, -32602),
    ("info only", "tools/list", marked(clientInfo={}), -32602, -32602),
    ("version only", "server/discover", marked(protocolVersion="2026-07-28"), -32602, -32602),
    ("version no string", "server/discover",
     marked(protocolVersion=5, clientCapabilities={}), -32602, -32602),
    ("capabilities no object", "server/discover",
     marked(protocolVersion="2026-07-28", clientCapabilities=[]), -32602, -32602),
    ("capability no object", "server/discover",
     marked(protocolVersion="2026-07-28", clientCapabilities={"roots": True}), -32602, -32602),
    ("unknown version only", "server/discover", marked(protocolVersion="1999"), -32602, -32602),
    ("legacy date", "server/discover",
     marked(protocolVersion="2025-11-25", clientCapabilities={}), -32022, -32022),
    ("future", "tools/list", marked(protocolVersion="v999", clientCapabilities={}),
     -32022, -32022),
    ("bad info", "tools/list", marked(
        protocolVersion="2026-07-28", clientCapabilities={}, clientInfo="me"), -32602, -32602),
    ("bad level", "tools/list", marked(
        protocolVersion="2026-07-28", clientCapabilities={}, logLevel="loud"), -32602, -32602),
    ("_meta no object", "tools/list", {"_meta": 5}, -32602, -32602),
    *((f"removed {method}", method, marked(protocolVersion="2026-07-28",
                                           clientCapabilities={}), -32601, -32601)
      for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe",
                     "resources/unsubscribe", "no/such", "prompts/list", "resources/read",
                     "completion/complete")),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after a handshake"])
@pytest.mark.parametrize("method, params, before_code, after_code",
                         [row[1:] for row in ROUTES], ids=[row[0] for row in ROUTES])
def test_every_request_is_routed_on_its_own(method, params, before_code, after_code, after):
    with Peer(tool_server(ok), shake=after) as peer:
        reply = peer.ask(request("r", method, params))
        code = after_code if after else before_code
        assert reply["id"] == "r"
        assert reply.get("error", {}).get("code") == code
        if code == -32022:
            assert reply["error"]["data"] == {
                "supported": ["2026-07-28"],
                "requested": params["_meta"][MCP + "protocolVersion"]}
        assert peer.result(modern(2, "tools/list"))["tools"]  # it was never locked
        if not after:
            peer.handshake()
        assert peer.result(request(3, "tools/list")) == {
            "tools": [server_entry for server_entry in [tool_server(ok).tools["ok"].entry]]}


def test_a_handshake_with_a_marker_is_a_handshake():
    with Peer(Server("test"), shake=False) as peer:
        params = {**HELLO, **marked(protocolVersion="2026-07-28", clientCapabilities={})}
        assert peer.result(request(1, "initialize", params))["protocolVersion"] == "2025-11-25"


def test_nothing_leaks_between_the_eras():
    def speak(ctx: Context) -> dict:
        ctx.error("an error")
        return {"version": ctx.protocol_version, "can": ctx.client_capabilities,
                "meta": ctx.meta.get("traceparent")}
    with Peer(tool_server(speak), sampling={}) as peer:
        assert peer.result(request(1, "logging/setLevel", {"level": "debug"})) == {}
        message = modern_call(2, "speak", {"roots": {}})
        message["params"]["_meta"]["traceparent"] = "00-1"
        result = peer.result(message)  # no log message: this request did not ask for any
        assert json.loads(result["content"][0]["text"]) == {
            "version": "2026-07-28", "can": {"roots": {}}, "meta": "00-1"}
        peer.send(modern(3, "tools/call", {"name": "speak"}, logLevel="error"))
        assert peer.recv()["params"] == {"level": "error", "data": "an error"}
        assert peer.recv()["result"]["resultType"] == "complete"
        peer.send(call(4, "speak"))
        assert peer.recv()["method"] == "notifications/message"
        assert set(peer.recv()["result"]) == {"content"}


def test_caching_hints():
    server = Server("test", ttl_ms=5000, cache_scope="public")
    server.register(ok)
    server.resource("x://a", ttl_ms=7, cache_scope="public")(ok)
    server.resource("x://b")(ok)
    server.prompt(ok)
    with Peer(server, shake=False) as peer:
        for method in ("server/discover", "tools/list", "resources/list", "prompts/list",
                       "resources/templates/list"):
            result = peer.result(modern(1, method))
            assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")
        for uri, hints in (("x://a", (7, "public")), ("x://b", (0, "private"))):
            result = peer.result(modern(2, "resources/read", {"uri": uri}))
            assert (result["ttlMs"], result["cacheScope"]) == hints
        assert "ttlMs" not in peer.result(modern(3, "prompts/get", {"name": "ok"}))
        error = peer.error(modern(4, "resources/read", {"uri": "x://none"}))
        assert (error["code"], error["data"]) == (-32602, {"uri": "x://none"})

        @server.resource("x://gone")
        def gone() -> str:
            raise RpcError(-32002, "gone")
        assert peer.error(modern(5, "resources/read", {"uri": "x://gone"}))["code"] == -32602


def test_structured_content_may_be_any_value_in_the_modern_era():
    def many() -> list:
        return [1, 2]
    server = Server("test")
    server.register(many, output_schema={"type": "array", "items": {"type": "integer"}})
    server.register(lambda: "hi", name="word", output_schema={"type": "string"})
    with Peer(server) as peer:
        assert peer.result(modern_call(1, "many"))["structuredContent"] == [1, 2]
        assert peer.result(call(2, "many")) == {"content": [{"type": "text", "text": "[1, 2]"}]}
        assert peer.text(modern_call(1, "word")) == '"hi"'  # the same JSON
        assert "outputSchema" not in peer.result(request(3, "tools/list"))["tools"][0]
        assert "outputSchema" in peer.result(modern(4, "tools/list"))["tools"][0]


def quiz():
    """Handlers that ask: the same straight line for both eras."""
    server = Server("quiz", "1")
    runs = []

    def ask_twice(ctx, n):
        runs.append(n)
        name = ctx.elicit("Name?", COLOR, key="name")
        age = ctx.elicit("Age?", COLOR)
        return f"{n} {name['action']} {age['content']['color']}"

    @server.register
    def interview(n: int, ctx: Context) -> str:
        return ask_twice(ctx, n)

    @server.register
    async def interview_async(n: int, ctx: Context) -> str:
        name = await ctx.elicit("Name?", COLOR, key="name")
        age = await ctx.elicit("Age?", COLOR)
        return f"{n} {name['action']} {age['content']['color']}"

    @server.prompt
    def interview_prompt(n: int, ctx: Context) -> str:
        return ask_twice(ctx, n)

    @server.resource("quiz://{n}", ttl_ms=9)
    def interview_resource(n: int, ctx: Context) -> str:
        return ask_twice(ctx, n)
    server.runs = runs
    return server


ASKERS = [
    ("tools/call", {"name": "interview", "arguments": {"n": 5}},
     lambda result: result["content"][0]["text"]),
    ("tools/call", {"name": "interview_async", "arguments": {"n": 5}},
     lambda result: result["content"][0]["text"]),
    ("prompts/get", {"name": "interview_prompt", "arguments": {"n": "5"}},
     lambda result: result["messages"][0]["content"]["text"]),
    ("resources/read", {"uri": "quiz://5"}, lambda result: result["contents"][0]["text"]),
]
RED = {"action": "accept", "content": {"color": "red"}}


@pytest.mark.parametrize("method, params, text", ASKERS, ids=[
    "tool", "async tool", "prompt", "resource"])
def test_questions_by_replay(method, params, text):
    with Peer(quiz(), shake=False) as peer:
        def go(**rounds):
            return peer.result(modern("r", method, {**params, **rounds}, {"elicitation": {}}))
        first = go()
        assert first["resultType"] == "input_required" and "ttlMs" not in first
        assert first["inputRequests"] == {"name": {"method": "elicitation/create", "params": {
            "message": "Name?", "requestedSchema": COLOR}}}
        again = go(requestState=first["requestState"])  # no answer: asked again
        assert again["inputRequests"] == first["inputRequests"]
        second = go(requestState=first["requestState"], inputResponses={"name": RED})
        key, = second["inputRequests"]
        assert second["requestState"] != first["requestState"]
        last = go(requestState=second["requestState"], inputResponses={
            key: RED, "extra": {"ignored": True}, "name": {"action": "cancel"}})
        assert last["resultType"] == "complete" and text(last) == "5 accept red"
        assert last.get("ttlMs", 0) == 0
        whole = go(inputResponses={"name": RED, key: RED})  # all at once, without a state
        assert text(whole) == "5 accept red"


def test_the_same_tools_ask_in_the_legacy_way():
    with Peer(quiz(), elicitation={}) as peer:
        for tool in ("interview", "interview_async"):
            question = peer.ask(call(1, tool, n=5))
            question = peer.ask(respond(question, RED))
            assert text_of(peer.ask(respond(question, RED))) == "5 accept red"


def test_a_state_is_bound_signed_and_expires(monkeypatch):
    server = quiz()
    with Peer(server, shake=False) as peer:
        def go(name="interview", n=5, **rounds):
            return peer.ask(modern_call("r", name, {"elicitation": {}}, rounds, n=n))
        state = go()["result"]["requestState"]
        fixed = {"code": -32602, "message": "Invalid or expired requestState"}
        body, _, signature = state.partition(".")
        for bad in (state + "x", state[:-1], body, "", ".", "." + signature, body[:-4] + "." +
                    signature, state.upper(), 5, [], {}, True, "\ud800", "é." + signature):
            assert go(requestState=bad)["error"] == fixed
        assert go(n=6, requestState=state)["error"] == fixed  # other arguments
        assert go(name="interview_async", requestState=state)["error"] == fixed
        assert go(requestState=None)["result"]["resultType"] == "input_required"
        with Peer(quiz(), shake=False) as stranger:  # another process, another key
            assert stranger.error(modern_call("r", "interview", {"elicitation": {}}, {
                "requestState": state}, n=5)) == fixed
        assert "tools" in peer.result(modern(1, "tools/list", {"requestState": "x"}))
        monkeypatch.setattr(mcp_server, "STATE_LIFE", -1)
        expired = go()["result"]["requestState"]
        assert go(requestState=expired)["error"] == fixed
        for bad in (None, 5, [], {"name": 5}, {"name": None}):
            assert go(inputResponses=bad)["error"]["code"] == -32602
        for bad in ({"action": "shrug"}, {"action": "accept", "content": {"color": 5}}, {}):
            assert go(inputResponses={"name": bad})["error"]["code"] == -32602


def test_several_processes_share_a_key(monkeypatch):
    monkeypatch.setenv("MCP_STATE_KEY", "a shared secret")
    first, second = quiz(), quiz()
    message = modern_call("r", "interview", {"elicitation": {}}, n=5)
    state = first.handle(message)["result"]["requestState"]
    message["params"].update(requestState=state, inputResponses={"name": RED})
    assert second.handle(message)["result"]["resultType"] == "input_required"


@pytest.mark.parametrize("tool, capabilities, required", [
    ("favourite", {}, {"elicitation": {}}), ("poem", {"elicitation": {}}, {"sampling": {}}),
    ("sign_in", {"elicitation": {}}, {"elicitation": {"url": {}}}),
    ("favourite", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    ("both", {}, {"roots": {}, "elicitation": {}}), ("roots", {}, {"roots": {}})])
def test_a_missing_capability_is_named(tool, capabilities, required):
    with Peer(asker(), shake=False) as peer:
        error = peer.error(modern_call(1, tool, capabilities))
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": required})


def listen(id, **wants):
    return modern(id, "subscriptions/listen", {"notifications": wants})


def test_subscriptions():
    server = library()
    server.register(ok)
    with Peer(server, shake=False) as peer:
        tools = peer.ask(listen("tools", toolsListChanged=True, promptsListChanged=True))
        assert tools == notification("notifications/subscriptions/acknowledged", {
            "notifications": {"toolsListChanged": True},  # there are no prompts
            "_meta": {MCP + "subscriptionId": "tools"}})
        peer.ask(listen(7, resourceSubscriptions=["notes://today"], toolsListChanged=False))
        server.register(ok, name="more")
        tag = {"_meta": {MCP + "subscriptionId": "tools"}}
        assert peer.recv() == notification("notifications/tools/list_changed", tag)
        server.resource_updated("data://all")
        server.resource_updated("notes://today")
        assert peer.recv() == notification("notifications/resources/updated", {
            "uri": "notes://today", "_meta": {MCP + "subscriptionId": 7}})
        assert peer.result(modern(1, "tools/list"))["tools"]
        peer.send(cancel("tools"))
        peer.fence()
        server.unregister("more")
        peer.fence()
        for bad in ({}, {"notifications": 5},
                    {"notifications": {"resourceSubscriptions": "x"}},
                    {"notifications": {"resourceSubscriptions": [5]}}):
            assert peer.error(modern(2, "subscriptions/listen", bad))["code"] == -32602
        peer.close()  # the one that is left is ended gracefully
        result = peer.recv()
        assert result["id"] == 7 and result["result"]["resultType"] == "complete"
        assert result["result"]["_meta"][MCP + "subscriptionId"] == 7
        assert peer.recv() == cancel(7)


def test_a_uri_that_reads_like_a_list_is_only_a_uri():
    server = library()
    server.register(ok)
    with Peer(server) as peer:
        for uri in ("tools", "notifications/tools/list_changed"):
            assert peer.result(request(1, "resources/unsubscribe", {"uri": uri})) == {}
        peer.ask(listen(2, resourceSubscriptions=["tools"]))
        peer.ask(listen(3, toolsListChanged=True))
        server.resource_updated("tools")
        assert peer.recv()["params"] == {"uri": "tools", "_meta": {MCP + "subscriptionId": 2}}
        server.register(ok, name="more")
        assert peer.recv() == notification("notifications/tools/list_changed")
        assert peer.recv()["params"] == {"_meta": {MCP + "subscriptionId": 3}}
        peer.close()
        assert {peer.recv()["method" if i % 2 else "id"] for i in range(4)} == {
            2, 3, "notifications/cancelled"}


@pytest.mark.parametrize("method, params", [
    ("resources/read", {"uri": "a://b"}), ("resources/subscribe", {"uri": "a://b"}),
    ("resources/unsubscribe", {"uri": "a://b"}), ("prompts/get", {"name": "x"}),
    ("completion/complete", {})])
def test_what_belongs_to_an_undeclared_capability_is_unknown(method, params):
    """https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle"""
    with Peer(tool_server(ok)) as peer:
        assert peer.error(request(1, method, params))["code"] == -32601
        peer.result(request(2, "prompts/list"))
    with Peer(Server("test")) as peer:
        assert peer.error(call(1, "ok"))["code"] == -32601


def test_a_list_that_was_emptied_is_still_one():
    server = tool_server(ok)
    server.unregister("ok")
    with Peer(server) as peer:
        assert peer.result(modern(1, "tools/list"))["tools"] == []
        assert peer.error(call(2, "ok"))["code"] == -32602


def test_extensions_are_declared_and_seen():
    def seen(ctx: Context) -> dict:
        return ctx.client_capabilities.get("extensions", {})
    server = tool_server(seen, extensions={"com.example/x": {"a": 1}})
    with Peer(server) as peer:
        assert "extensions" not in peer.welcome["capabilities"]
        found = peer.result(modern(1, "server/discover"))["capabilities"]["extensions"]
        assert found == {"com.example/x": {"a": 1}}
        result = peer.result(modern_call(2, "seen", {"extensions": {"com.example/y": {}}}))
        assert json.loads(result["content"][0]["text"]) == {"com.example/y": {}}


# ----------------------------------------------------- a server without a connection


def test_handle_takes_one_message_and_returns_its_response():
    server = tool_server(ok)
    assert server.handle(request(1, "ping")) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert server.handle(request(2, "tools/list"))["error"]["code"] == -32600
    assert server.handle(request(3, "initialize", HELLO))["result"]["serverInfo"]
    assert server.handle(notification("notifications/initialized")) is None
    assert text_of(server.handle(call(4, "ok"))) == "ok"
    assert server.handle(5)["error"]["code"] == -32600
    assert server.handle([])["error"]["code"] == -32600
    assert server.handle([notification("x")]) is None
    assert [r["id"] for r in server.handle([request(6, "ping"), call(7, "ok")])] == [6, 7]
    assert server.handle({"jsonrpc": "2.0", "id": 1, "result": {}}) is None


def test_call_tries_a_tool_through_the_whole_path():
    def greet(name: str, ctx: Context) -> str:
        return f"Hello {name}, {ctx.client_info['name']} calls"
    server = tool_server(greet)
    assert server.call("greet", name="Ann") == {
        "content": [{"type": "text", "text": "Hello Ann, mcp_server.py calls"}]}
    assert server.call("greet", name=5)["isError"]
    with pytest.raises(RpcError, match="Unknown tool: nope"):
        server.call("nope")


def test_call_knows_time_limits_and_leaves_no_thread_behind():
    def slow(ctx: Context, until: dt.date) -> str:
        ctx.sleep(BOUND)
    server, before = tool_server(slow, timeout=0.01), set(threading.enumerate())
    result = server.call("slow", until=dt.date(2026, 1, 2))
    assert "timed out" in result["content"][0]["text"]
    wait_until(lambda: set(threading.enumerate()) <= before)


# -------------------------------------------------------------- 20. the command line

FILES = {
    "functions.py": """
        import os
        from helper import two
        print("noise at import", flush=True)
        def add(a: int, b: int = 2) -> int:
            "Add two numbers."
            return a + b
        def picture() -> object:
            "Draws."
            return b"\\x89PNG"
        def fail() -> str:
            "Fails."
            raise ValueError("no luck")
        def noisy() -> str:
            "Prints."
            print("loud")
            return "quiet"
        def nothing() -> str:
            "Says nothing."
            return ""
        def reads() -> str:
            "Reads stdin."
            return input()
        def _hidden(): pass
        """,
    "helper.py": "two = 2",
    "decorated.py": """
        from mcp_server import register
        from . import helper
        @register
        def double(x: float) -> float:
            "Double it."
            return helper.two * x
        """,
    "own.py": """
        from mcp_server import Server
        first, second = Server("first"), Server("second")
        @second.register
        def only() -> str:
            "Only here."
            return "second"
        second.run()  # does nothing: it is being loaded
        """,
    "several.py": """
        from mcp_server import Server, register
        first, second = Server("first"), Server("second")
        def one() -> str:
            "One."
        for server in (first, second):
            server.register(one)
        """,
    "mixed.py": """
        from mcp_server import Server, register, run
        server = Server("mine")
        @register
        def one() -> str:
            "One."
            return "one"
        @server.register
        def two() -> str:
            "Two."
            return "two"
        run()
        """,
    "forgetful.py": """
        from mcp_server import register
        @register
        def one() -> str:
            "One."
            return "one"
        """,
    "paged.py": """
        from mcp_server import Context, Server
        server = Server("paged", page_size=1)
        for name in "abc":
            server.register(lambda: 1, name=name)
        @server.register(meta={})
        def ask(ctx: Context) -> str:
            "Asks."
            ctx.info("hello there")
            answer = ctx.elicit("How many?", {"type": "object", "properties": {
                "count": {"type": "integer"}, "note": {"type": "string"}}})
            return f"{answer} in {ctx.protocol_version}"
        """,
    "offers.py": """
        from mcp_server import Context, prompt, register, resource
        @register
        def sure(ctx: Context) -> str:
            "Asks."
            return str(ctx.elicit("Sure?", {"required": ["ok"], "properties": {
                "ok": {"type": "boolean"}}}))
        @register
        def vague(ctx: Context) -> str:
            "Asks nothing."
            return str(ctx.elicit("Sure?", {"sure": bool}))
        @register
        async def forgets(ctx: Context) -> str:
            "Does not await."
            return ctx.run(["no such command"]).stdout
        @register
        async def gives(ctx: Context):
            "Returns what it should await."
            return ctx.elicit("Sure?", {})
        @register
        def blank() -> object:
            "No picture."
            from mcp_server import image
            return image("chart.png")
        @prompt
        def greet(name: str, loud: bool = False) -> str:
            "Greets."
            return f"Hello {name}, {loud}"
        @resource("n://{x}")
        def number(x: int) -> dict:
            "A number."
            return {"x": x}
        @resource("b://raw")
        def raw() -> bytes:
            "Bytes."
            return b"\\0\\1"
        """,
    "around.py": """
        from mcp_server import Server
        server = Server("around")
        import back
        if __name__ == "__main__":
            server.run()
        """,
    "back.py": """
        from around import server
        @server.register
        def lost() -> str:
            "Lost."
            return "lost"
        """,
    "circle.py": """
        from mcp_server import register
        import circle_back
        @register
        def once() -> str:
            "Once."
            return "once"
        """,
    "circle_back.py": "import circle",
    "hasty.py": """
        from mcp_server import register, run
        run()
        @register
        def late() -> str:
            "Late."
            return "late"
        """,
    "missing.py": "\nimport no_such_module",
    "leans_on_broken.py": "\n\nimport broken",
    "leans_on_failing.py": "import failing",
    "failing.py": "\n1 / 0",
    "untyped.py": "\ndef f(x): pass",
    "broken.py": "def f(:",
    "exits.py": "raise SystemExit(3)",
    "empty.py": "",
}


def command_line(folder, *words, typed="", program=os.path.join(HERE, "mcp_server.py")):
    for name, code in FILES.items():
        (folder / name).write_text(textwrap.dedent(code))
    return subprocess.run([sys.executable, program, *words], cwd=folder, input=typed,
                          env={**os.environ, "PYTHONPATH": HERE}, text=True,
                          capture_output=True, timeout=BOUND)


COMMANDS = [  # (words, exit code, what stands on stdout, or on stderr if it failed)
    ("functions.py --list", 0, "tool      add(a, [b])  Add two numbers."),
    ("decorated.py --list", 0, "tool      double(x)  Double it."),
    ("own.py:second --list", 0, "tool      only()  Only here."),
    ("own.py --list", 0, "tool      only()  Only here."),
    ("several.py --list", 1, "pick one: several.py:first, several.py:second"),
    ("mixed.py --list", 1, "pick one: mixed.py:server; @register alone fills none of these"),
    ("mixed.py:server --call two", 0, "two"),
    ("paged.py --list", 0, "tool      c()    c\ntool      ask()  Asks."),
    ("paged.py --list --protocol 2024-11-05", 0, "tool      c()    c\ntool      ask()  Asks."),
    ("paged.py --list --protocol 2026-07-28", 0, "tool      c()    c\ntool      ask()  Asks."),
    ("paged.py --call ask", 0, "{'action': 'cancel'} in 2025-11-25\ninfo: hello there"),
    ("offers.py --call greet name=Bo loud=true", 0, "user: Hello Bo, True\n"),
    ("offers.py --call greet loud=true", 1, "arguments.name: expected string (required)"),
    ("offers.py --call n://5", 0, '{"x": 5}\n'), ("offers.py --call n://x", 1, "Resource not found"),
    ("offers.py --call b://raw", 0, "wrote b_raw-1.bin"),
    ("offers.py --call sure", 0, "{'action': 'cancel'}"),
    ("offers.py --call vague", 1, 'elicit: expected a schema with "properties"'),
    ("offers.py --call forgets", 1, "'coroutine' object has no attribute 'stdout'"),
    ("offers.py --call gives", 1, "a value of type coroutine cannot be sent as JSON: await it"),
    ("offers.py --call blank", 1, "expected bytes or base64, got 'chart.png'; for a file, pass"),
    ("offers.py --schema greet", 1, "no tool is called 'greet'"),
    ("around.py --list", 0, "around.py was loaded twice, as served.around and as around"),
    ("circle.py --list", 1, "circle.py was loaded twice, as served.circle and as circle"),
    ("offers.py --trace offers.py", 2, "--trace FILE: the file to write to, not a .py"),
    ("own.py:third --list", 1, "third is no Server; there are: first, second"),
    ("functions.py --call add a=5", 0, "7"),
    ("functions.py --call add a=5 b=x", 1, 'arguments.b: expected integer, got string "x"'),
    ("functions.py --call add a=5 b=1.5", 1, "arguments.b: expected integer, got number 1.5"),
    ("functions.py --call noisy", 0, "quiet\n"),
    ("functions.py --call nothing", 0, "\n"),
    ("functions.py --call reads", 1, "stdin belongs to the client"),
    ("functions.py --call picture", 0, "wrote picture-1.png"),
    ("functions.py --call fail", 1, "ValueError: no luck"),
    ("functions.py --call nope", 1, "there are: add, picture, fail, noisy"),
    ("functions.py --schema add", 0, '"additionalProperties": false'),
    ("functions.py --schema nope", 1, "there are: add, picture, fail, noisy"),
    ("functions.py --call add 5", 1, "cannot read '5'; write name=value"),
    ("functions.py --call add {a:5}", 1, "or one JSON object"),
    ("functions.py --call add --s 1", 2, "unrecognized arguments: --s"),
    ("functions.py --list --schema add", 2, "not allowed with argument --list"),
    ("functions.py --timeout -1", 2, "invalid seconds value: '-1'"),
    ("functon.py --config codex", 1, "functon.py: there is no such file in /"),
    ("leans_on_broken.py", 1, "broken.py, line 1: SyntaxError"),
    ("leans_on_failing.py", 1, "failing.py, line 2: ZeroDivisionError"),
    ("untyped.py --list", 1, "call it _f"),
    ("missing.py", 1, "missing.py, line 2: ModuleNotFoundError"),
    ("untyped.py", 1, "untyped.py, line 2: tool 'f': parameter 'x': it has no type hint"),
    ("broken.py", 1, "broken.py, line 1: SyntaxError"),
    ("exits.py", 1, "exits.py, line 1: SystemExit: 3"),
    ("empty.py", 1, "decorate a function with @register"),
    ("nowhere.py", 1, "there is no such file"),
    ("--version", 0, mcp_server.__version__),
    ("--call convert length=1 unit=km", 0, "1000.0"),
    ("--call convert length=1 unit=px", 1, "expected one of m, km, ft, mile, got 'px'"),
    ("--call convert length=1 unit=m paged.py", 2, "FILE.py comes first"),
    ("--reload", 2, "--reload needs a FILE.py"),
    ("--trace no/such/folder", 1, "No such file or directory"),
]


@pytest.mark.parametrize("words, code, says", COMMANDS, ids=[row[0] for row in COMMANDS])
def test_the_command_line(words, code, says, tmp_path):
    done = command_line(tmp_path, *words.split())
    assert done.returncode == code
    assert says in done.stdout + done.stderr and "Traceback (most" not in done.stdout
    if code and "--" not in words:
        assert done.stdout == ""  # never a protocol line


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_question_is_put_to_the_person(version, tmp_path):
    done = command_line(tmp_path, "paged.py", "--call", "ask", "--protocol", version,
                        typed="5\n\n")
    assert done.stdout == f"{{'action': 'accept', 'content': {{'count': 5}}}} in {version}\n"
    assert "How many?\n  count (integer):   note (string): " in done.stderr
    done = command_line(tmp_path, "paged.py", "--call", "ask", "--protocol", version,
                        typed="five\n5\nx\n")  # asked again until it fits
    assert done.returncode == 0 and "{'count': 5, 'note': 'x'}" in done.stdout
    assert done.stderr.count("count (integer): ") == 2
    assert 'count: expected integer, got string "five"' in done.stderr


def test_pictures_are_not_written_over(tmp_path):
    for number in (1, 2):
        done = command_line(tmp_path, "--call", "chart", "values=[1, 2.5, 0]")
        assert done.stdout == f"wrote chart-{number}.png\n"
    assert (tmp_path / "chart-1.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_yes_is_true(tmp_path):
    done = command_line(tmp_path, "offers.py", "--call", "sure", typed="maybe\n\ny\n")
    assert done.stdout == "{'action': 'accept', 'content': {'ok': True}}\n"
    assert done.stderr.count("ok (yes/no): ") == 3


@pytest.mark.parametrize("program, says", [
    ("around.py", "nothing is registered: .*around.py was loaded twice, as __main__ and as around"),
    ("hasty.py", r"late: registered when run\(\) was over; put run\(\) at the end")])
def test_a_server_that_stays_empty_is_told(program, says, tmp_path):
    done = command_line(tmp_path, program=program)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(says, done.stderr)


@pytest.mark.parametrize("program, missing", [("forgetful.py", "one"), ("mixed.py", "two")])
def test_what_is_registered_but_never_served_is_told(program, missing, tmp_path):
    done = command_line(tmp_path, program=program)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"mcp_server: {missing}: registered, but not served" in done.stderr


def start(*words, **options):
    """`python mcp_server.py ...` as a process to speak with."""
    return Process(None, args=[os.path.join(HERE, "mcp_server.py"), *words], **options)


def changing(folder, code):
    """Write a file anew, at once, with a time stamp that no other version had."""
    (folder / "new").write_text(textwrap.dedent(code))
    os.utime(folder / "new", ns=(time.time_ns(),) * 2)
    os.replace(folder / "new", folder / "served.py")


CHANGING = """
    import threading, time
    from mcp_server import Context, register, resource
    from neighbour import answer
    @register
    def wait(ctx: Context) -> str:
        ctx.info("waiting")
        ctx.elicit("Go on?", {"type": "object", "properties": {}})
        return "%s"
    @register
    def %s() -> str:
        return answer
    """


def test_a_changed_file_is_served_anew(tmp_path):
    neighbour = tmp_path / "neighbour.py"
    neighbour.write_text("answer = 'first'")
    changing(tmp_path, CHANGING % ("old", "before"))
    with start(str(tmp_path / "served.py"), "--reload", shake=False) as peer:
        peer.handshake(elicitation={})
        assert tool_names(peer) == ["wait", "before"]
        peer.send(call(1, "wait"))
        assert peer.recv()["params"]["data"] == "waiting"
        question = peer.recv()
        peer.send(listen("L", toolsListChanged=True))
        assert peer.recv()["method"] == "notifications/subscriptions/acknowledged"

        changing(tmp_path, CHANGING % ("new", "after"))
        news = [peer.recv(), peer.recv()]  # one for each era
        assert [note["method"] for note in news] == ["notifications/tools/list_changed"] * 2
        assert [note.get("params") for note in news] == [
            None, {"_meta": {"io.modelcontextprotocol/subscriptionId": "L"}}]
        assert tool_names(peer) == ["wait", "after"]
        assert peer.error(call(2, "before"))["code"] == -32602
        peer.send(respond(question, {"action": "accept", "content": {}}))
        assert peer.recv()["result"]["content"][0]["text"] == "old"  # begun before

        changing(tmp_path, "def broken(:")
        assert "the old tools stay" in peer.process.stderr.readline().decode()
        assert tool_names(peer) == ["wait", "after"]

        neighbour.write_text("answer = 'second'; import other")
        os.utime(neighbour, ns=(time.time_ns(),) * 2)
        assert "the old tools stay" in peer.process.stderr.readline().decode()
        (tmp_path / "other.py").write_text("is not Python")
        changing(tmp_path, CHANGING % ("new", "last"))
        assert "other.py, line 1: SyntaxError" in peer.process.stderr.readline().decode()
        (tmp_path / "other.py").write_text("# mended")
        os.utime(tmp_path / "other.py", ns=(time.time_ns(),) * 2)
        assert [peer.recv()["method"] for _ in "12"] == [
            "notifications/tools/list_changed"] * 2
        assert peer.text(call(3, "last")) == "second"
        peer.close()
        assert peer.process.wait(BOUND) == 0


def test_a_trace_shows_every_message(tmp_path):
    file = tmp_path / "trace.txt"
    with start("--trace", str(file)) as peer:
        peer.send(b"oops\n")
        peer.recv()
        peer.text(call(2, "convert", length=1, unit="m"))
        peer.error(call(3, "nope", password="hunter2", long="x" * 5000, many=[1] * 50))
        assert peer.end() == (0, [], "")
    lines = [line.split(None, 2) for line in file.read_text().splitlines()]
    assert [direction for _, direction, _ in lines] == [
        "in", "out", "in", "in", "out", "in", "out", "in", "out"]
    assert all(dt.datetime.fromisoformat(moment) for moment, _, _ in lines)
    messages = [json.loads(message) for _, _, message in lines]
    assert messages[3] == "oops" and messages[4]["error"]["code"] == -32700
    assert messages[7]["params"]["arguments"] == {
        "password": "***", "long": "x" * 200 + "... (5,000 characters)",
        "many": [1] * 20 + ["... (50 items)"]}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_trace_that_cannot_be_written_ends_nothing():
    with start("--trace", "/dev/full") as peer:
        assert peer.text(call(1, "convert", length=1, unit="m"))
        code, rest, errors = peer.end()
        assert (code, rest) == (0, []) and errors.count("No space left on device") == 1


def test_what_a_caller_does_to_his_answer_is_his_affair():
    server = Server("test")
    server.register(lambda: 1, name="one")
    server.handle(request(1, "initialize", HELLO))
    assert server.handle(notification("notifications/initialized")) is None
    for method in ("tools/list", "ping"):
        reply = server.handle(request(1, method))
        before = json.dumps(reply)
        for part in reply["result"].values():
            part.clear()
        reply["result"]["mine"] = 1
        assert json.dumps(server.handle(request(1, method))) == before


def test_a_serial_tool_that_waits_for_its_own_thread_is_told():
    server = Server("test")

    @server.register(serial=True)
    def outer() -> object:
        return server.call("outer")
    assert "call the function of 'outer' itself" in text_of({"result": server.call("outer")})


@posix
def test_a_child_of_a_tool_does_not_hold_up_who_calls_it(tmp_path):
    (tmp_path / "forks.py").write_text(textwrap.dedent("""
        import os, time
        def fork() -> str:
            child = os.fork()
            if not child:
                time.sleep(60)
                os._exit(0)
            return str(child)
        """))
    out = tmp_path / "out"  # a pipe would be the child's, too
    with open(out, "wb") as file:
        code = subprocess.call([sys.executable, "-W", "ignore",
                                os.path.join(HERE, "mcp_server.py"), str(tmp_path / "forks.py"),
                                "--call", "fork"], stdout=file, stderr=file, timeout=BOUND)
    os.kill(int(out.read_text()), signal.SIGKILL)
    assert code == 0


@posix
def test_what_is_printed_is_not_lost_on_a_stderr_that_does_not_wait():
    def read_slowly():
        while select.select([errors], [], [], BOUND)[0]:
            data = os.read(errors, 4096)
            if not data:
                break
            printed.append(data)
            time.sleep(0.0001)
    printed, (errors, stderr) = [], os.pipe()
    os.set_blocking(stderr, False)
    reader = threading.Thread(target=read_slowly)
    reader.start()
    with Process("""
            from mcp_server import register, run
            @register
            def chat() -> None:
                for number in range(20_000):
                    print(f"{number:050}")
            run()
            """, stderr=stderr) as peer:
        os.close(stderr)
        peer.result(call(1, "chat"))
        peer.close()
        assert peer.process.wait(BOUND) == 0
    reader.join(BOUND)
    os.close(errors)
    assert list(map(int, b"".join(printed).split())) == list(range(20_000))


def test_the_demo_shows_each_feature():
    with start(shake=False) as peer:
        peer.handshake(elicitation={})
        assert peer.text(call(1, "convert", length=2, unit="mile", to="km")) == "3.218688"
        assert "expected number" in peer.text(call(2, "convert", length="2", unit="m"))
        picture = peer.result(call(3, "chart", values=[3, 1, 2]))["content"][0]
        assert picture["mimeType"] == "image/png"
        assert "expected 1 to 100" in peer.text(call(4, "chart", values=[]))
        peer.send(call(5, "choose", question="Tea?", options=["yes", "no"]))
        question = peer.recv()
        assert question["params"]["requestedSchema"]["properties"]["choice"]["enum"] == [
            "yes", "no"]
        peer.send(respond(question, {"action": "accept", "content": {"choice": "no"}}))
        assert peer.recv()["result"]["content"][0]["text"] == "The user chose no."
        page = peer.result(read("calendar://2026/11"))["contents"][0]["text"]
        assert "November 2026" in page
        assert peer.error(read("calendar://2026/13"))["code"] == -32002
        peer.send(with_token(call(6, "timer", seconds=1000), "t"))
        assert peer.recv()["params"]["progressToken"] == "t"
        peer.send(cancel(6), request(7, "completion/complete", {
            "ref": {"type": "ref/prompt", "name": "translate"},
            "argument": {"name": "language", "value": "g"}}))
        while True:  # more progress may be on its way
            reply = peer.recv()
            if reply.get("id") == 7:
                break
        assert reply["result"]["completion"]["values"] == ["German"]
        message, = peer.result(request(8, "prompts/get", {
            "name": "translate", "arguments": {"text": "Tag", "language": "English"}}))["messages"]
        assert message["content"]["text"].endswith("Tag")


@posix
def test_progress_is_a_bar_on_a_terminal_and_ctrl_c_ends_it():
    import pty
    ours, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, os.path.join(HERE, "mcp_server.py"), "--call", "timer", "seconds=1000"],
        stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True)
    os.close(terminal)
    assert select.select([ours], [], [], BOUND)[0]
    assert re.match(rb"\r\[ {30}\]   0%", os.read(ours, 1000))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=BOUND)[0] == b""
    assert process.returncode == 130
    os.close(ours)


@posix
def test_on_a_terminal_it_explains_itself_and_ctrl_d_ends_it(tmp_path):
    import pty
    ours, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, os.path.join(HERE, "mcp_server.py")],
                               stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(terminal)
    os.write(ours, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert parse(process.stdout.readline().rstrip(b"\n"))["result"] == {}
    os.write(ours, b"\x04")
    out, errors = process.communicate(timeout=BOUND)
    assert (process.returncode, out) == (0, b"")
    assert b"Try this one" in errors and b"Traceback" not in errors
    assert b"It offers 4 tools (convert, timer, chart, choose), 1 resource (" in errors
    os.close(ours)


def test_a_file_is_served(tmp_path):
    command_line(tmp_path, "--version")
    for name, tool in (("functions.py", "add"), ("decorated.py", "double")):
        with Process(None, args=[os.path.join(HERE, "mcp_server.py"), str(tmp_path / name)],
                     cwd=str(tmp_path)) as peer:
            assert tool_names(peer)[0] == tool
            code, rest, errors = peer.end()
            assert (code, rest) == (0, [])
            assert ("noise" in errors) == (name == "functions.py")


def test_the_config_has_what_else_was_asked_for(tmp_path):
    words = "functions.py --config vscode --reload --timeout 5 --trace t.log --log-level debug"
    entry = json.loads(command_line(tmp_path, *words.split()).stdout)["servers"]["functions"]
    assert entry["args"][2:] == ["--reload", "--trace", str(tmp_path / "t.log"), "--log-level",
                                 "debug", "--timeout", "5.0"]
    assert not (tmp_path / "t.log").exists()


@pytest.mark.parametrize("client", ["claude", "claude-code", "cursor", "vscode", "codex"])
def test_the_config_starts_the_server_from_anywhere(client, tmp_path):
    import shlex
    text = command_line(tmp_path, "functions.py", "--config", client).stdout
    if client == "claude-code":
        name, _, *command = shlex.split(text, posix=os.name == "posix")[3:]
    elif client == "codex":
        name = re.match(r"\[mcp_servers\.(\w+)\]\n", text).group(1)
        fields = dict(line.split(" = ", 1) for line in text.splitlines()[1:])
        command = [json.loads(fields["command"]), *json.loads(fields["args"])]
    else:
        servers = json.loads(text)["servers" if client == "vscode" else "mcpServers"]
        (name, entry), = servers.items()
        command = [entry["command"], *entry["args"]]
    assert name == "functions"
    needed = {key: os.environ[key] for key in ("SYSTEMROOT",) if key in os.environ}  # Windows
    done = subprocess.run(command, cwd="/", env={"PATH": "", **needed}, capture_output=True,
                          input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', timeout=BOUND)
    assert done.stdout == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


# ------------------------------------------------- what a hostile reading has found


def test_no_depth_of_an_id_silences_the_server():
    with Peer(Server("test")) as peer:
        for depth in range(880, 1000, 3):
            peer.send(b'{"jsonrpc":"2.0","method":"ping","id":%s%s}\n' % (
                b"[" * depth, b"]" * depth))
            assert peer.recv()["error"]["code"] in (-32600, -32700)
        peer.fence()


@posix
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_standard_stream_that_is_closed_from_the_start(closed):
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" mcp_server.py {closed}'], cwd=HERE,
        input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', capture_output=True, timeout=BOUND)
    assert (done.returncode, done.stderr) == (0, b"")
    answered = b'{"jsonrpc":"2.0","id":1,"result":{}}\n' if closed == "2>&-" else b""
    assert done.stdout == answered


def test_the_end_comes_though_nobody_reads_an_open_batch():
    body = script("""
        @register
        def quick() -> int:
            "Quick."
            return 1
        @register
        def big() -> str:
            "Big."
            return "x" * 1_000_000
        @register
        def slow(ctx: Context) -> str:
            "Slow."
            ctx._session.connection.notify("started")
            ctx.sleep(1000)
        run()
        """)
    with Process(body) as peer:
        peer.send([call(1, "quick"), call(2, "slow")])
        assert peer.recv()["method"] == "started"
        peer.send(call(3, "big"))
        peer.close()  # and reads nothing more
        assert peer.process.wait(BOUND) == 0


def test_an_odd_stderr_loses_no_answer():
    body = script("""
        class Odd:
            def write(self, text):
                raise AttributeError("no such thing")
        @register
        def boom() -> str:
            "Fails."
            sys.stderr = Odd()
            raise KeyError(1)
        run()
        """)
    with Process(body, env={"LOG_LEVEL": "debug"}) as peer:
        assert "KeyError" in peer.text(call(1, "boom"))
        peer.fence()


@pytest.mark.parametrize("how", ["raises SystemExit", "stops the loop"])
def test_a_task_cannot_end_the_event_loop(how, capfd):
    import asyncio

    async def bad() -> str:
        async def leave():
            raise SystemExit(3)
        if how == "raises SystemExit":
            asyncio.ensure_future(leave())
        else:
            asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "went on"

    async def good() -> str:
        return "good"
    with Peer(tool_server(bad, good)) as peer:
        assert peer.text(call(1, "bad")) == "went on"
        assert peer.text(call(2, "good")) == "good"


CHILD = """
    @register
    def spawn(ctx: Context) -> str:
        "Runs a child that leaves its process group."
        ctx.run(["sh", "-c", "echo $$ > {0}/a; setsid sh -c 'echo $$ > {0}/b; sleep 1000' & wait"])
    run()
    """


@posix
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("how", ["cancelled", "terminated", "terminated while it drains"])
def test_children_that_left_the_group_die_too(how, tmp_path):
    with Process(script(CHILD.format(tmp_path))) as peer:
        peer.send(call(1, "spawn"))
        files = tmp_path / "a", tmp_path / "b"
        wait_until(lambda: all(file.exists() and file.read_text() for file in files))
        if how == "cancelled":
            peer.send(cancel(1))
            peer.fence()
        if how == "terminated while it drains":
            peer.close()
        if how != "cancelled":
            peer.process.terminate()
            assert peer.process.wait(BOUND) in (0, 143)
        for file in files:
            pid = int(file.read_text())
            wait_until(lambda: not is_running(pid))


@posix
def test_a_forked_child_does_not_answer():
    body = script("""
        @register
        def fork() -> str:
            "Forks; the child comes back from here as well."
            return "child" if os.fork() == 0 else "parent"
        run()
        """)
    with Process(body) as peer:
        for i in range(5):
            assert peer.text(call(i, "fork")) == "parent"
        peer.fence()
        assert peer.end()[:2] == (0, [])


@posix
def test_a_child_of_multiprocessing_does_not_hold_up_the_end(tmp_path):
    (tmp_path / "server.py").write_text(script("""
        import multiprocessing
        @register
        def start() -> str:
            "Starts a process that stays."
            multiprocessing.get_context("fork").Process(
                target=time.sleep, args=(1000,), daemon=False).start()
            return "started"
        run()
        """))
    with Process(None, args=[str(tmp_path / "server.py")], start_new_session=True) as peer:
        assert peer.text(call(1, "start")) == "started"
        peer.close()
        try:
            assert peer.process.wait(BOUND) == 0
        finally:
            os.killpg(peer.process.pid, signal.SIGKILL)  # what it has left behind


@posix
def test_signals_are_the_programs_own_again_after_run():
    with Process(script("run(); print('over', file=sys.stderr, flush=True); time.sleep(1000)")
                 ) as peer:
        peer.close()
        assert peer.process.stderr.readline() == b"over\n"
        peer.process.terminate()
        assert peer.process.wait(BOUND) == -signal.SIGTERM


def test_a_time_out_of_any_size_is_kept():
    server = Server("test")
    server.register(ok, timeout=sys.maxsize)

    def slow(ctx: Context) -> str:
        ctx.sleep(BOUND)
        return ""
    server.register(slow, timeout=0.01)
    with Peer(server) as peer:
        assert peer.text(call(1, "ok")) == "ok"
        assert "timed out" in peer.text(call(2, "slow"))


@interruptible
def test_user_code_that_runs_while_a_result_is_made_can_be_stopped():
    started, ended = threading.Event(), threading.Event()

    def forever() -> object:
        def numbers():
            started.set()
            try:
                while True:
                    yield 1
            finally:
                ended.set()
        return (max([number]) for number in numbers() if number > 1)
    is_stopped(forever, started, ended)


def test_secrets_stay_out_of_complaints_in_the_log(capfd, monkeypatch):
    monkeypatch.setenv("LOG_LEVEL", "debug")

    def login(password: int, private_key: str = "", n: int = 0) -> str:
        return "in"
    with Peer(tool_server(login)) as peer:
        assert "hunter2" in peer.text(call(1, "login", password="hunter2", private_key="k-1",
                                           n="five"))
    monkeypatch.delenv("LOG_LEVEL")
    mcp_server.set_log_level()
    errors = capfd.readouterr().err
    assert "hunter2" not in errors and "k-1" not in errors and '"five"' in errors


@pytest.mark.parametrize("cursor", [
    base64.b64encode(b'{"tools": [1e999, "x"]}').decode(),
    base64.b64encode(b"[" * 5000).decode(), base64.b64encode(b'{"tools": 5}').decode()])
def test_a_cursor_of_ones_own_making_is_refused(cursor):
    with Peer(tool_server(ok)) as peer:
        assert peer.error(request(1, "tools/list", {"cursor": cursor}))["code"] == -32602


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux")
def test_serve_leaves_no_descriptor_open():
    body = script("""
        def opened():
            return len(os.listdir("/proc/self/fd"))
        server = Server("test")
        before = opened()
        for _ in range(3):
            server.serve()
        print(opened() - before, file=sys.stderr)
        """)
    with Process(body) as peer:
        code, rest, errors = peer.end()
    assert (code, errors.split()) == (0, ["0"])


def test_whole_messages_keep_their_content():
    tool_use = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
    server = Server("test")

    @server.prompt
    def whole() -> list:
        return [{"role": "assistant", "content": {"type": "text", "text": "hi"}},
                {"role": "user", "content": ["a", {"type": "text", "text": "b"}]}]

    @server.register
    def loop(ctx: Context) -> str:
        ctx.sample([{"role": "assistant", "content": [tool_use]}], temperature=None)
        return "done"
    with Peer(server, sampling={}) as peer:
        messages = peer.result(request(1, "prompts/get", {"name": "whole"}))["messages"]
        assert [(m["role"], m["content"]["text"]) for m in messages] == [
            ("assistant", "hi"), ("user", "a"), ("user", "b")]
        question = peer.ask(call(2, "loop"))
        assert question["params"] == {"maxTokens": 1000, "messages": [
            {"role": "assistant", "content": [tool_use]}]}
        assert text_of(peer.ask(respond(question, {"content": {}}))) == "done"


def test_a_modern_time_out_carries_the_stamp():
    def slow(ctx: Context) -> str:
        ctx.sleep(BOUND)
        return ""
    server = Server("test", timeout=0.01)
    server.register(slow)
    with Peer(server, shake=False) as peer:
        result = peer.result(modern_call(1, "slow"))
        assert result["isError"] and result["resultType"] == "complete"
        assert MCP + "serverInfo" in result["_meta"]


def test_async_questions_keep_the_order_of_asking():
    import asyncio

    async def both(ctx: Context) -> str:
        first, second = await asyncio.gather(ctx.elicit("A?", COLOR), ctx.elicit("B?", COLOR))
        return first["content"]["color"] + second["content"]["color"]
    with Peer(tool_server(both), shake=False) as peer:
        answers, state = {}, {}
        for _ in range(3):
            result = peer.result(modern_call(1, "both", {"elicitation": {}}, {
                "inputResponses": answers, **state}))
            if result["resultType"] == "complete":
                break
            state = {"requestState": result["requestState"]}
            answers = {key: {"action": "accept", "content": {
                "color": question["params"]["message"]}}
                for key, question in result["inputRequests"].items()}
        assert result["content"][0]["text"] == "A?B?"


@pytest.mark.parametrize("how", ["cancelled", "refused"])
def test_all_open_questions_are_withdrawn(how):
    with Peer(asker(), **ABLE) as peer:
        first, second = peer.ask(call(1, "both")), peer.recv()
        if how == "cancelled":
            peer.send(cancel(1))
            assert [peer.recv(), peer.recv()] == [cancel(first["id"]), cancel(second["id"])]
        else:
            peer.send({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -1}})
            assert peer.recv() == cancel(second["id"])
            assert peer.recv()["result"]["isError"]
        peer.fence()


def test_questions_are_fitted_however_they_are_asked():
    def ask(ctx: Context) -> str:
        return str(ctx.ask({"q": {"method": "elicitation/create", "params": {
            "mode": "form", "message": "m", "requestedSchema": {
                "type": "object", "properties": {"a": {"type": "string", "default": "x"}}}}}}))
    with Peer(tool_server(ask), version="2025-06-18",
              elicitation={"applyDefaults": True}) as peer:
        question = peer.ask(call(1, "ask"))
        assert question["params"] == {"message": "m", "requestedSchema": {
            "type": "object", "properties": {"a": {"type": "string"}}, "required": []}}
        reply = peer.ask(respond(question, {"action": "accept"}))
        assert "'content': {}" in text_of(reply)
    with Peer(asker(), version="2025-06-18", elicitation={"url": {}}) as peer:
        assert peer.result(call(1, "sign_in"))["isError"]  # no url mode in that revision
    with Peer(asker(), version="2025-03-26", elicitation={}) as peer:
        assert peer.result(call(1, "favourite"))["isError"]


def test_null_can_be_logged():
    def speak(ctx: Context) -> str:
        ctx.info(None)
        return "spoken"
    with Peer(tool_server(speak)) as peer:
        assert peer.ask(call(1, "speak"))["params"] == {"level": "info", "data": None}
        assert text_of(peer.recv()) == "spoken"


def test_a_listen_is_no_part_of_a_batch():
    with Peer(tool_server(ok), shake=False) as peer:
        replies = peer.ask([modern(1, "tools/list"), listen(2, toolsListChanged=True)])
        assert [reply.get("error", {}).get("code") for reply in replies] == [None, -32600]


@posix
def test_a_signal_is_no_reason_to_leave_without_a_word_to_listeners():
    with Process("""
            from mcp_server import register, run
            @register
            def ok() -> str: return "ok"
            run()
            """, shake=False) as process:
        for id in range(20):
            process.ask(listen(id, toolsListChanged=True))
        process.process.send_signal(signal.SIGTERM)
        said = [process.recv() for _ in range(40)]
        assert {message["id"] for message in said if "id" in message} == set(range(20))
        assert sum(message.get("method") == "notifications/cancelled" for message in said) == 20
        assert process.process.wait(BOUND) == 143


@posix
def test_signals_end_it_though_a_listener_does_not_read():
    with Process(script("""
        @register
        def big() -> str:
            "Big."
            return "x" * 1_000_000
        run()
        """)) as peer:
        assert peer.ask(listen(1, toolsListChanged=True))["method"].endswith("acknowledged")
        peer.send(call(2, "big"))
        select.select([peer.from_server], [], [], BOUND)
        peer.process.terminate()
        assert peer.process.wait(BOUND) == 143


def test_templates_with_several_variables_in_one_segment_are_quick():
    server = Server("test")

    @server.resource("r://{a}-{b}-{c}")
    def parts(a: str, b: str, c: str) -> str:
        return f"{a}|{b}|{c}"
    with Peer(server) as peer:
        assert peer.error(read("r://" + "-" * 4000 + "/"))["code"] == -32002
        assert peer.result(read("r://x-y-z-z"))["contents"][0]["text"] == "x|y|z-z"


@pytest.mark.parametrize("query", ["file=../../etc", "file=a%00", "file=C:%5Cx", "file=/etc"])
def test_promise_7_holds_for_queries(query):
    server = Server("test")
    server.resource("q://{id}{?file}")(lambda id="", file="": file)
    with Peer(server) as peer:
        assert peer.error(read(f"q://1?{query}"))["code"] == -32002


def test_unregistering_takes_completions_along():
    server = prompter()
    server.unregister("review")

    @server.prompt
    def review(code: bool) -> str:
        return str(code)
    with Peer(server) as peer:
        result = peer.result(request(1, "completion/complete", {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "code", "value": "t"}}))
        assert result["completion"]["values"] == ["true"]


def test_a_returned_dataclass_with_fields_of_its_own_making_goes_out_as_text():
    def point() -> Point:
        return Point(1)
    result = tool_server(point).call("point")
    assert "structuredContent" not in result
    assert json.loads(result["content"][0]["text"])["hidden"] == 0


def test_an_empty_output_schema_is_one():
    server = Server("test")
    server.register(lambda: [1], name="any", output_schema={})
    with Peer(server, shake=False) as peer:
        assert peer.result(modern_call(1, "any"))["structuredContent"] == [1]


# -------------------------------------------------------------- promises, by number
# The others stand above, each in its section, with the number in their name.


def test_promise_5_importing_does_nothing():
    body = """
        import sys, threading, logging
        before = (threading.active_count(), list(logging.root.handlers), sys.stdin,
                  sys.stdout, set(sys.modules))
        import mcp_server
        after = (threading.active_count(), list(logging.root.handlers), sys.stdin, sys.stdout)
        assert before[:4] == after
        heavy = {"inspect", "typing", "asyncio", "argparse", "subprocess", "dataclasses",
                 "ctypes", "traceback", "base64", "hmac", "select", "signal"}
        assert not heavy & (set(sys.modules) - before[4]), heavy & set(sys.modules)
        """
    done = subprocess.run([sys.executable, "-S", "-c", textwrap.dedent(body)], cwd=HERE,
                          env={**os.environ, "PYTHONPATH": HERE}, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def source(name="mcp_server.py"):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def test_the_source_uses_only_the_standard_library():
    import ast
    names = getattr(sys, "stdlib_module_names", None) or pytest.skip("needs Python 3.10")
    for node in ast.walk(ast.parse(source())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                modules = [node.module]
            assert {module.partition(".")[0] for module in modules} <= set(names)


def test_the_source_can_be_read_from_the_top():
    """A body uses only names that are defined above it (annotations excepted)."""
    symtable = pytest.importorskip("symtable")
    text = source()
    table = symtable.symtable(text, "mcp_server.py", "exec")
    defined = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"(?:class|def) (\w+)|(\w[\w, ]*) = ", line)
        for name in re.split(r", ?", match.group(1) or match.group(2)) if match else ():
            defined.setdefault(name, number)

    def check(scope, top):
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            if symbol.is_global() and symbol.is_referenced() and name in defined:
                if name != top[0] and name not in ALLOWED_BELOW:
                    assert defined[name] <= top[1], (
                        f"{scope.get_name()} (line {scope.get_lineno()}) uses {name}, "
                        f"which is defined below, in line {defined[name]}")
        for child in scope.get_children():
            check(child, top)
    for child in table.get_children():
        if child.get_type() in ("function", "class"):
            check(child, (child.get_name(), child.get_lineno() + 10_000
                          if child.get_name() == "main" else child.get_lineno()))


ALLOWED_BELOW = set()


def test_the_contents_list_names_the_sections():
    text = source()
    listed = re.findall(r"^ {4,5}(\d+)  (\w[\w /]*?)  ", mcp_server.__doc__, re.M)
    banners = re.findall(r"^# (\d+)\. ([\w /]+?)(?::|$)", text, re.M)
    assert listed == banners


def test_every_public_name_exists():
    for name in mcp_server.__all__:
        assert hasattr(mcp_server, name), name


def test_every_method_of_the_table_occurs_in_a_conversation():
    tests = source("test_mcp_server.py")
    for method in mcp_server.METHODS:
        assert f'"{method}"' in tests, method


# ----------------------------------------------------------------------- the README


def fences(language):
    """The fenced blocks of the README in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", source("README.md"), re.M | re.S)


def test_the_readme_servers_run(tmp_path):
    calls = {"server.py": [("add", {"a": 2, "b": 3}, "5")],
             "notes.py": [("count", {"to": 0}, "counted to 0"),
                          ("delete", {"name": "tea"}, "there are: milk"),
                          ("delete", {"name": "milk"}, "not declared")]}
    for code in fences("python"):
        name = code.splitlines()[0].lstrip("# ")
        (tmp_path / name).write_text(code)
        with Process(None, args=[str(tmp_path / name)]) as peer:
            for number, (tool, arguments, says) in enumerate(calls.pop(name)):
                assert says in peer.text(call(number, tool, **arguments))
            if name == "notes.py":
                first = peer.result(modern_call(9, "delete", {"elicitation": {}}, name="milk"))
                answer = {key: {"action": "accept", "content": {"sure": True}}
                          for key in first["inputRequests"]}
                last = peer.result(modern_call(9, "delete", {"elicitation": {}}, {
                    "requestState": first["requestState"], "inputResponses": answer},
                    name="milk"))
                assert last["content"][0]["text"] == "Deleted."
            assert peer.end()[:2] == (0, [])
    assert not calls


def in_readme(heading, row):
    """The rows of the table under a heading, as lists of cells."""
    section = source("README.md").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in section.splitlines()
             if line.startswith("| ")]
    return table[2:] if row is None else [cells[row] for cells in table[2:]]


def looks_like(expected, text):
    """Whether a text is the expected one, where `...` stands for anything in a line."""
    pattern = re.escape(expected).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, text) is not None


@posix
def test_the_readme_sessions_are_what_one_sees(tmp_path):
    (tmp_path / "server.py").write_text(fences("python")[0])
    shutil.copy(os.path.join(HERE, "mcp_server.py"), tmp_path)  # as one does
    sessions = "".join(fences("console"))
    steps = re.findall(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)", sessions)
    assert len(steps) == 6
    for command, expected in steps:
        done = subprocess.run(["sh", "-c", command.replace("python3", sys.executable)],
                              cwd=tmp_path, capture_output=True, text=True, timeout=BOUND)
        assert looks_like(expected, done.stdout), (command, done.stdout)
        assert done.stderr == ("" if "--config" not in command else
                               "claude_desktop_config.json (Settings, Developer, Edit Config):\n")


def test_the_readme_conversation_is_what_one_sees(tmp_path):
    (tmp_path / "server.py").write_text(fences("python")[0])
    with Process(None, args=[str(tmp_path / "server.py")], shake=False) as peer:
        for conversation in fences("text"):
            peer.play(conversation)
        assert peer.end() == (0, [], "")


def test_the_readme_hints_have_these_schemas():
    names = {**vars(typing), "date": dt.date}
    rows = in_readme("Writing tools", None)
    assert len(rows) == 9
    for hint, schema in rows:
        hint = re.match(r"`(.*?)`", hint).group(1)
        assert schema_of(eval(hint, names)) == json.loads(schema.strip("`")), hint


ADD = """
from mcp_server import Context, Server, register, run
@register
def add({}) -> object:
    "Add."
    return {}
"""
MISTAKES = [  # in the order of the README: (the script, what the client does)
    (ADD.format("", 1), None),
    (ADD.format("", 1) + "Server('mine').run()", None),
    (ADD.format("a", 1), None),
    (ADD.format("a: int, ctx", 1), None),
    (ADD.format("*args: int", 1), None),
    (ADD.format("", 1) + "register(add)", None),
    ("import no_such_package", None),
    (ADD.format("a: int", "a") + "run()", {"a": "5"}),
    (ADD.format("", "object()") + "run()", {}),
    (ADD.format("ctx: Context", "ctx.elicit('?', {'type': 'object', 'properties': {}})")
     + "run()", {}),
]


@pytest.mark.parametrize("number", range(10))
def test_the_readme_mistakes_are_told_so(number, tmp_path):
    says, = re.findall("`(.*?)`", in_readme("When something goes wrong", 1)[number])
    code, arguments = MISTAKES[number]
    (tmp_path / "server.py").write_text(code)
    with Process(None, args=[str(tmp_path / "server.py")], shake=arguments is not None) as peer:
        seen = "" if arguments is None else peer.text(call(1, "add", **arguments))
        assert says in seen + peer.end()[2]

#!/usr/bin/env python3
"""mcp_server: any Python function as a tool for AI clients, in one file.

    from mcp_server import register, run

    @register
    def add(a: int, b: int) -> int:
        "Add two integers."
        return a + b

    if __name__ == "__main__":
        run()

That is a whole server.  A client (Claude, an editor, a script) starts it as a child
process and speaks the Model Context Protocol (MCP) with it: JSON-RPC 2.0, one message
per line, requests on stdin, answers on stdout.  On its way a request is, in turn,

    bytes -> line -> message -> request -> handler -> result -> message -> bytes
       read_line  decode    dispatch    call      (value)   encode   write_line

and this file is in that order.  A body uses only names defined above it, so it can be
read from the top; Part II can be skipped the first time.

     1  Vocabulary      versions, error codes, limits
     2  Failures        three of them, three outcomes
    Part I    A JSON-RPC peer
     3  Lines           bytes <-> line
     4  Messages        line <-> message
     5  Calls           a request in flight, and how it is stopped
     6  Crew            the threads that read and run
     7  Connection      message -> request -> answer
    Part II   JSON
     8  Values          Python -> JSON
     9  Validation      value, schema -> problems
    10  Hints           type -> schema, JSON -> Python
    Part III  MCP
    11  Content         what a handler returned -> what the client reads
    12  Context         what a handler may ask of us
    13  Records         a function and all that a client may know of it
    14  Lifecycle       the states of a session
    15  Session         the methods of the protocol
    Part IV   The front door
    16  Visitor         a client, to try a server with
    17  Standard I/O    stdin and stdout taken away from user code
    18  Server          register, serve, run
    19  Demo            what runs when no file is given
    20  Command line    for people

Three rules explain most of the code:
 1. Every request is answered exactly once, a cancelled one never.  The in-flight table
    decides: who removes the request from it may answer, and nobody else.
 2. Reading never waits for user code, whatever that code does.
 3. Raise anywhere, answer in one place.

It does not do HTTP (put a gateway in front), authorisation (the process runs as its
user), or tasks.  The specification: https://modelcontextprotocol.io/specification
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import ChainMap, deque
from functools import cached_property, lru_cache, partial, partialmethod
from io import BytesIO
from itertools import count

if sys.version_info < (3, 9):
    raise ImportError(f"mcp_server needs Python 3.9 or newer, this is {sys.version}")

TYPE_CHECKING = False  # type checkers take this for true; typing costs 3 ms to import
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Iterable, Iterator, TypeVar, overload
    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

# ----------------------------------------------------------------------------------
# 1. Vocabulary
# ----------------------------------------------------------------------------------

__version__ = "0.1.0"
__all__ = [
    "register", "resource", "prompt", "run", "Server", "Context",
    "text", "image", "audio", "embedded", "link",
    "schema_of", "validate", "ToolError", "RpcError", "Cancelled",
    "PROTOCOL_VERSIONS", "__version__",
]

# Revisions are dates, so they compare as strings.  Newest first.
PROTOCOL_VERSIONS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN, V2025_11, V2025_06, V2025_03, _ = PROTOCOL_VERSIONS
NEWEST_HANDSHAKE = V2025_11  # the modern revision has no handshake
MCP = "io.modelcontextprotocol/"  # the prefix of the protocol's own keys in _meta

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR, RESOURCE_NOT_FOUND = -32602, -32603, -32002
MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32021, -32022

MAX_LINE = 16 * 2**20     # bytes of one message; a longer one is refused, never held
PIECE = 2**16             # bytes read at a time
MAX_IN_FLIGHT = 100_000   # requests read and not yet answered; more are refused
MAX_WORKERS = 512         # threads that run handlers at the same time
SPARE_THREADS = 8         # how many may wait for work; others end when they are done
TICK = 0.001              # seconds a call may keep the thread that reads,
LONG = 0.02               # and many quick ones that were read together
GRACE = 0.2               # seconds a cancelled handler has before it is interrupted
INTERRUPTS = 3            # how often it is interrupted before it is given up
DRAIN = 1.0               # seconds at the end of input to answer what was asked
RELOAD = 0.3              # seconds between two looks at the files of --reload
HEARTBEAT = 15.0          # seconds between signs of life from a long call
PATIENCE = 600.0          # seconds that a question waits for the client's user
STATE_LIFE = 3600.0       # seconds that a request may wait for its user's answers
MAX_URI = 4096            # characters of a URI to be matched with a template
MAX_COMPLETIONS = 100     # by the specification
FOREVER = float("inf")

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert",
              "emergency")
# Patterns are compiled where they are used: all of them now would cost 2 ms.
SECRET = (r"pass(wor|phra|wd)|pwd|secret|credential|(api|private)_?key|authori[sz]|cookie"
          r"|token")
SECRET_KEY = rf"(?i){SECRET}"
SECRET_LINE = rf"(?im)^(\S*({SECRET})\S*: expected .*, got ).*"

def redact(value, room=200):
    """A copy for human eyes: {"password": "x"} -> {"password": "***"}, long text cut."""
    if isinstance(value, dict):
        return {key: "***" if re.search(SECRET_KEY, str(key)) and key != "progressToken" else
                redact(item, room) for key, item in list(value.items())[:50]}
    if isinstance(value, (list, tuple)):
        more = [f"... ({len(value):,} items)"] if len(value) > 20 else []
        return [redact(item, room) for item in value[:20]] + more
    if isinstance(value, str) and len(value) > room:
        value = f"{value[:room]}... ({len(value):,} characters)"
    return re.sub(SECRET_LINE, r"\1***", value) if isinstance(value, str) else value

class Log:
    """Lines on stderr.  By default only what went wrong; LOG_LEVEL=debug shows all."""

    threshold = LOG_LEVELS.index("error")
    file = None      # of --trace: gets every message of the wire
    traced = False   # somebody wants to see these

def clock():
    """10:55:12.123"""
    now = time.time()
    return time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"

def log(level, message):
    """One line on stderr, if the level is asked for.  A broken stderr is ignored."""
    if LOG_LEVELS.index(level) < Log.threshold:
        return
    message = re.sub(SECRET_LINE, r"\1***", message)
    try:
        print(f"mcp_server {clock()} {level}: {message}", file=sys.stderr, flush=True)
    except Exception:  # closed, full, or whatever user code has put there
        pass

def set_log_level():
    """Do as the environment says."""
    level = (os.environ.get("LOG_LEVEL") or "error").strip().lower()
    Log.threshold = LOG_LEVELS.index(level if level in LOG_LEVELS else "error")
    Log.traced = Log.threshold == 0 or Log.file is not None
    if level not in LOG_LEVELS:
        log("error", f"LOG_LEVEL: expected one of {', '.join(LOG_LEVELS)}, got {level!r}")

def trace(direction, line):
    """Show a line of the wire: on stderr at level debug, and in the file of --trace.

    2026-05-01T10:55:12.123 in  {"jsonrpc": "2.0", "id": 1, "method": "ping"}"""
    line = line.decode("utf-8", "replace").strip()
    try:
        shown = f"{direction:3} {json.dumps(redact(json.loads(line)))}"
    except (ValueError, RecursionError):  # not JSON
        shown = f"{direction:3} {json.dumps(redact(line))}"
    log("debug", shown)
    file = Log.file
    try:
        if file:
            file.write(f"{time.strftime('%Y-%m-%dT')}{clock()} {shown}\n".encode())
    except (OSError, ValueError) as error:  # a full disk: serving goes on
        Log.file = None
        log("error", f"--trace: {error}; no more is written there")

def log_traceback(message):
    """The exception being handled, whole, on stderr: the client only gets a sentence."""
    import traceback
    log("error", message + "\n" + traceback.format_exc().rstrip())

def describe(error):
    """ZeroDivisionError("division by zero") -> "ZeroDivisionError: division by zero"."""
    try:
        return f"{type(error).__name__}: {error}".rstrip(": ")[:2000]
    except BaseException:  # an error whose own __str__ fails
        return type(error).__name__

# ----------------------------------------------------------------------------------
# 2. Failures
#
#     raised by a handler     the client receives
#     RpcError                an *error*: the protocol was not followed
#     ToolError, any other    a *result* with isError: the model reads it and reacts
#     Cancelled               nothing: it said that it no longer wants an answer
# ----------------------------------------------------------------------------------

class RpcError(Exception):
    """A request that cannot be served: answered as a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def as_json(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}

class ToolError(Exception):
    """A tool that cannot do what was asked, with a sentence that the model reads."""

class Cancelled(BaseException):
    """The client gave up on this request.

    Not an Exception, so that `except Exception` in a tool does not swallow it."""

class InputRequired(BaseException):
    """A handler has asked what the client has not answered yet: InputRequired(questions).

    Only in the modern era: the request ends here, and starts again with the answers."""

# ==================================================================================
# Part I.  A JSON-RPC peer.  It knows nothing of MCP.
# ==================================================================================

# ----------------------------------------------------------------------------------
# 3. Lines: bytes <-> line
# ----------------------------------------------------------------------------------

class LineReader:
    """Lines from a binary stream, none longer than `limit`."""

    def __init__(self, stream, limit=MAX_LINE):
        self._read = getattr(stream, "read1", stream.readline)  # what there is, no more
        self._limit = limit
        self.ready = deque()  # lines read so far; of one too long only the size
        self._line, self._size = bytearray(), 0  # the one that has not ended yet

    def read_line(self):
        """The next line with its newline, b"" at the end.

        A line over the limit is skipped in pieces and refused with an RpcError; the
        call after that returns the line behind it."""
        while not self.ready:
            data = self._read(PIECE)
            if not self._size and 0 < len(data) <= self._limit and (
                    data.find(b"\n") == len(data) - 1):
                self.ready.append(data)  # the usual: one whole line
                break
            for piece in BytesIO(data):  # each ends with a newline, but for the last
                self._size += len(piece)
                self._line += piece
                if self._size > self._limit:
                    self._line.clear()
                if piece.endswith(b"\n"):
                    self._end_line()
            if not data and not self._size:
                return b""  # never in `ready`: no answer is held for the end
            if not data:
                self._end_line()
        line = self.ready.popleft()
        if Log.traced:
            trace("in", b"(a line that is too long)" if isinstance(line, int) else line)
        if isinstance(line, int):
            raise RpcError(INVALID_REQUEST, f"Message too long: expected at most "
                           f"{self._limit:,} bytes on one line, got {line:,}")
        return line

    def _end_line(self):
        self.ready.append(self._line if self._size <= self._limit else self._size)
        self._line, self._size = bytearray(), 0

class LineWriter:
    """Whole lines to a binary stream, from any thread.

    While lines wait in `more`, answers are held for up to a TICK, to leave together.
    Who takes the last one has to catch_up before he runs or waits for anything."""

    def __init__(self, stream, on_broken, more=()):
        self._stream, self._on_broken, self._more = stream, on_broken, more
        self._lock = threading.Lock()  # guards _stream and the next two
        self._flushed = 0              # when
        self.held = False              # something was written since then
        self.closed = False            # what is written from now on is dropped

    def write_line(self, line, wanted=None):
        """Write it, if it is still wanted() when its turn comes.

        When nobody reads any more, say so once and drop it."""
        if self.closed:
            return
        if Log.traced and line:
            trace("out", line)
        with self._lock:
            if wanted and not wanted():
                return
            try:
                self._stream.write(line)
                now = time.monotonic()
                if self._more and now - self._flushed < TICK:
                    self.held = True
                    if self._more:  # subtle: still, so who takes the last one sees held
                        return
                self.held, self._flushed = False, now
                self._stream.flush()
                return
            except (OSError, ValueError):
                self.closed = True
        self._on_broken()

    def catch_up(self):
        """Return when no write is stuck and nothing is held that should have left."""
        with self._lock:
            held = self.held
        if held:
            self.write_line(b"")

# ----------------------------------------------------------------------------------
# 4. Messages: line <-> message
# ----------------------------------------------------------------------------------

class Request:
    """{"jsonrpc": "2.0", "id": 1, "method": "ping"}: wants an answer with its id."""

    def __init__(self, id, method, params):
        self.id, self.method, self.params = id, method, params

class Notification:
    """{"jsonrpc": "2.0", "method": "..."}: has no id and is never answered."""

    def __init__(self, method, params):
        self.method, self.params = method, params

class Response:
    """{"jsonrpc": "2.0", "id": 1, "result": {}}: the answer to a question of ours."""

    def __init__(self, id, result, error):
        self.id, self.result, self.error = id, result, error

class Malformed:
    """Anything else: answered with `error`, under its id if one could be read."""

    def __init__(self, id, error):
        self.id, self.error = id, error

def is_id(value):
    """Ids are strings and finite numbers; true is no number, null is no id."""
    if isinstance(value, float):
        return abs(value) < FOREVER
    return isinstance(value, (str, int)) and not isinstance(value, bool)

def message_of(envelope):
    """{"jsonrpc": "2.0", "id": 1, "method": "ping"} -> Request(1, "ping", {})."""
    if not isinstance(envelope, dict):
        problem = f"expected a message object, got {type(envelope).__name__}"
        return Malformed(None, RpcError(INVALID_REQUEST, problem))
    id, method, params = envelope.get("id"), envelope.get("method"), envelope.get("params")
    if "id" not in envelope and isinstance(method, str):
        return Notification(method, params)
    if "method" not in envelope and ("result" in envelope or "error" in envelope):
        return Response(id, envelope.get("result"), envelope.get("error"))
    if "id" in envelope and not is_id(id):
        problem, id = f"id: expected a string or a number, got {type(id).__name__}", None
    elif envelope.get("jsonrpc") != "2.0":
        problem = 'jsonrpc: expected "2.0"'
    elif not isinstance(method, str):
        problem = "method: expected a string"
    elif params is None or isinstance(params, dict):
        return Request(id, method, params or {})
    else:
        problem = f"params: expected an object, got {type(params).__name__}"
        if isinstance(params, list):  # by place: JSON-RPC has it, MCP has not
            return Malformed(id, RpcError(INVALID_PARAMS, problem))
    return Malformed(id, RpcError(INVALID_REQUEST, problem))

def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")

DECODER = json.JSONDecoder(parse_constant=refuse_constant)
# subtle: ASCII output.  A lone surrogate in a tool's text would make UTF-8 fail here.
# A circular value ends in a RecursionError, so no need to look out for one.
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)

def decode(line):
    """One line -> one message, or a list of them for a batch, or None for a blank one.

    b'{"jsonrpc":"2.0","method":"x"}' -> Notification("x", None)
    b'oops' -> Malformed(None, RpcError(-32700, ...)): it never raises"""
    try:
        text = line.decode("utf-8").lstrip("\ufeff \t\r\n")  # some editors write U+FEFF
        if not text:
            return None
        value, end = DECODER.raw_decode(text)
        if text[end:].strip(" \t\r\n"):
            raise ValueError(f"more text after the message, at character {end}")
        if not isinstance(value, list):
            return message_of(value)
        if value:
            return [message_of(entry) for entry in value]
        return Malformed(None, RpcError(INVALID_REQUEST, "Empty batch: nothing to do"))
    except RecursionError:
        problem = "nested too deeply"
    except MemoryError:
        problem = "too large for this machine's memory"
    except ValueError as error:  # it is no JSON, or no UTF-8
        problem = str(error)
    return Malformed(None, RpcError(PARSE_ERROR, f"Parse error: {problem}"))

class Kept(dict):
    """A result that is sent again and again: its JSON is made once."""

    def __init__(self, result):
        super().__init__(result)
        self.json = ENCODER.encode(result).encode()

def encode(message):
    """{"jsonrpc": "2.0", "id": 1, "result": {}} -> the line that goes out."""
    result = message.get("result")
    if isinstance(result, Kept):
        id = message["id"]
        id = str(id) if type(id) is int else ENCODER.encode(id)
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id.encode(), result.json)
    return ENCODER.encode(message).encode() + b"\n"

# ----------------------------------------------------------------------------------
# 5. Calls: a request in flight, and how it is stopped
#
# A handler is stopped in three ways, each for those that the one before missed:
#   told         call.cancelled is true; what waits in ctx.sleep, ctx.run, ... wakes up
#   interrupted  after a grace, Cancelled is raised in its thread, wherever that is
#   abandoned    it sits in a C call and cannot be reached: its place is given away
# ----------------------------------------------------------------------------------

WAITING, RUNNING, OVER, ABANDONED = "waiting", "running", "over", "abandoned"
OPEN = "open"  # answered by hand, when its owner wants to

def raise_in_thread(thread, exception):
    """Raise in another thread at its next bytecode; None takes back what is pending.

    CPython only.  Elsewhere a handler has to look at ctx.cancelled."""
    try:
        from ctypes import c_ulong, py_object, pythonapi
    except ImportError:
        return
    pythonapi.PyThreadState_SetAsyncExc(
        c_ulong(thread), py_object(exception) if exception else None)

class Call:
    """A request between its arrival and its answer."""

    stage = WAITING
    cancelled = False
    thread = None       # where user code runs for it, while it does
    interrupts = 0
    serial = False      # it must run on the thread of the serial tools
    timeout = None      # seconds its handler may take,
    late = None         # and what finds the result if it takes longer
    # For Part III: who asks; where progress goes, if anybody wants to know; what the
    # client has answered, and the keys of what it was asked.
    client = progress = None
    answers, asked = {}, ()

    def __init__(self, request, batch=None):
        self.id = request.id
        self.key = (type(request.id), request.id)  # 1, 1.0 and "1" are three ids
        self.method, self.params = request.method, request.params
        self.batch = batch            # the Batch it came in, or None
        self.wakers = []              # called when it is cancelled, perhaps twice
        self.alarms = []              # [when, action(call, now) -> when again or None]
        self.gate = threading.Lock()  # guards stage, thread, and what it sends

    def on_cancel(self, waker):
        """Have waker called when this call is cancelled: now, if it already was."""
        self.wakers.append(waker)
        if self.cancelled:
            waker()

    def cancel(self):
        """Tell the handler, and wake what it waits for."""
        self.cancelled = True
        for waker in list(self.wakers):
            waker()

    def run(self, function, *args):
        """function(*args); interrupt() reaches this thread until it returns."""
        self.thread = threading.get_ident()
        try:
            return function(*args)
        finally:
            self._shut_window()

    def interrupt(self):
        """Raise Cancelled in the handler's thread, if that is in user code."""
        self.interrupts += 1
        if self.gate.acquire(timeout=TICK):  # it is held while our code runs in there
            if self.thread is not None:
                raise_in_thread(self.thread, Cancelled)
            self.gate.release()

    def _shut_window(self):
        # subtle: an interrupt may land on any line here; then go round again.  Once
        # the gate was passed with thread = None nobody sends another, and one that
        # was sent but has not landed is taken back: the next request is never hit.
        while True:
            try:
                with self.gate:
                    self.thread = None
                if self.interrupts:
                    raise_in_thread(threading.get_ident(), None)
                return
            except Cancelled:
                continue

# ----------------------------------------------------------------------------------
# 6. Crew: the threads that read and run
#
# The thread that has read a call runs it at once: no hand-over, nobody to wake, and
# most calls are done in microseconds.  One that takes longer must not keep the others
# waiting, so a foreman looks every millisecond, but only while something is going on.
# If no job was begun since his last look, and
#
#   the leader is away, running one   -> another one leads
#   jobs wait                         -> another one helps
#
# From then on the crew hurries, as long as more jobs begin than end: whoever begins one
# first passes on what else there is to do.
# ----------------------------------------------------------------------------------

def new_bell():
    """Threads are known by their bells: a lock that is held.  Who acquires it sleeps until
    somebody rings, that is, releases it."""
    bell = threading.Lock()
    bell.acquire()
    return bell

def start_thread(function, name, *args):
    """A thread that does not keep the process alive.  Raises RuntimeError if it cannot."""
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    thread.start()
    return thread

class Crew:
    """Runs what `read` brings in on daemon threads, as few as will do.

    read()       a list of jobs, perhaps empty, or None at the end of input
    a job()      true if its place was given away (see give_up) before it returned
    alarm(now)   called at the time it last asked for; returns when it wants to be next
    """

    def __init__(self, read, alarm, max_workers):
        self._read, self._alarm, self._max_workers = read, alarm, max_workers
        self._lock = threading.Lock()  # guards everything below
        self._jobs = deque()           # read, not yet begun
        self._parked = []              # bells of threads with nothing to do
        self._leader = None            # bell of the thread whose turn it is to read
        self._reading = False          # it waits for a line (else it runs a job)
        self._left = 0                 # when it last came back with one
        self._begun = 0                # how many jobs so far: the foreman compares
        self._busy = 0                 # threads inside a job
        self._hurry = self._closed = False
        self._due = FOREVER            # when alarm wants to be called
        self._foreman = new_bell()
        self._foreman_parked = False

    def start(self):
        """Raises RuntimeError where the system has no more threads."""
        self._leader, self._reading = new_bell(), True
        start_thread(self._oversee, "mcp-foreman", self._foreman)
        start_thread(self._live, "mcp-worker", self._leader)

    def wake_at(self, when):
        """Have alarm called at that time, or before."""
        with self._lock:
            if when < self._due:
                self._due = when
                self._ring_foreman()

    def give_up(self):
        """A job will not come back: let another thread have its place."""
        with self._lock:
            self._busy -= 1
            wake = self._send()
        wake()

    def close(self):
        """Send every thread home, at once or when its job is done."""
        with self._lock:
            self._closed = True
            while self._parked:
                self._parked.pop().release()
            self._ring_foreman()

    def is_idle(self):
        """Nobody reads, nobody is inside a job."""
        return self._leader is None and not self._busy

    def _send(self, lead=False):
        # holding _lock: choose one more thread to work, the one that parked last -> a
        # function that wakes it, to be called without _lock, as it takes a while
        if self._parked:
            bell = self._parked.pop()
            wake = bell.release
        else:
            bell = new_bell()
            wake = partial(self._hire, bell, self._leader)
        if lead:
            self._leader, self._reading = bell, True
        return wake

    def _hire(self, bell, leader):
        try:
            start_thread(self._live, "mcp-worker", bell)
        except RuntimeError:  # the system has no more: the foreman will try again
            with self._lock:
                if self._leader is bell:
                    self._leader, self._reading = leader, False

    def _live(self, bell):
        while True:
            self._lead(bell)
            self._help(bell)
            with self._lock:
                if self._closed or len(self._parked) >= SPARE_THREADS:
                    return
                self._parked.append(bell)
            bell.acquire()

    def _lead(self, bell):
        while True:
            with self._lock:
                if self._leader is not bell:
                    return
                self._reading = True
            jobs = self._read()
            self._left, self._reading = time.monotonic(), False
            if jobs is None:
                self._leader = None  # nobody leads: there is nothing left to read
                return
            if jobs:
                self._jobs.extend(jobs)
                del jobs  # else the last one would stay in memory until the next line
                self._help(bell)

    def _help(self, bell):
        done = 0
        while True:
            with self._lock:
                self._busy -= done
                if not self._jobs or self._busy >= self._max_workers:
                    return
                job = self._jobs.popleft()
                self._busy += 1
                self._begun += 1
                leading = self._leader is bell
                hurry = self._hurry and (self._jobs or leading)
                wake = self._send(lead=leading) if hurry else None
                if self._foreman_parked:
                    self._ring_foreman()
            if wake:
                wake()
            done = not job()

    def _ring_foreman(self):
        # holding _lock
        if self._foreman_parked:
            self._foreman_parked = False
            self._foreman.release()

    def _oversee(self, bell):
        begun = busy = 0
        while not (self._closed and not self._busy):
            now = time.monotonic()
            if now >= self._due:
                self._due = FOREVER  # before the call: others may set it meanwhile
                self.wake_at(self._alarm(now))
            with self._lock:
                away = self._leader is not None and not self._reading
                waiting = bool(self._jobs) and self._busy < self._max_workers
                still = self._begun == begun  # no job was begun since the last look
                stuck = still and (away or waiting)
                lead = away and (stuck or now - self._left > LONG)
                wake = self._send(lead) if stuck or lead else None
                self._hurry = stuck or (self._hurry and self._busy > busy)
                begun, busy = self._begun, self._busy
                rests = still and not (away or waiting or self._closed)
                self._foreman_parked = rests
            if wake:
                wake()
            pause = min(self._due - now, FOREVER if rests else TICK)
            bell.acquire(timeout=min(max(pause, 0), threading.TIMEOUT_MAX))
            self._foreman_parked = False

class SerialLane:
    """One long-lived thread for the tools whose state belongs to a thread."""

    thread = None  # the one that runs them now

    def __init__(self):
        self._lock = threading.Lock()  # of all connections, one makes the queue
        self._jobs = None

    def add(self, job):
        with self._lock:
            if self._jobs is None:
                from queue import SimpleQueue
                self._jobs = SimpleQueue()
                self.start_thread()
        self._jobs.put(job)

    def start_thread(self):
        """The first one, or one in place of a thread that will not come back."""
        start_thread(self._live, "mcp-serial")

    def _live(self):
        self.thread = threading.get_ident()
        while not self._jobs.get()():  # a job that was given up ends its thread
            pass

# ----------------------------------------------------------------------------------
# 7. Connection: message -> request -> answer
# ----------------------------------------------------------------------------------

UNANSWERED = object()  # returned by on_request for what is answered later, by hand

def attempt(step, *args):
    """step(*args) -> {"result": ...} or {"error": ...}.  What is yet to be run (a function),
    or is UNANSWERED, comes back as it is."""
    try:
        outcome = step(*args)
        later = outcome is UNANSWERED or callable(outcome)
        return outcome if later else {"result": outcome}
    except RpcError as error:
        failure = error
    except Cancelled:
        failure = RpcError(INTERNAL_ERROR, "Cancelled")
    except BaseException as error:  # a request must not go unanswered
        log_traceback("a handler failed")
        failure = RpcError(INTERNAL_ERROR, f"Internal error: {describe(error)}")
    return {"error": failure.as_json()}

def wait_while(condition, seconds):
    """Return when condition() is false, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while condition() and time.monotonic() < deadline:
        time.sleep(TICK)

class Batch:
    """The answers of a batch: they leave as one array when the last entry is done."""

    def __init__(self, size):
        self._lock = threading.Lock()  # guards both
        self._open = size
        self._lines = []

    def close_entry(self, line):
        """Add an answer, or None for a cancelled entry -> the array, after the last."""
        with self._lock:
            self._open -= 1
            if line is not None:
                self._lines.append(line.rstrip(b"\n"))
            if self._open or not self._lines:
                return None
            return b"[" + b",".join(self._lines) + b"]\n"

class Question:
    """A request of ours, until the client has answered it."""

    def __init__(self, id, method):
        self.id, self.method = id, method
        self.answered = threading.Event()
        self.result = self.error = None

class Connection:
    """A JSON-RPC peer on two binary streams.

    on_request(call)                 the result, or a function that will find it (it is
                                     run by the crew), or UNANSWERED; raises RpcError
    on_notification(method, params)
    on_end()                         nothing more will come

    For its owner: start, wait, finish, end.  For handlers: notify, ask,
    cancel, set_alarm, settle.
    """

    def __init__(self, reader, writer, on_request, on_notification, on_end, *, lane,
                 max_workers=MAX_WORKERS, max_line=MAX_LINE):
        self._reader = LineReader(reader, max_line)
        self._writer = LineWriter(writer, self.end, self._reader.ready)
        self._on_request, self._on_notification = on_request, on_notification
        self._on_end = on_end
        self._crew = Crew(self._receive, self._check_alarms, max_workers)
        self._lane = lane
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards the next two
        self._in_flight = {}           # Call.key -> Call: may still be answered
        self._questions = {}           # id -> Question
        self._question_ids = count(1)
        self._answering = set()        # Calls out of the table, not yet written
        self._stopped = set()          # Calls that nobody answers, whose thread runs on
        self._ended = threading.Event()

    # -- for its owner

    def start(self):
        self._crew.start()

    def wait(self):
        """Return at the end of input, or when nobody reads our answers any more."""
        # Windows: a wait without a limit could not be ended with Ctrl-C
        while not self._ended.wait(None if os.name == "posix" else 0.5):
            pass

    def finish(self, drain):
        """Answer what was asked within `drain` seconds, then stop the rest.

        True: every thread has come back."""
        self.end()
        wait_while(lambda: self._in_flight or self._answering, drain)
        wait_while(lambda: self._answering or any(  # these at least, also after a signal
            call.stage is OPEN for call in list(self._in_flight.values())), GRACE)
        self._writer.closed = True  # a client that reads no more must not hold us up
        for call in list(self._in_flight.values()):
            self._stop(call)
        self._crew.close()
        wait_while(lambda: not self._crew.is_idle(), GRACE)
        return self._crew.is_idle()

    def end(self):
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            questions = list(self._questions.values())
        for question in questions:  # nobody is left to answer them
            question.answered.set()
        self._on_end()

    # -- for handlers

    def notify(self, method, params=None, call=None):
        """Send a notification; one that belongs to a call never after its answer."""
        message = {"jsonrpc": "2.0", "method": method}
        line = encode(message if params is None else {**message, "params": params})
        if call is None:
            self._writer.write_line(line)
            return
        with call.gate:  # so that no interrupt can tear the line
            self._writer.write_line(line, partial(self._is_open, call))

    def _is_open(self, call):
        return self._in_flight.get(call.key) is call

    def ask(self, questions, call, seconds):
        """Send requests to the client: {key: {"method", "params"}} -> {key: its result}.

        Raises what an answer, or silence for so long, means."""
        deadline, sent = time.monotonic() + seconds, {}
        try:
            for key in questions:
                sent[key] = self._send_question(call, **questions[key])
            return {key: self._answer_to(sent[key], call, deadline) for key in sent}
        finally:
            for question in sent.values():
                self._withdraw(question, call)

    def _send_question(self, call, method, params):
        question = Question(next(self._question_ids), method)
        line = encode({"jsonrpc": "2.0", "id": question.id, "method": method,
                       "params": params})
        with self._lock:
            self._questions[question.id] = question  # first: the answer may be quick
        call.on_cancel(question.answered.set)
        with call.gate:
            self._writer.write_line(line, partial(self._may_ask, call))
        if not self._may_ask(call):  # nobody is left, or this thread has outlived its call
            question.answered.set()
        return question

    def _may_ask(self, call):
        return self._is_open(call) and not self._ended.is_set()

    def _answer_to(self, question, call, deadline):
        question.answered.wait(max(0, deadline - time.monotonic()))
        if call.cancelled:
            raise Cancelled
        if question.error is not None:
            raise question.error
        if question.result is None:
            why = "is gone" if self._ended.is_set() else "was silent for too long"
            raise ToolError(f"{question.method}: no answer, the client {why}")
        return question.result

    def _withdraw(self, question, call):
        call.wakers.remove(question.answered.set)
        if self._questions.pop(question.id, None) and not self._ended.is_set():
            with call.gate:
                self.notify("notifications/cancelled", {"requestId": question.id})

    def cancel(self, id):
        """The client no longer wants this answer; unknown and finished ids are fine."""
        call = self._in_flight.get((type(id), id)) if is_id(id) else None
        if call:
            self._stop(call)

    def set_alarm(self, call, when, action):
        """Have action(call, now) called then; it may return when to be called again."""
        call.alarms.append([when, action])
        self._crew.wake_at(when)

    def settle(self, call, body, then=None):
        """Answer a call, or end it without (None), and do what belongs to that (then).
        False: somebody else did already.

        This is rule 1: who takes the call out of the table may answer it."""
        with self._lock:
            if self._in_flight.get(call.key) is not call:
                return False
            self._answering.add(call)
            del self._in_flight[call.key]  # first: its id may come again at once
        self._reply(call.id, call.batch, body)
        if then:
            then()
        self._answering.discard(call)
        return True

    # -- receiving

    def _receive(self):
        """Read one line, answer what can be answered at once -> jobs, None at the end."""
        try:
            if self._writer.held and not self._reader.ready:
                self._writer.catch_up()
            line = self._reader.read_line()
            if not line or self._ended.is_set():
                self.end()
                self._reader.ready.clear()
                self._writer.catch_up()
                return None
            message = decode(line)
        except RpcError as error:
            message = Malformed(None, error)
        except (OSError, ValueError):  # the stream was closed under our feet
            self.end()
            return None
        if not isinstance(message, list):
            job = self._dispatch(message, None)
            return [job] if job else []
        batch = Batch(sum(isinstance(m, (Request, Malformed)) for m in message))
        return list(filter(None, [self._dispatch(entry, batch) for entry in message]))

    def _dispatch(self, message, batch):
        if isinstance(message, Request):
            return self._begin(Call(message, batch))
        if isinstance(message, Notification):
            attempt(self._on_notification, message.method, message.params)
        elif isinstance(message, Response):
            self._settle_question(message)
        elif isinstance(message, Malformed):
            self._reply(message.id, batch, {"error": message.error.as_json()})
        return None

    def _settle_question(self, response):
        question = self._questions.pop(response.id, None) if is_id(response.id) else None
        if question is None:  # late, or never asked
            return
        if response.error is not None:
            error = response.error if isinstance(response.error, dict) else {}
            reason = error.get("message", "it gave no reason")
            question.error = ToolError(f"{question.method}: the client refused: {reason}")
        question.result = response.result if isinstance(response.result, dict) else {}
        question.answered.set()

    def _begin(self, call):
        problem = None
        with self._lock:
            if call.key in self._in_flight:
                problem = f"id {call.id!r} is in use: wait for its answer"
            elif len(self._in_flight) >= MAX_IN_FLIGHT:
                problem = f"{MAX_IN_FLIGHT:,} requests are open: wait for answers"
            else:
                self._in_flight[call.key] = call  # before it starts: a cancel may come
        if problem:
            error = RpcError(INVALID_REQUEST, problem)
            self._reply(call.id, call.batch, {"error": error.as_json()})
            return None
        outcome = attempt(self._on_request, call)
        if outcome is UNANSWERED:
            call.stage = OPEN
            return None
        if not callable(outcome):
            self.settle(call, outcome)
            return None
        job = partial(self._perform, call, outcome)
        if not call.serial:
            return job
        self._lane.add(job)
        return None

    # -- answering

    def _perform(self, call, work):
        """The job of a worker -> whether the call was abandoned meanwhile."""
        self._writer.catch_up()  # make no answers that nobody takes
        began = time.monotonic()
        call.stage = RUNNING
        if self._is_open(call):  # else it was cancelled in the queue
            if call.timeout:
                self.set_alarm(call, began + call.timeout, self._expire)
            reply = attempt(work)
            if os.getpid() != self._pid:
                os._exit(0)  # the handler has forked, and this is the child: not ours
            self.settle(call, reply)
            if Log.traced:
                took = (time.monotonic() - began) * 1000
                log("debug", f"{call.method} id={call.id!r} took {took:.1f} ms")
        with call.gate:
            abandoned = call.stage is ABANDONED
            call.stage = OVER
        self._stopped.discard(call)
        return abandoned

    def _reply(self, id, batch, body):
        line = None
        if body is not None:
            try:
                line = encode({"jsonrpc": "2.0", "id": id, **body})
            except Exception as error:  # circular, too deep: still exactly one answer
                failure = RpcError(INTERNAL_ERROR, f"Unsendable: {describe(error)}")
                line = encode({"jsonrpc": "2.0", "id": id, "error": failure.as_json()})
        if batch is not None:
            line = batch.close_entry(line)
        if line is not None:
            self._writer.write_line(line)

    # -- stopping

    def _stop(self, call, body=None):
        """No (other) answer for this call, and have its handler end."""
        if not self.settle(call, body):
            return
        self._stopped.add(call)
        call.cancel()
        if call.stage in (WAITING, OPEN, OVER):  # skipped when its turn comes, or just done
            self._stopped.discard(call)
        else:
            self.set_alarm(call, time.monotonic() + GRACE, self._press)

    def _expire(self, call, now):
        self._stop(call, attempt(call.late))

    def _press(self, call, now):
        """Interrupt a stopped call again and again; in the end give it up."""
        if call.interrupts < INTERRUPTS and call.stage is RUNNING:
            call.interrupt()
            return now + 5 * GRACE  # time to clean up
        with call.gate:
            if call.stage is not RUNNING:
                return None
            call.stage = ABANDONED
        log("error", f"{call.method} {call.params.get('name', '')} id={call.id!r} is stuck in "
            "a C call and cannot be stopped: abandoned.  ctx.sleep and ctx.run can be.")
        if call.serial:
            self._lane.start_thread()
        else:
            self._crew.give_up()
        return None

    def _check_alarms(self, now):
        """Let every alarm go off whose time has come -> the time of the next one."""
        due = FOREVER
        for call in list(self._in_flight.values()) + list(self._stopped):
            for alarm in call.alarms:
                if alarm[0] <= now:
                    try:
                        alarm[0] = alarm[1](call, now) or FOREVER
                    except Exception:  # without the foreman nothing would go on
                        log_traceback("an alarm failed")
                        alarm[0] = FOREVER
                due = min(due, alarm[0])
        return due

# ==================================================================================
# Part II.  JSON.  Pure functions, none of which knows of a protocol.
# ==================================================================================

# ----------------------------------------------------------------------------------
# 8. Values: Python -> JSON
# ----------------------------------------------------------------------------------

def as_base64(data):
    """b"hi" -> "aGk="; text is taken to be base64 already."""
    if isinstance(data, str) and re.match(r"[\w+/=\s]*$", data[:100]):
        return data
    if isinstance(data, str):
        raise ValueError(f"expected bytes or base64, got {data[:100]!r}; for a file, pass "
                         "pathlib.Path(...).read_bytes()")
    from binascii import b2a_base64
    return b2a_base64(bytes(data), newline=False).decode()

def compact(**fields):
    """The fields that were given: compact(a=1, b=None) -> {"a": 1}."""
    return {name: value for name, value in fields.items() if value is not None}

def as_choice(member):
    """Color.RED -> "red"; its name, if some value of its Enum is not plain JSON."""
    plain = all(isinstance(each.value, (str, int, float)) for each in type(member))
    return member.value if plain else member.name

SIMPLER = {  # what an object has that gives its family away -> one step nearer to JSON
    "__dataclass_fields__": lambda value: {  # who has made one has imported dataclasses
        field.name: getattr(value, field.name)
        for field in sys.modules["dataclasses"].fields(value)},
    "model_dump": lambda value: value.model_dump(mode="json"),  # pydantic
    "_value_": as_choice,  # a member of an Enum
    "isoformat": lambda value: value.isoformat(),  # a datetime, date or time
    "total_seconds": lambda value: value.total_seconds(),  # a timedelta
    "tolist": lambda value: value.tolist(),  # numpy's arrays and scalars
    "__fspath__": os.fspath,
    "__next__": list,  # a generator
}

def plain(value):
    """Any value that can stand for JSON -> the JSON value; NaN becomes null.

    {"when": date(2026, 1, 2), "tags": {"a"}} -> {"when": "2026-01-02", "tags": ["a"]}
    """
    kind = type(value)
    if kind in (str, int, bool) or value is None:
        return value
    if kind is float:
        return value if abs(value) < FOREVER else None  # NaN is not less, either
    if isinstance(value, dict):
        keys = (key if isinstance(key, str) else plain(key) for key in value)
        return {key if isinstance(key, str) else json.dumps(key): plain(item)
                for key, item in zip(keys, value.values())}
    if hasattr(value, "_asdict"):  # a NamedTuple
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=json.dumps)
    if isinstance(value, (bytes, bytearray)):
        return as_base64(value)
    for mark in SIMPLER:
        if hasattr(value, mark):
            return plain(SIMPLER[mark](value))
    for base in (str, int, float):  # their subclasses
        if isinstance(value, base):
            return plain(base(value))
    if kind.__module__ in ("decimal", "uuid", "fractions"):
        return str(value)
    advice = "await it" if hasattr(value, "__await__") else (
        "return text, a number, a list, a dict, a dataclass, or a content block such as "
        "image(...)")
    raise TypeError(f"a value of type {kind.__name__} cannot be sent as JSON: {advice}")

# ----------------------------------------------------------------------------------
# 9. Validation: value, schema -> problems
#
# prepare(schema) turns a schema into a function, once; calling it is cheap.  The
# language itself is the table KEYWORDS: for each keyword the classes of value it
# speaks about (all others pass), the form of its argument, and its meaning,
#
#     keyword(rule, value, at, out, seen, parts)
#
#     rule   the argument, made ready: a subschema is now check(value, at, out, seen)
#     at     the value's place: (("arguments", "tags"), 2) is arguments.tags[2]
#     out    takes each problem, as (at, what was expected, the value)
#     seen   the names or indexes of children that some keyword has looked at, or
#            None where no unevaluatedItems or unevaluatedProperties will ask
#     parts  the rules of the keywords beside this one
# ----------------------------------------------------------------------------------

DIALECTS = ("https://json-schema.org/draft/2020-12/schema",
            "http://json-schema.org/draft-07/schema")
MAX_PROBLEMS = 20  # in one answer: enough to mend a call by
MAX_MATCHED = 10_000  # characters given to a pattern: Python's re cannot be stopped
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean",
         list: "array", dict: "object", type(None): "null"}

class SchemaError(ValueError):
    """The schema cannot be used.  Says where in it, why, and what to do."""

class Nullable(dict):
    """A schema that null fits too, which is known to us alone: see section 10."""

class Enough(Exception):
    """Ends a walk early: its verdict is known, or would cost too much."""

class Problems(list):
    """A list that raises Enough when it is full."""

    limit = MAX_PROBLEMS + 1

    def append(self, problem):
        list.append(self, problem)
        if len(self) >= self.limit:
            raise Enough("... and more")

def json_type(value):
    """5 -> "integer", 5.0 -> "integer", 5.5 -> "number", True -> "boolean"."""
    kind = JSON_TYPES.get(type(value)) or next(
        (JSON_TYPES[base] for base in type(value).__mro__ if base in JSON_TYPES), "nothing")
    return "integer" if kind == "number" and value.is_integer() else kind

QUOTER = json.JSONEncoder(ensure_ascii=False, default=str)

def quote(value):
    """The value as JSON, cut short; a lone surrogate becomes an escape."""
    if isinstance(value, str):
        value = value if len(value) <= 60 else value[:57] + "..."
    elif isinstance(value, int) and value.bit_length() > 200:  # str() may refuse it
        return f"<{value.bit_length()} bits>"
    text = QUOTER.encode(value)[:120]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()

def counted(number, noun):
    """1 item, 3 items"""
    return f"{number} {noun}{'s' * (number != 1)}"

def show(value):
    """A few words for any value: string "ten", integer 5, null, array of 3 items."""
    kind = json_type(value)
    if kind in ("array", "object"):
        return f"{kind} of {counted(len(value), 'item' if kind == 'array' else 'key')}"
    return kind if kind in ("null", "nothing") else f"{kind} {quote(value)}"

def where(at):
    """(("arguments", "tags"), 2) -> arguments.tags[2]; (("#", "a"), 2) -> #/a/2."""
    steps = []
    while isinstance(at, tuple):
        at, step = at
        steps.append(step)
    pointer, path = at == "#", at  # a place in a schema is shown as a JSON pointer
    for step in reversed(steps):
        if pointer:
            path += "/" + str(step).replace("~", "~0").replace("/", "~1")
        else:
            path += f".{step}" if str(step).isidentifier() else f"[{quote(step)}]"
    return path if len(path) <= 200 else f"{path[:98]}....{path[-98:]}"

def say(at, expected, value):
    """("limit", "number", "ten") -> limit: expected number, got string "ten".

    Where there is nothing to expect, value is a function that finds the words."""
    text = value() if expected is None else f"expected {expected}, got {show(value)}"
    return f"{where(at)}: {text}"

def either(texts):
    """["string", "null"] -> string or null; a long list is cut."""
    texts = list(dict.fromkeys(texts)) or ["nothing"]
    return " or ".join(texts[:8] + ["..."] * (len(texts) > 8))[:400]

def identity(value):
    """A hashable stand-in: identity(a) == identity(b) exactly when a and b are equal in JSON."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", *map(identity, value))
    if isinstance(value, dict):
        return frozenset((name, identity(item)) for name, item in value.items())
    if isinstance(value, (int, float)) and value % 1 == 0:
        return ("integer", hex(int(value)))  # text: a hash of a number can be foreseen
    return value

def exact(number):
    """0.1 -> Fraction(1, 10): the decimal number as it was written."""
    if isinstance(number, int) or not abs(number) < FOREVER:
        return number
    from fractions import Fraction
    return Fraction(repr(number))

# Patterns are ECMA-262.  With re.ASCII, Python agrees about \d, \w and \b, not these:
SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
NOT_SPACE = (r"\0-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e"
             r"\u2030-\u205e\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff")
OUTSIDE = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]", "(?<": "(?P<",
           r"\s": f"[{SPACE}]", r"\S": f"[{NOT_SPACE}]"}
IN_CLASS = {"[": r"\[", "&": r"\&", "|": r"\|", "~": r"\~",
            r"\s": SPACE, r"\S": NOT_SPACE}
REFUSED = {r"\a", r"\A", r"\N", r"\U", r"\z", r"\Z", r"\p", r"\P", "[]", "[^]"}
TOKEN = r"(?s)\\.|\[\^?\]|\(\?<(?![=!])|."
ATOM = r"(?s)\\(?:u\w{4}|x\w\w|.)|\[(?:\\.|[^]\\])*\]"  # as \d or [a-z]
ENDLESS = r"\((\?:|\?<\w+>)?[^()]([*+]|\{\d+,\d*\})\??\)([*+]|\{\d+,)"  # as (a+)+

def regex(pattern):
    """A function that tells whether an ECMA-262 pattern occurs in a text."""
    python, in_class = "", False
    for token in re.findall(TOKEN, pattern):
        if token in REFUSED:
            raise ValueError(f"in {quote(pattern)}, {token} is not supported")
        python += (IN_CLASS if in_class else OUTSIDE).get(token, token)
        in_class = token == "[" or in_class and token != "]"
    try:
        search = re.compile(python, re.ASCII).search
    except (re.error, OverflowError) as error:
        raise ValueError(f"{quote(pattern)} is no pattern: {error}") from None
    if re.search(ENDLESS, re.sub(ATOM, "a", pattern)):
        raise ValueError(f"in {quote(pattern)}, a repeated group holds but one repeated "
                         "item, which can take for ever: write a+, not (a+)+")

    def occurs(text):
        if len(text) > MAX_MATCHED:
            raise Enough(f"expected {MAX_MATCHED} characters or less for {occurs.text}")
        return search(text) is not None
    occurs.text = quote(pattern)
    return occurs

def always(value, at, out, seen):
    """The schema true."""

def never(value, at, out, seen):
    """The schema false."""
    out.append((at, "nothing", value))

def misfit(check, value, at, seen=None):
    """The first problem that check finds, or None if the value fits."""
    first, mine = Problems(), None if seen is None else set()
    first.limit = 1
    try:
        check(value, at, first, mine)
    except Enough:
        if not first:  # no verdict, but a refusal to go on
            raise
        return first[0]
    if mine:  # subtle: a schema that does not fit has evaluated nothing
        seen.update(mine)
    return None

def wish(problem, at):
    """What would have been no problem at that place, in words."""
    place, expected, value = problem
    return (expected or f"no {value()}") + (f" at {where(place)}" if place != at else "")

def unknown(name, known):
    """unknown property "limt" (did you mean "limit"?); valid: limit, query"""
    from difflib import get_close_matches
    valid = [n for n, check in known.items() if check is not never]
    near = get_close_matches(name[:60], valid, 1)
    hint = f" (did you mean {quote(near[0])}?)" if near else ""
    names = ", ".join(valid)[:400] or "none"
    return f"unknown property {quote(name)}{hint}; valid: {names}"

# Two makers of keywords, then the keywords that need a function of their own.

def holds(expected, fits):
    """The function of a keyword about the value alone: fits(value, rule)."""
    def keyword(rule, value, at, out, seen, parts):
        if not fits(value, rule):
            text = getattr(rule, "text", None) or quote(rule)
            out.append((at, expected.format(text), value))
    return keyword

def children(choose):
    """The function of a keyword about children: choose(value, rule, parts, seen) picks them,
    as (name or index, check) pairs."""
    def keyword(rule, value, at, out, seen, parts):
        for step, check in choose(value, rule, parts, seen):
            if check is never and isinstance(step, str):
                out.append((at, None, partial(unknown, step, parts.get("properties", {}))))
            else:
                check(value[step], (at, step), out, None)
            if seen is not None:
                seen.add(step)
    return keyword

def type_(rule, value, at, out, seen, parts):
    fits, text = rule
    if json_type(value) not in fits:
        out.append((at, text, value))

def enum(rule, value, at, out, seen, parts):
    fits, text = rule
    if identity(value) not in fits:
        out.append((at, text, value))

def allOf(rule, value, at, out, seen, parts):
    for check in rule:
        check(value, at, out, seen)

def anyOf(rule, value, at, out, seen, parts, most=FOREVER):
    misses = []
    for check in rule:
        misses.append(misfit(check, value, at, seen))
        if not misses[-1] and most > 1 and seen is None:
            return  # the others cannot change the verdict, nor add to seen
    if None not in misses:
        out.append((at, either(wish(problem, at) for problem in misses), value))
    elif misses.count(None) > most:
        out.append((at, f"exactly one of {len(rule)} schemas to fit", value))

def if_(rule, value, at, out, seen, parts):
    branch = "else" if misfit(rule, value, at, seen) else "then"
    parts.get(branch, always)(value, at, out, seen)

def contains(rule, value, at, out, seen, parts):
    hits = [i for i, item in enumerate(value) if not misfit(rule, item, at)]
    least, most = parts.get("minContains", 1), parts.get("maxContains", FOREVER)
    if not least <= len(hits) <= most:
        out.append((at, f"{quote(least)} to {quote(most)} items that fit 'contains'", value))
    if seen is not None:
        seen.update(hits)

def required(rule, value, at, out, seen, parts):
    for name in rule:
        if name not in value:
            check = parts.get("properties", {}).get(name, always)
            problem = misfit(check, ..., (at, name))  # ... is of no JSON type
            needs = wish(problem, (at, name)) if problem else "a value"
            out.append(((at, name), f"{needs} (required)", ...))

def dependentRequired(rule, value, at, out, seen, parts):
    needs = [need for name in rule if name in value for need in rule[name]]
    required(needs, value, at, out, seen, parts)

def dependentSchemas(rule, value, at, out, seen, parts):
    allOf([rule[name] for name in rule if name in value], value, at, out, seen, parts)

def propertyNames(rule, value, at, out, seen, parts):
    for name in value:
        problem = misfit(rule, name, at)
        if problem:
            out.append((at, f"property names to be {wish(problem, at)}", name))

def additionalProperties(value, rule, parts, seen):
    """For children(): the properties that the two keywords beside it leave over."""
    known, patterns = parts.get("properties", ()), parts.get("patternProperties", ())
    rest = [name for name in value if name not in known]
    return rest and [(name, rule) for name in rest if not any(p(name) for p in patterns)]

# What makes an argument ready, where its form does not say all.  Raises ValueError.

def types(names):
    """"number" -> ({"number", "integer"}, "number"): what fits, and as text."""
    names = [names] if isinstance(names, str) else names
    if any(name not in JSON_TYPES.values() for name in names):
        raise ValueError(f"expected types among {', '.join(JSON_TYPES.values())}")
    return {*names, *["integer"] * ("number" in names)}, either(names)

def choices(options):
    """["asc", 1] -> ({identity("asc"), identity(1)}, '"asc" or 1'): what fits, and as text."""
    return set(map(identity, options)), either(map(quote, options))

def must(expected, fits):
    """Makes a readier that leaves the argument as it is, if it fits."""
    def ready(rule):
        if not fits(rule):
            raise ValueError(f"expected {expected}")
        return rule
    return ready

def strings(names):
    return isinstance(names, list) and all(isinstance(name, str) for name in names)

INT, NUM, REF, ONE, MANY, NAMED = "integer", "number", "ref", "schema", "schemas", "named"
ARGUMENTS = {NUM: "integer or number", REF: "string", ONE: "object or boolean",
             MANY: "array", NAMED: "object", "any": " or ".join(JSON_TYPES.values())}
NUMBER, TEXT, ARRAY, OBJECT = (int, float), (str,), (list,), (dict,)
ANY = (*JSON_TYPES, type(...), object)  # ... stands for nothing, object for what is no JSON
KEYWORDS = {  # name: (classes of value, form of argument, function[, what readies it])
    "$ref": (ANY, REF, allOf),
    "$dynamicRef": (ANY, REF, allOf),
    "type": (ANY, "string or array", type_, types),
    "enum": (ANY, "array", enum, choices),
    "const": (ANY, "any", enum, lambda constant: choices([constant])),
    "allOf": (ANY, MANY, allOf),
    "anyOf": (ANY, MANY, anyOf),
    "oneOf": (ANY, MANY, partial(anyOf, most=1)),
    "not": (ANY, ONE, holds("a value that does not fit 'not'", lambda v, check: (
        misfit(check, v, "")))),
    "if": (ANY, ONE, if_),
    "multipleOf": (NUMBER, NUM, holds("a multiple of {}", lambda v, n: (
        exact(v) % exact(n) == 0)), must("a number above 0", lambda n: n > 0)),
    "minimum": (NUMBER, NUM, holds("at least {}", lambda v, n: v >= n)),
    "maximum": (NUMBER, NUM, holds("at most {}", lambda v, n: v <= n)),
    "exclusiveMinimum": (NUMBER, NUM, holds("more than {}", lambda v, n: v > n)),
    "exclusiveMaximum": (NUMBER, NUM, holds("less than {}", lambda v, n: v < n)),
    "minLength": (TEXT, INT, holds("at least {} characters", lambda v, n: len(v) >= n)),
    "maxLength": (TEXT, INT, holds("at most {} characters", lambda v, n: len(v) <= n)),
    "pattern": (TEXT, "string", holds("a match of {}", lambda v, p: p(v)), regex),
    "minItems": (ARRAY, INT, holds("at least {} items", lambda v, n: len(v) >= n)),
    "maxItems": (ARRAY, INT, holds("at most {} items", lambda v, n: len(v) <= n)),
    "uniqueItems": (ARRAY, "boolean", holds("no two equal items", lambda v, on: (
        not on or len(set(map(identity, v))) == len(v)))),
    "prefixItems": (ARRAY, MANY, children(lambda v, rule, parts, seen: (
        zip(range(len(v)), rule)))),
    "items": (ARRAY, ONE, children(lambda v, rule, parts, seen: (
        (i, rule) for i in range(len(parts.get("prefixItems", ())), len(v))))),
    "contains": (ARRAY, ONE, contains),
    "minProperties": (OBJECT, INT, holds("at least {} keys", lambda v, n: len(v) >= n)),
    "maxProperties": (OBJECT, INT, holds("at most {} keys", lambda v, n: len(v) <= n)),
    "properties": (OBJECT, NAMED, children(lambda v, rule, parts, seen: (
        [(name, rule[name]) for name in v if name in rule]))),
    "patternProperties": (OBJECT, NAMED, children(lambda v, rule, parts, seen: (
        (name, rule[occurs]) for name in v for occurs in rule if occurs(name))),
        lambda rule: {regex(pattern): check for pattern, check in rule.items()}),
    "additionalProperties": (OBJECT, ONE, children(additionalProperties)),
    "propertyNames": (OBJECT, ONE, propertyNames),
    "required": (OBJECT, "array", required, must("strings in a list", strings)),
    "dependentRequired": (OBJECT, "object", dependentRequired, must(
        "strings in lists", lambda rule: all(map(strings, rule.values())))),
    "dependentSchemas": (OBJECT, NAMED, dependentSchemas),
    "unevaluatedItems": (ARRAY, ONE, children(lambda v, rule, parts, seen: (
        (i, rule) for i in range(len(v)) if i not in seen))),
    "unevaluatedProperties": (OBJECT, ONE, children(lambda v, rule, parts, seen: (
        (name, rule) for name in v if name not in seen))),
    # These have no meaning of their own; others ask for them.
    **dict.fromkeys(["then", "else"], ((), ONE, None)),
    **dict.fromkeys(["$defs", "definitions"], ((), NAMED, None)),
    **dict.fromkeys(["minContains", "maxContains"], ((), INT, None)),
    **dict.fromkeys(["$id", "$anchor", "$dynamicAnchor"], ((), "string", None)),
    "$schema": ((), "string", None, must(
        f"the dialect {' or '.join(DIALECTS)}", lambda uri: uri.rstrip("#") in DIALECTS)),
}

def respelled(schema):
    """The schema with draft-07's list form of items, and dependencies, respelled."""
    new = dict(schema)
    if isinstance(schema.get("items"), list):
        new.update(prefixItems=schema["items"], items=schema.get("additionalItems", True))
    needs = schema.get("dependencies")
    for name in needs if isinstance(needs, dict) else ():
        what = "dependentRequired" if isinstance(needs[name], list) else "dependentSchemas"
        new[what] = {**new.get(what, {}), name: needs[name]}
    return new

def absolute(base, ref):
    """absolute("http://a/b", "c#d") -> "http://a/c#d"; there is always one #."""
    from urllib.parse import urljoin
    uri, _, fragment = ref.partition("#")
    try:
        return f"{urljoin(base, uri) if uri else base}#{fragment}"
    except ValueError as error:
        raise SchemaError(f"{quote(ref)} is no URI: {error}") from None

def walk(todo, parts, asks):
    """A check that asks the keywords in todo[class of the value], once it is filled."""
    def check(value, at, out, seen):
        steps = todo.get(type(value))
        if steps is None:  # a subclass
            steps = todo[next(c for c in type(value).__mro__ if c in todo)]
        mine = set() if asks else seen
        for keyword, rule in steps:
            keyword(rule, value, at, out, mine, parts)
        if asks and seen is not None:
            seen.update(mine)
    return check

class Compiler:
    """Turns one schema, with references to and fro inside it, into a check."""

    def __init__(self, schema):
        self.places = {"#": schema}  # URI#anchor -> subschema
        self.dynamic = set()  # those of the places that a $dynamicAnchor names
        self.bases = {}  # id(subschema) -> the URI that its references start from
        self.made = {}  # (id(subschema), scope) -> check
        self.links = []  # references yet to be followed: arguments of follow()

    def compile(self, schema, at, base, scope):
        """The check for schema.  scope: the URIs on the way to it, for $dynamicRef."""
        if isinstance(schema, bool):
            return always if schema else never
        if not isinstance(schema, dict):
            raise SchemaError(say(at, "a schema (an object, true or false)", schema))
        if isinstance(schema.get("$id"), str):
            uri = absolute(base, schema["$id"])
            self.places[uri], base = schema, uri.partition("#")[0]
        for word in {"$anchor", "$dynamicAnchor"} & schema.keys():
            place = f"{base}#{schema[word]}"
            self.places[place] = schema
            self.dynamic.update([place] if word == "$dynamicAnchor" else [])
        self.bases[id(schema)] = base
        scope = scope if base in scope else (*scope, base)
        name = (id(schema), scope)
        if name not in self.made:
            asks = any(word.startswith("unevaluated") for word in schema)
            todo, parts, words = {}, {}, respelled(schema)
            self.made[name] = walk(todo, parts, asks)  # now: a subschema may refer to it
            for word in [word for word in KEYWORDS if word in words]:
                parts[word] = self.ready(word, words[word], (at, word), base, scope)
            for cls in ANY:  # of most classes it is known here that their type fits
                todo[cls] = [(KEYWORDS[word][2], rule) for word, rule in parts.items()
                             if cls in KEYWORDS[word][0] and not (
                                 word == "type" and JSON_TYPES.get(cls) in rule[0])]
            if isinstance(schema, Nullable):
                todo[type(None)] = []
        return self.made[name]

    def ready(self, word, rule, at, base, scope):
        """A keyword's argument, with checks where it has subschemas or a reference."""
        _, form, _, *finish = KEYWORDS[word]
        kinds = ARGUMENTS.get(form, form)
        if json_type(rule) not in kinds.split(" or "):
            raise SchemaError(say(at, kinds, rule))
        if form == REF:
            self.links.append(([], rule, at, base, scope))
            return self.links[-1][0]  # follow() puts the check into it
        if form == ONE:
            return self.compile(rule, at, base, scope)
        if form == MANY:
            return [self.compile(sub, (at, i), base, scope) for i, sub in enumerate(rule)]
        if form == NAMED:
            rule = {name: self.compile(sub, (at, name), base, scope)
                    for name, sub in rule.items()}
        try:
            return finish[0](rule) if finish else rule
        except ValueError as error:
            raise SchemaError(f"{where(at)}: {error}, got {show(rule)}") from None

    def follow(self, checks, ref, at, base, scope):
        """Put into checks the one for the subschema that ref means."""
        from urllib.parse import unquote
        base, _, fragment = absolute(base, ref).partition("#")
        anchor, *steps = unquote(fragment).split("/")
        uris = [base]
        if at[1] == "$dynamicRef" and f"{base}#{anchor}" in self.dynamic:
            uris = [uri for uri in scope if f"{uri}#{anchor}" in self.dynamic] + uris
        try:
            schema = self.places[f"{uris[0]}#{anchor}"]  # the outermost one
            for step in steps:
                base = self.bases.get(id(schema), base)
                step = step.replace("~1", "/").replace("~0", "~")
                schema = schema[int(step) if isinstance(schema, list) else step]
        except (LookupError, TypeError, ValueError):
            raise SchemaError(f"{where(at)}: {quote(ref)} is not in this schema and is "
                              "never fetched; copy what it means into $defs") from None
        checks.append(self.compile(schema, at, self.bases.get(id(schema), base), scope))

def prepare(schema):
    """A function check(value, path) -> problems, for later.  Raises SchemaError."""
    compiler = Compiler(schema)
    try:
        root = compiler.compile(schema, "#", "", ())
        while compiler.links:
            compiler.follow(*compiler.links.pop())
        for check in compiler.made.values():
            misfit(check, ..., "#")  # a $ref that leads back to itself shows here
    except RecursionError:
        raise SchemaError("#: nests too deeply, or refers to itself for ever") from None

    def check(value, path="value"):
        out, last = Problems(), []
        try:
            root(value, path, out, None)
        except Enough as stop:
            last = [f"{where(path)}: {stop}"]
        except RecursionError:
            last = [f"{where(path)}: expected less depth, got a value nested too deeply"]
        if not out:
            return last
        del out[MAX_PROBLEMS:]
        return [say(*problem) for problem in out] + last
    return check

def validate(value: Any, schema: Any, path: str = "value") -> list[str]:
    """All problems: validate(5, {"type": "string"}, "name") gives
    ["name: expected string, got integer 5"].  Raises SchemaError."""
    return prepare(schema)(value, path)

# ----------------------------------------------------------------------------------
# 10. Hints: type -> schema, JSON -> Python
#
# A hint says what JSON a client may send, and which Python value the function wants.
# So every hint becomes a plan (schema, load); load is None where the JSON value is
# passed on as it is, and otherwise gets values that fit the schema, and their place:
#
#     plan_of(date)              -> ({"type": "string", "format": "date"}, load)
#     load("2026-05-01", "when") -> date(2026, 5, 1)
#     load("soon", "when")       -> ValueError: when: expected date, got string "soon"
#
# Clients drop tools whose schemas they do not understand, so these have no $ref and no
# null: what may be None is not required.  A null that comes is good all the same, since
# its schema is a Nullable: for clients, a dict like any other.
# To add a type: a row in LEAVES, or, if it has parts, a function and a row in FORMS.
# ----------------------------------------------------------------------------------

MISSING = object()  # no default
OPTIONAL = object()  # no default that could be shown, yet it may be left out

class HintError(TypeError):
    """A hint that no portable schema expresses; says what to write instead."""

def construct(cls, value):
    return cls(value)  # int(2.0) too: for JSON, 2.0 is an integer

def from_iso(cls, value):
    value = re.sub("[zZ]$", "+00:00", value)  # 3.10 knows neither Z nor .5
    return cls.fromisoformat(re.sub(r"\.(\d{1,6})\d*", lambda m: f".{m[1]:0<6}", value))

def from_base64(cls, value):
    from base64 import b64decode
    return b64decode(value, validate=True)

JSON_CLASSES = (str, int, float, bool)  # Python's types that are JSON's as well
STRING = {"type": "string"}
LEAVES = {  # a type without parts -> (schema, load(type, value))
    "typing.Any": ({}, None),
    "builtins.object": ({}, None),
    "builtins.str": (STRING, None),
    "builtins.bool": ({"type": "boolean"}, None),
    "builtins.int": ({"type": "integer"}, construct),
    "builtins.float": ({"type": "number"}, construct),
    "builtins.bytes": ({**STRING, "contentEncoding": "base64"}, from_base64),
    "datetime.datetime": ({**STRING, "format": "date-time"}, from_iso),
    "datetime.date": ({**STRING, "format": "date"}, from_iso),
    "datetime.time": ({**STRING, "format": "time"}, from_iso),
    "datetime.timedelta": ({"type": "number", "title": "seconds"},
                           lambda cls, value: cls(seconds=value)),
    "pathlib.Path": (STRING, construct),
    "uuid.UUID": ({**STRING, "format": "uuid"}, construct),
    "decimal.Decimal": ({"anyOf": [{"type": "number"}, STRING]},
                        lambda cls, value: cls(str(value))),
}

@lru_cache(maxsize=None)  # all parameters of one type share it
def leaf_load(cls, word):
    """The load of a type that LEAVES has under this word."""
    schema, load = LEAVES[word]
    def convert(value, at):
        try:
            return load(cls, value)
        except (ValueError, TypeError, ArithmeticError):
            what = schema.get("format") or schema.get("contentEncoding") or cls.__name__
            raise ValueError(say(at, what, value)) from None
    return convert if load else None

def load_each(parts, load_of, at):
    """{step: loaded value}; one ValueError lists all problems."""
    loaded, problems = {}, []
    for step, value in parts:
        load = load_of(step)
        try:
            loaded[step] = load(value, (at, step)) if load else value
        except ValueError as error:
            problems.append(str(error))
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise ValueError("\n".join(problems))
    return loaded

def checked(schema, load):
    """A load that validates by itself, for where the schema around it is wider."""
    check = prepare(schema)
    def convert(value, at):
        problems = check(value, at)
        if problems:
            raise ValueError("\n".join(problems))
        return load(value, at) if load else value
    return convert

def nullable(schema, load):
    """The plan of what may be null, too."""
    return Nullable(schema), load and (
        lambda value, at: None if value is None else load(value, at))

# Types with parts: a function of the hint, what its brackets hold, and plan(part).

def element(schema, load):
    """The plan of an item: one that may be null is {}, and checks itself."""
    return ({}, checked(schema, load)) if isinstance(schema, Nullable) else (schema, load)

def union_plan(hint, args, plan):
    """int | str -> anyOf; the first branch that fits gets the value."""
    if type(None) in args:
        rest = [arg for arg in args if arg is not type(None)]
        return nullable(*union_plan(hint, rest, plan))
    if len(args) == 1:
        return plan(args[0])
    plans = [plan(arg) for arg in args]
    plans.sort(key=lambda branch: branch[0].get("type") == "number")  # 1 is an int first
    loads = [checked(*branch) for branch in plans]
    def load(value, at):
        refusals = []
        for branch in loads:
            try:
                return branch(value, at)
            except ValueError as error:
                refusals.append(str(error).replace("\n", "; "))
        raise ValueError(", or ".join(refusals))
    schemas, needed = zip(*plans)
    return {"anyOf": list(schemas)}, load if any(needed) else None

def choice_plan(choices):
    """[("red", Color.RED), ...]: what comes in, and what it stands for."""
    values = [value for value, _ in choices if value is not None]
    if not choices:
        raise HintError("there is nothing to choose from; write Literal[...] with values, or "
                        "an Enum with members")
    kinds = {json_type(value) for value in values}
    schema = {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}
    schema = schema if values else {"type": "null"}  # Literal[None]
    meanings = {identity(value): meaning for value, meaning in choices}
    return (schema if len(values) == len(choices) else Nullable(schema),
            lambda value, at: meanings[identity(value)])

def array_plan(build, hint, args, plan):
    """list[T], set[T] and tuple[T, ...]; build is one of list, set, frozenset, tuple."""
    if len(args) > 1:
        raise HintError(f"{hint}: write list[Union[...]] for items of several types")
    if build in (set, frozenset) and any(
            getattr(arg, "__origin__", arg).__hash__ is None for arg in args):
        raise HintError(f"{hint}: such items cannot be in a set; write list[...]")
    items, load = element(*plan(args[0] if args else object))
    def convert(value, at):
        try:
            return build(load_each(enumerate(value), lambda i: load, at).values())
        except TypeError:  # a set of lists
            raise ValueError(say(at, f"items for a {build.__name__}", value)) from None
    unique = {"uniqueItems": True} if build in (set, frozenset) else {}
    return ({"type": "array", "items": items, **unique},
            None if load is None and build is list else convert)

def tuple_plan(hint, args, plan):
    """tuple[int, str]: clients know no prefixItems, so load checks each place."""
    if not args or args[-1] is ...:
        return array_plan(tuple, hint, args[:1], plan)
    plans = [plan(arg) for arg in args]
    kinds = [element(*part)[0] for part in plans]
    kinds = [kind for i, kind in enumerate(kinds) if kind not in kinds[:i]]
    items = {} if {} in kinds else kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    loads = [checked(*part) for part in plans]
    def load(value, at):
        return tuple(load_each(enumerate(value), loads.__getitem__, at).values())
    return {"type": "array", "items": items,
            "minItems": len(args), "maxItems": len(args)}, load

def dict_plan(hint, args, plan):
    if args and plan(args[0]) not in ((STRING, None), ({}, None)):
        raise HintError(f"{hint}: JSON's keys are strings; write dict[str, ...]")
    schema, load = element(*plan(args[1] if args else object))
    return ({"type": "object", "properties": {}, "required": [],
             "additionalProperties": schema or True},
            load and (lambda value, at: load_each(value.items(), lambda name: load, at)))

LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum",
          "lt": "exclusiveMaximum", "multiple_of": "multipleOf", "pattern": "pattern",
          "min_length": "minLength", "max_length": "maxLength"}

def annotated_plan(hint, args, plan):
    """Annotated[int, "text", Ge(1)]: a note is a text, or has attributes of LIMITS."""
    schema, load = plan(hint.__origin__)
    kind = "bytes" if "contentEncoding" in schema else schema.get("type", "any")
    length = {"array": "Items", "object": "Properties"}.get(kind, "Length")
    limits = {}
    for note in hint.__metadata__:
        about = [getattr(note, name, None) for name in ("description", "documentation")]
        for said in (note, *about):
            if isinstance(said, str):
                schema["description"] = said
        parts = getattr(note, "metadata", None)  # pydantic's Field has parts
        for part in (note, *(parts if isinstance(parts, (list, tuple)) else ())):
            for attribute, keyword in LIMITS.items():
                limit = getattr(part, attribute, None)
                if limit is not None and not callable(limit):
                    keyword = keyword.replace("Length", length)
                    if kind not in map(JSON_TYPES.get, KEYWORDS[keyword][0]):
                        raise HintError(f"{attribute}={limit!r} has no JSON form for {kind}; "
                                        "write that check into the function")
                    limits[keyword] = limit
    schema.update(limits)
    prepare(limits)  # raises SchemaError
    return schema, load

def own_checks(at, make, /, *args, **kwargs):
    """What a class makes of values that fit, or a ValueError with its own complaint."""
    try:
        return make(*args, **kwargs)
    except Exception as error:
        raise ValueError(f"{where(at)}: {' '.join(str(error).split())}") from None

VALUES = {"default", "const", "enum", "examples"}  # keywords that hold no schemas

def portable(schema, definitions, parents=()):
    """A schema that somebody else made, without $ref and null; see the tests."""
    def inside(part):
        return portable(part, definitions, parents)
    if isinstance(schema, list):
        return [inside(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in parents:
        raise HintError(f"{name} contains itself; write dict or list for the inner one")
    if name:
        schema, parents = {**definitions[name], **schema}, (*parents, name)
    fields = schema.get("properties", {})
    result = {word: part if word in VALUES else inside(part) for word, part in schema.items()
              if word not in ("$ref", "$defs", "$schema", "discriminator", "properties")
              and (word, part) != ("default", None)}
    if "prefixItems" in result:  # a tuple, which its maker will check
        result["items"] = {"anyOf": result.pop("prefixItems")}
    if result.get("type") == "object":
        result["properties"] = {field: inside(part) for field, part in fields.items()}
        result.setdefault("additionalProperties", not fields)
        result["required"] = [field for field in result.get("required", ())
                              if "default" not in fields.get(field, ())]
    for word, null in (("anyOf", {"type": "null"}), ("enum", None)):
        rest = [part for part in result.get(word, ()) if part != null]
        if len(rest) < len(result.get(word, ())):
            del result[word]
            extra = rest[0] if word == "anyOf" and len(rest) == 1 else {word: rest}
            result = Nullable({**extra, **result})
    return result

def model_plan(hint, args, plan):
    """A class that brings its own schema and check, as pydantic's models do."""
    schema = hint.model_json_schema()
    schema = portable(schema, schema.get("$defs", {}))
    prepare(schema)  # raises SchemaError
    return schema, lambda value, at: own_checks(at, hint.model_validate, value)

# Hints as they are written

def word_of(hint):
    """list[int] -> "builtins.list", Optional[int] -> "typing.Union" """
    if type(hint) is type:  # most are; what a class lacks is costly to look for
        return f"{str(hint.__module__).partition('.')[0]}.{hint.__name__}"
    if hasattr(hint, "__metadata__"):
        return "typing.Annotated"  # its name is that of the hint inside
    thing = getattr(hint, "__origin__", hint)
    name = getattr(thing, "__name__", None) or getattr(thing, "_name", None)
    if not name:  # int | str itself has no name
        return "typing.Union" if type(hint).__name__ == "UnionType" else ""
    module = str(getattr(thing, "__module__", "")).partition(".")[0]
    return module.replace("typing_extensions", "typing") + "." + name

def parts_of(hint):
    """dict[str, int] -> (str, int)"""
    return () if type(hint) is type else getattr(hint, "__args__", ())

def without_bars(source):
    """"int | None" -> "__import__('typing').Union[int, None]", all that 3.9 knows."""
    import ast
    class Unions(ast.NodeTransformer):
        def visit_BinOp(self, node):
            if not isinstance(node.op, ast.BitOr):
                return node
            parts = ast.Tuple([self.visit(node.left), self.visit(node.right)], ast.Load())
            union = f"__import__('typing').Union[{ast.unparse(parts)}]"
            return ast.parse(union, mode="eval").body
    return ast.unparse(Unions().visit(ast.parse(source, mode="eval")))

@lru_cache(maxsize=1000)  # the same few hints are written again and again
def code_of(source):
    if sys.version_info < (3, 10) and "|" in source:
        source = without_bars(source)
    return compile(source.strip(), "a hint", "eval")

UNREADABLE = ("cannot be read ({}); define or import its names at the top of the module, "
              "not inside a function and not under TYPE_CHECKING")

def resolve(hint, scope):
    """"date", a forward reference or None -> the type it means, with names of `scope`."""
    if type(hint) is type:
        return hint
    source = getattr(hint, "__forward_arg__", hint)
    if not isinstance(source, str):
        return type(None) if hint is None else hint
    module = sys.modules.get(getattr(hint, "__forward_module__", None))
    scope = ChainMap(vars(module), scope or {}) if module else scope
    try:
        return resolve(eval(code_of(source), {}, scope), scope)
    except Exception as error:
        raise HintError(f"the hint {source!r} {UNREADABLE.format(describe(error))}") from None

def hints_of(thing):
    """The annotations of a function or class.  From 3.14 on they may hold names that
    nobody has defined: these stay forward references."""
    try:
        return getattr(thing, "__annotations__", {})
    except NameError:
        from inspect import get_annotations
        return get_annotations(thing, format=3)  # annotationlib.Format.FORWARDREF

DOC_LISTS = [  # Google, NumPy, reST: (the parameters in a docstring, one of them)
    (r"(?m)^(?:Args|Arguments|Parameters|Attributes):\s*\n((?: +.*\n|\n)+)",
     r"(?m)^\*{0,2}(\w+)(?: *\(.*?\)|[^:\n(]*) *:(.*(?:\n+ .*)*)"),
    (r"(?m)^(?:Parameters|Attributes)\n---+\n((?:(?!.+\n---).*\n)*)",
     r"(?m)^\*{0,2}(\w+(?:, \w+)*).*((?:\n+ .*)*)"),
    (r"(?m)^((?::(?:param|type) .*\n(?: +.*\n)*)+)",
     r"(?m)^:param (?:[^:\n]* )?(\w+):(.*(?:\n .*)*)"),
]

def read_doc(doc):
    r"""'Add.\n\nArgs:\n    a: the first' -> ('Add.', {'a': 'the first'})"""
    first, newline, rest = (doc or "").expandtabs().partition("\n")
    if not newline:
        return first.strip(), {}

    def dedent(lines):
        margin = min(map(len, re.findall(r"(?m)^ *(?=\S)", lines)), default=0)
        return re.sub(f"(?m)^ {{{margin}}}", "", lines)
    whole, about = f"{first.strip()}\n{dedent(rest)}\n", {}
    for section, entry in DOC_LISTS:
        for found in re.findall(section, whole):
            for names, words in re.findall(entry, dedent(found)):
                about.update(dict.fromkeys(names.split(", "), " ".join(words.split())))
        whole = re.sub(section, "", whole)
    return re.sub(r"\n\s*\n", "\n\n", whole).strip(), about

# Records: a dataclass, a TypedDict, a NamedTuple and the parameters of a function are
# all rows (name, hint, default).

def record_rows(cls, scope):
    """Point -> [("x", int, MISSING), ("y", int, 0)]"""
    if hasattr(cls, "__dataclass_fields__"):
        none = sys.modules["dataclasses"].MISSING
        return [(field.name, field.type, field.default if field.default is not none else
                 MISSING if field.default_factory is none else OPTIONAL)
                for field in cls.__dataclass_fields__.values()  # with InitVars: no JSON form
                if field.init and field._field_type.name != "_FIELD_CLASSVAR"]
    hints = {name: hint for base in reversed(cls.__mro__)
             for name, hint in hints_of(base).items()}
    if hasattr(cls, "_fields"):
        return [(name, hints.get(name, object), cls._field_defaults.get(name, MISSING))
                for name in cls._fields]
    marked = {"typing.Required": MISSING, "typing.NotRequired": OPTIONAL}
    return [(name, hint, marked.get(word_of(resolve(hint, scope)), MISSING
                                    if name in cls.__required_keys__ else OPTIONAL))
            for name, hint in hints.items()]

def as_default(value):
    """A default as it stands in the schema: Color.RED -> "red"."""
    try:
        shown = json.loads(json.dumps(plain(value)))
    except (TypeError, ValueError):
        shown = None
    if shown is None:  # NaN, too
        raise HintError(f"the default {quote(value)} is not JSON; use None and set it "
                        "inside the function")
    return shown

NO_HINT = {"ctx": "ctx: Context", "context": "context: Context",
           "self": "register(object.method), with an object made first",
           "cls": "register(Class.method), after the class"}

def plan_field(name, hint, default, plan):
    """The plan of a field or a parameter, with its default.  Raises HintError."""
    if hint is MISSING:
        raise HintError("it has no type hint; write " + NO_HINT.get(
            name, f"{name}: str (or int, float, bool, list[str], ...)"))
    schema, load = plan(hint)
    if default is None:
        return nullable(schema, load)
    if default is not MISSING and default is not OPTIONAL:
        schema["default"] = as_default(default)
        if type(default) is not hint:  # else it surely fits
            problems = prepare(schema)(schema["default"], "its default")
            if problems:
                raise HintError(problems[0])
    return schema, load

def plan_fields(kind, rows, about, plan, strict=True):
    """The plan of an object with these fields; load gives them in a dict.

    If not strict, a field that has no plan is passed on as it comes."""
    fields, required, loads, absent = {}, [], {}, {}  # absent: None if they are left out
    for name, hint, default in rows:
        try:
            schema, load = plan_field(name, hint, default, plan)
        except HintError as error:
            if strict:
                raise HintError(f"{kind} {name!r}: {error}") from None
            schema, load = {}, None
        if load and not strict:
            load = checked(schema, load)  # a written schema may let anything through
        if default is MISSING and isinstance(schema, Nullable):
            absent[name] = None
        elif default is MISSING:
            required.append(name)
        if name in about:
            schema.setdefault("description", about[name])
        fields[name], loads[name] = schema, load
    return ({"type": "object", "properties": fields, "required": required,
             "additionalProperties": False},
            lambda value, at: {**absent, **load_each(value.items(), loads.get, at)})

def record_plan(cls, args, plan):
    modules = [sys.modules.get(base.__module__, sys) for base in cls.__mro__]
    scope = ChainMap(*map(vars, modules))  # fields may be inherited from another module
    schema, load = plan_fields(
        f"{cls.__name__} field", record_rows(cls, scope), read_doc(cls.__doc__)[1],
        lambda hint: plan(resolve(hint, scope)))
    return schema, lambda value, at: own_checks(at, cls, **load(value, at))

FORMS = {  # a name -> the form
    "builtins.NoneType": lambda hint, args, plan: (Nullable(type="null"), None),
    "typing.Annotated": annotated_plan, "typing.Union": union_plan,
    "typing.Literal": lambda hint, args, plan: choice_plan([(plain(a), a) for a in args]),
    **dict.fromkeys(["typing.Required", "typing.NotRequired"],
                    lambda hint, args, plan: plan(args[0])),
    **dict.fromkeys(["builtins.list", "collections.Sequence", "collections.Iterable"],
                    partial(array_plan, list)),
    "builtins.set": partial(array_plan, set),
    "builtins.frozenset": partial(array_plan, frozenset),
    "builtins.tuple": tuple_plan,
    "builtins.dict": dict_plan, "collections.Mapping": dict_plan,
}
MARKS = {  # an attribute that gives a hint away -> its form; the first one counts
    "__supertype__": lambda hint, args, plan: plan(hint.__supertype__),  # NewType
    "__value__": lambda hint, args, plan: plan(hint.__value__),  # type Name = ...
    "__members__": lambda hint, args, plan: choice_plan([(as_choice(m), m) for m in hint]),
    "model_json_schema": model_plan,
    "__dataclass_fields__": record_plan, "_fields": record_plan, "__total__": record_plan,
}

def plan_of(hint, scope=None, parents=()):
    """The plan of a hint whose names are those of `scope`, inside the hints `parents`."""
    hint = resolve(hint, scope)
    word = word_of(hint)
    if word in LEAVES:
        return dict(LEAVES[word][0]), leaf_load(hint, word)
    name = hint.__name__ if isinstance(hint, type) and not parts_of(hint) else hint
    if hint in parents:
        raise HintError(f"{name} contains itself; write dict or list for the inner one")
    form = FORMS.get(word) or next((MARKS[m] for m in MARKS if hasattr(hint, m)), None)
    if form:
        try:
            schema, load = form(hint, parts_of(hint),
                                lambda part: plan_of(part, scope, (*parents, hint)))
            ENCODER.encode(schema)  # limits, choices and models are made by others
        except HintError:
            raise
        except Exception as error:  # dict[str], a pattern that is none, a model that fails
            raise HintError(f"{name} has no good schema ({describe(error)}); write a whole "
                            "hint such as dict[str, int], with limits that are JSON") from None
        return schema, load
    raise HintError(f"{name} has no JSON form; write str, int, float, bool, list[...], "
                    "dict[str, ...], Literal[...], an Enum, a dataclass or a TypedDict")

def schema_of(hint: Any) -> dict[str, Any]:
    """list[int] -> {"type": "array", "items": {"type": "integer"}}"""
    return plan_of(hint)[0]

# Functions

def function_behind(fn):
    """The plain function inside a method, partial, wrapper or callable object."""
    if isinstance(fn, partial):
        return function_behind(fn.func)
    for attribute in ("__wrapped__", "__func__"):
        if hasattr(fn, attribute):
            return function_behind(getattr(fn, attribute))
    for function in (fn, type(fn).__call__):
        if getattr(function, "__globals__", None) is not None:  # builtins have none
            return function
    raise HintError(f"{fn!r:.80} does not say what it takes; write a def that calls it")

def scope_of(fn):
    """The names that a function sees: those of functions around it, then its module's."""
    if not fn.__closure__:
        return fn.__globals__
    around = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    return ChainMap(around, fn.__globals__)

def parameters_of(fn):
    """def f(a: int, /, b=2) -> [("a", "/", int, MISSING), ("b", "", MISSING, 2)]"""
    if type(fn) is type(parameters_of) and not hasattr(fn, "__wrapped__"):
        code, hints = fn.__code__, hints_of(fn)
        if not code.co_flags & 0x0C:  # no *args, no **kwargs: inspect is not needed
            names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
            last = fn.__defaults__ or ()
            defaults = dict(zip(names[code.co_argcount - len(last):], last),
                            **(fn.__kwdefaults__ or {}))
            return [(name, "/" if i < code.co_posonlyargcount else "",
                     hints.get(name, MISSING), defaults.get(name, MISSING))
                    for i, name in enumerate(names)]
    if hasattr(fn, "__func__"):  # a method: without self
        return parameters_of(fn.__func__)[1:]
    import inspect
    kinds, empty = ("/", "", "*", "", "**"), inspect.Parameter.empty
    return [(p.name, kinds[p.kind], MISSING if p.annotation is empty else p.annotation,
             MISSING if p.default is empty else p.default)
            for p in inspect.signature(fn).parameters.values()]

def change_parts(value, schema, change):
    """The value with change(part, its schema) in place of each item or property."""
    if isinstance(value, list):
        return [change(item, schema.get("items")) for item in value]
    if isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {name: change(item, fields.get(name, others))
                for name, item in value.items()}
    return value

def without_nulls(value, schema):
    """{"a": 1, "b": None} -> {"a": 1}, where b is Nullable: clients know of no null."""
    if not isinstance(schema, dict):
        return value
    for branch in schema.get("anyOf", ()):
        value = without_nulls(value, branch)
    if isinstance(value, dict):
        fields = schema.get("properties", {})
        value = {name: item for name, item in value.items()
                 if item is not None or not isinstance(fields.get(name), Nullable)}
    return change_parts(value, schema, without_nulls)

class Signature:
    """What a function takes (schema), and its arguments as it wants them (load_arguments,
    bind).

    With a schema that somebody wrote, the hints only say what to convert."""

    def __init__(self, fn, context_type, where, written_schema):
        self.function = inner = function_behind(fn)
        infer, scope = written_schema is None, scope_of(inner)
        self.doc, about = read_doc(inner.__doc__ or getattr(fn, "__doc__", ""))
        self.context, self.open, self.positional, rows = None, False, [], []
        try:
            for name, kind, hint, default in parameters_of(fn):
                if kind == "*" or kind == "**" and infer:
                    raise HintError(f"parameter {kind}{name}: clients send arguments by "
                                    "name; write a list or dict, or pass input_schema "
                                    "(a decorator needs functools.wraps)")
                if hint is MISSING and type(default) in JSON_CLASSES:
                    hint = type(default)
                try:
                    hint = resolve(hint, scope)
                except HintError as error:
                    raise HintError(f"parameter {name!r}: {error}") from None
                if hint is context_type or context_type in parts_of(hint):
                    if self.context:
                        raise HintError(f"parameter {name!r}: one Context is enough")
                    self.context = name
                elif kind == "**":
                    self.open = True
                else:
                    rows.append((name, hint, default))
                if kind == "/":
                    self.positional.append((name, default))
            schema, self.load = plan_fields(
                "parameter", rows, about, lambda hint: plan_of(hint, scope), strict=infer)
        except HintError as error:
            raise HintError(f"{where}: {error}") from None
        except NameError as error:  # 3.14, as hints_of has it
            raise HintError(f"{where}: a hint {UNREADABLE.format(error)}") from None
        self.fields, self.schema = schema["properties"], schema if infer else written_schema
        if not infer:  # what somebody wrote may let through that nothing is there
            self.load = checked({"required": schema["required"]}, self.load)
        kinds = {name: hint for name, hint, _ in rows}
        self.usual = kinds if infer and all(map(JSON_CLASSES.__contains__, kinds.values())) else None
        self.returns = self.schema_returned(hints_of(inner).get("return"), scope)

    @staticmethod
    def schema_returned(hint, scope):
        """The schema of a returned dataclass or TypedDict; others go out as text."""
        try:
            hint = resolve(hint, scope)
            if hint in JSON_CLASSES:
                return None
            if hasattr(hint, "__total__") or hasattr(hint, "__dataclass_fields__") and all(
                    field.init for field in hint.__dataclass_fields__.values()):
                return plan_of(hint, scope)[0]
        except HintError:
            pass
        return None

    def load_arguments(self, arguments):
        """{"when": "2026-05-01"} -> {"when": date(2026, 5, 1)}"""
        return self.load({name: value for name, value in arguments.items()
                          if self.open or name in self.fields}, "arguments")

    def bind(self, arguments, context):
        """{"a": 1, "b": 2} -> ([1], {"b": 2, "ctx": context}) for def f(a, /, b, ctx)"""
        kwargs = dict(arguments)
        if self.context:
            kwargs[self.context] = context
        args = [kwargs.pop(name, default) for name, default in self.positional]
        return args, kwargs

# Stringified arguments: some models write "5" for 5.

def takes_text(schema):
    """Whether some string fits; then no string is ever converted."""
    if "anyOf" in schema:
        return any(map(takes_text, schema["anyOf"]))
    if "enum" in schema:
        return any(isinstance(value, str) for value in schema["enum"])
    return "string" in schema.get("type", "string")

def fitting():
    """A valid(value, schema) that prepares each schema it meets once."""
    checks = {}  # id(schema) -> check
    def valid(value, schema):
        try:
            check = checks.get(id(schema)) or checks.setdefault(id(schema), prepare(schema))
        except SchemaError:  # it refers to what is outside of it: leave the value alone
            return True
        return not check(value)
    return valid

def coerce(value, schema, valid):
    """("5", {"type": "integer"}, valid) -> 5: where "5" is refused and 5 is not.

    The string has to be JSON: "1e3" is the integer 1000, while "007", "" and "True"
    stay as they are."""
    if not isinstance(schema, dict) or valid(value, schema):
        return value
    if isinstance(value, str):
        try:
            parsed = DECODER.decode(value)
        except (ValueError, RecursionError):
            return value
        if parsed is None or isinstance(parsed, str) or takes_text(schema):
            return value
        parsed = coerce(parsed, schema, valid)
        return parsed if valid(parsed, schema) else value
    for branch in schema.get("anyOf", ()):
        better = coerce(value, branch, valid)
        if valid(better, branch):
            return better
    return change_parts(value, schema, lambda part, rule: coerce(part, rule, valid))

# ==================================================================================
# Part III.  MCP.
# ==================================================================================

# ----------------------------------------------------------------------------------
# 11. Content: what a handler returned -> what the client reads
# ----------------------------------------------------------------------------------

class Block(dict):
    """A content block: a dict that says of itself what it is."""

def text(s: str, **fields: Any) -> Block:
    """A piece of text.  `annotations=` and `_meta=` may be added to every block."""
    return Block(type="text", text=str(s), **fields)

def image(data: bytes | str, mime_type: str = "image/png", **fields: Any) -> Block:
    """A picture, from bytes or base64 text."""
    return Block(type="image", data=as_base64(data), mimeType=mime_type, **fields)

def audio(data: bytes | str, mime_type: str = "audio/wav", **fields: Any) -> Block:
    """A sound, from bytes or base64 text."""
    return Block(type="audio", data=as_base64(data), mimeType=mime_type, **fields)

def contents_of(uri, value, mime_type):
    """The body of a resource: text as it is, bytes as base64."""
    if isinstance(value, str):
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": value}
    return {"uri": uri, "mimeType": mime_type or "application/octet-stream",
            "blob": as_base64(value)}

def embedded(uri: str, text_or_bytes: str | bytes, mime_type: str | None = None,
             **fields: Any) -> Block:
    """A resource, sent along with its contents."""
    return Block(type="resource", resource=contents_of(uri, text_or_bytes, mime_type),
                 **fields)

def link(uri: str, name: str, *, title: str | None = None,
         description: str | None = None, mime_type: str | None = None,
         size: int | None = None, **fields: Any) -> Block:
    """A pointer to a resource, which the client may read or not."""
    return Block(type="resource_link", uri=uri, name=name, **compact(
        title=title, description=description, mimeType=mime_type, size=size), **fields)

IMAGE_STARTS = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"),
                (b"GIF8", "image/gif"))

def block_of(value):
    """One value -> one block: "hi" -> text("hi"), {"a": 1} -> text('{"a": 1}')."""
    if isinstance(value, Block):
        return value
    if isinstance(value, str) or type(value) is int:  # the usual, without detours
        return text(value)
    if isinstance(value, (bytes, bytearray)):
        for start, mime_type in IMAGE_STARTS:
            if value.startswith(start):
                return image(value, mime_type)
        try:
            return text(value.decode("utf-8"))
        except UnicodeDecodeError:
            return embedded("data:result", bytes(value))
    png = value._repr_png_() if hasattr(value, "_repr_png_") else None  # draws itself
    if not png and hasattr(value, "savefig"):  # a plot
        png = BytesIO()
        value.savefig(png, format="png")
        png = png.getvalue()
    return image(png) if png else text(json.dumps(plain(value), ensure_ascii=False))

def blocks_of(value):
    """What a handler returned -> content blocks.  A list is one only if it has some."""
    if value is None:
        return []
    if isinstance(value, (list, tuple)) and any(isinstance(v, Block) for v in value):
        return [block_of(item) for item in value]
    return [block_of(value)]

BLOCK_TYPES = {"text", "image", "audio", "resource", "resource_link", "tool_use",
               "tool_result"}

def content_of(value):
    """The content of a message: a block as it is, anything else made into one."""
    written = isinstance(value, dict) and value.get("type") in BLOCK_TYPES
    return value if written else block_of(value)

def fit_block(block, version):
    """A block for a client of that revision: what it cannot know is sent as what it can."""
    if version >= V2025_06:
        return block
    if block["type"] == "audio" and version < V2025_03:
        return {"type": "resource", "resource": {
            "uri": "data:audio", "mimeType": block["mimeType"], "blob": block["data"]}}
    if block["type"] == "resource_link":
        return text(f"{block['name']}: {block['uri']}")
    return {name: value for name, value in block.items() if name != "_meta"}

def messages_of(value, version, arrays=False):
    """"Hi" -> [{"role": "user", "content": {"type": "text", "text": "Hi"}}]

    A message with several blocks stays one if `arrays` may be, else becomes several."""
    messages = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if not (isinstance(item, dict) and "role" in item):
            item = {"role": "user", "content": item}
        several = isinstance(item["content"], list)
        blocks = [fit_block(content_of(part), version) for part in
                  (item["content"] if several else [item["content"]])]
        messages += [{**item, "content": content}
                     for content in ([blocks] if several and arrays else blocks)]
    return messages

# ----------------------------------------------------------------------------------
# 12. Context: what a handler may ask of us
# ----------------------------------------------------------------------------------

async def in_background(work):
    """work(), on a thread of its own, for the coroutine that waits.

    Like all coroutines it does not begin before somebody awaits it."""
    from asyncio import wrap_future
    from concurrent.futures import Future
    future = Future()
    future.set_running_or_notify_cancel()  # from here on only run() settles it

    def run():
        try:
            future.set_result(work())
        except BaseException as error:  # whatever it is, the coroutine gets it
            future.set_exception(error)

    start_thread(run, "mcp-wait")
    return await wrap_future(future)

def kill_tree(process):
    """End a child and all its children, at once."""
    import signal
    import subprocess
    if os.name != "posix":
        try:
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)],
                           capture_output=True)
        except OSError:  # a Windows without it
            process.kill()
        return
    pids = [process.pid]
    for pid in pids:  # the list grows while it is read: children, and theirs
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as children:  # Linux
                pids += map(int, children.read().split())
        except OSError:
            pass
    for pid in (-process.pid, *pids):  # first the group that the child leads
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:  # it is gone already
            pass

class Progress:
    """The progress of one call: strictly increasing, and never without a token."""

    def __init__(self, connection, call, token, heartbeat):
        self._connection, self._call, self._token = connection, call, token
        self._heartbeat = heartbeat    # seconds
        self._lock = threading.Lock()  # guards the next two, and the order of sending
        self._last, self._total = None, None

    def report(self, progress, total=None, message=None):
        with self._lock:
            if self._last is not None and not progress > self._last:
                return  # the specification wants it to increase
            self._last, self._total = progress, total
            told = message is not None and self._call.client.version >= V2025_03
            self._connection.notify("notifications/progress", compact(
                progressToken=self._token, progress=progress, total=total,
                message=str(message) if told else None), self._call)

    def beat(self, call, now):
        """A sign of life, for clients that give up on silence: a hair more progress."""
        last, total = self._last or 0, self._total
        self.report(last + 1e-6 * max(1, abs(last)), total, "still running")
        return now + self._heartbeat

# The questions that a client can be asked: the capability, and the shape of an answer.
QUESTIONS = {
    "elicitation/create": ("elicitation", {"required": ["action"], "properties": {
        "action": {"enum": ["accept", "decline", "cancel"]}}}),
    "sampling/createMessage": ("sampling", {"required": ["content"], "properties": {
        "content": {"type": ["object", "array"]}}}),
    "roots/list": ("roots", {"required": ["roots"], "properties": {
        "roots": {"type": "array", "items": {"type": "object", "required": ["uri"],
                                             "properties": {"uri": {"type": "string"}}}}}}),
}
SAMPLED = {"text", "image", "audio", "tool_use", "tool_result"}  # what a model reads
FIELD_TYPES = {"string", "number", "integer", "boolean", "array"}
FIELD_FORMATS = {"email", "uri", "date", "date-time"}

def missing_capability(question, client):
    """What a client would have to declare for a question: {} if it has all of it."""
    name, params = QUESTIONS[question["method"]][0], question["params"]
    has, part, since = client.capabilities.get(name), None, ""
    has = has if isinstance(has, dict) else None
    if name == "elicitation":
        part = params.get("mode", "form")
        since = V2025_11 if part == "url" else V2025_06
        if has is not None and "url" not in has:
            has = {"form": {}, **has}  # which is what {} means
    if name == "sampling" and {"tools", "toolChoice"} & set(params):
        part, since = "tools", V2025_11
    if has is not None and part in (None, *has) and client.version >= since:
        return {}
    return {name: {part: {}} if part and (part != "form" or has) else {}}

def answer_problems(question, result):
    """What is wrong with the shape of a client's answer."""
    problems = validate(result, QUESTIONS[question["method"]][1], "answer")
    form = question["params"].get("requestedSchema")
    if problems or form is None or result.get("action") != "accept":
        return problems
    return validate(result.setdefault("content", {}), form, "content")

def fit_field(name, field, version):
    """A field of a form as that revision knows it, or None if it does not."""
    field = dict(field)
    is_list = field.get("type") == "array"
    if field.get("type") not in FIELD_TYPES or (
            is_list and not {"enum", "anyOf"} & set(field.get("items", ()))):
        raise ValueError(f"elicit: {name}: expected a string, a number, a boolean or a list "
                         f"of choices, got {quote(field)}")
    if field.get("format") not in FIELD_FORMATS:
        field.pop("format", None)
    if version >= V2025_11:
        return field
    if "oneOf" in field:
        choices = field.pop("oneOf")
        field["enum"] = [choice["const"] for choice in choices]
        field["enumNames"] = [choice.get("title", choice["const"]) for choice in choices]
    if field["type"] != "boolean":
        field.pop("default", None)
    return None if is_list else field

def fit_form(schema, version):
    """A form, which is one level of plain fields, as a client of that revision knows it."""
    if schema and not isinstance(schema.get("properties"), dict) and schema != {
            "type": "object"}:
        raise ValueError(f'elicit: expected a schema with "properties", or a dataclass, got '
                         f"{quote(schema)}")
    fields = {name: fit_field(name, field, version)
              for name, field in schema.get("properties", {}).items()}
    fields = compact(**fields)
    required = [name for name in schema.get("required", ()) if name in fields]
    return {"type": "object", "properties": fields, "required": required}

def fit_question(question, client):
    """{"method", "params"} as the client's revision has it."""
    method, params = question["method"], dict(question.get("params", {}))
    is_new = client.version >= V2025_11
    if method not in QUESTIONS:
        raise ValueError(f"ask: expected one of {', '.join(QUESTIONS)}, got {method!r}")
    if "requestedSchema" in params:
        params["requestedSchema"] = fit_form(params["requestedSchema"], client.version)
        if not is_new:
            params.pop("mode", None)
    if params.get("mode") == "url" and not client.is_modern:
        params.setdefault("elicitationId", os.urandom(16).hex())
    if method == "sampling/createMessage":
        messages = messages_of(params.get("messages", ()), client.version, arrays=is_new)
        for message in messages:
            content = message["content"]
            for block in content if isinstance(content, list) else [content]:
                if block["type"] not in SAMPLED:
                    raise ValueError("sample: expected text, images or sounds (these since "
                                     f"2025-03-26), got a block of type {block['type']!r}")
        params["messages"] = messages
        if is_new and "context" not in client.capabilities.get("sampling", ()):
            params.pop("includeContext", None)
    return {"method": method, "params": params}

def camel(name):
    """system_prompt -> systemPrompt"""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)

class Context:
    """A parameter annotated `Context` receives one; clients never see it.

    Everything here notices a cancelled call and raises Cancelled.  In an `async def`
    handler the methods that wait return awaitables.

    Ask before you act: in the modern era a handler that asks (elicit, sample, list_roots,
    ask) runs again from the top when the answers are there, and what stands before a
    question is done again.  `key` names a question; without one, it is its number."""

    def __init__(self, session: Any, call: Call, is_async: bool = False) -> None:
        self._session, self._call, self._is_async = session, call, is_async
        self.request_id: str | int | float = call.id
        self.meta: dict[str, Any] = call.params.get("_meta") or {}
        self.protocol_version: str = call.client.version
        self.client_info: dict[str, Any] = call.client.info
        self.client_capabilities: dict[str, Any] = call.client.capabilities

    def _wait(self, work):
        return in_background(work) if self._is_async else work()

    # -- stopping in time

    @property
    def cancelled(self) -> bool:
        """True when nobody waits for the answer any more."""
        return self._call.cancelled

    def check_cancelled(self) -> None:
        """Raise Cancelled if nobody waits for the answer any more."""
        if self._call.cancelled:
            raise Cancelled

    def sleep(self, seconds: float) -> Any:
        """time.sleep that ends at once when the call is cancelled."""
        if self._is_async:
            import asyncio
            return asyncio.sleep(seconds)  # cancelled with its task
        wake_up = threading.Event()
        self._call.on_cancel(wake_up.set)
        wake_up.wait(seconds)
        self._call.wakers.remove(wake_up.set)
        self.check_cancelled()

    def run(self, cmd: Any, *, input: Any = None, timeout: float | None = None,
            check: bool = False, **options: Any) -> Any:
        """subprocess.run(cmd) whose whole process tree dies with the call.

        Output is captured as text; returns a subprocess.CompletedProcess."""
        return self._wait(partial(self._run, cmd, input, timeout, check, options))

    def _run(self, cmd, input, timeout, check, options):
        import subprocess
        self.check_cancelled()
        defaults = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                    "stdin": subprocess.DEVNULL if input is None else subprocess.PIPE,
                    "start_new_session": os.name == "posix"}
        process = subprocess.Popen(cmd, **{**defaults, **options})
        kill = partial(kill_tree, process)
        self._call.on_cancel(kill)
        try:
            out, err = process.communicate(input, timeout)
        finally:
            if process.returncode is None:  # time-out, or an interrupt
                kill()
                process.wait()
            self._call.wakers.remove(kill)
        self.check_cancelled()
        if check and process.returncode:
            raise subprocess.CalledProcessError(process.returncode, cmd, out, err)
        return subprocess.CompletedProcess(cmd, process.returncode, out, err)

    # -- telling the client

    def report_progress(self, progress: float, total: float | None = None,
                        message: str | None = None) -> None:
        """Say how far it is; nothing is sent unless the client has asked for it."""
        self.check_cancelled()
        progress, total = plain(progress), plain(total)
        if type(progress) not in (int, float) or type(total) not in (int, float, type(None)):
            raise ValueError(f"report_progress: expected finite numbers, got {progress!r}"
                             f" and {total!r}")
        if self._call.progress:
            self._call.progress.report(progress, total, message)

    def track(self, iterable: Iterable[T], total: float | None = None) -> Iterator[T]:
        """for item in ctx.track(items): reports progress, and stops when cancelled."""
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        for done, item in enumerate(iterable, 1):
            self.check_cancelled()
            yield item
            self.report_progress(done, total)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of that level."""
        self.check_cancelled()
        if level not in LOG_LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LOG_LEVELS)}, got {level!r}")
        wanted = self._call.client.log_level
        if self._session.connection and wanted and (
                LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)):
            self._session.connection.notify(
                "notifications/message",
                {**compact(level=level, logger=logger), "data": plain(data)}, self._call)

    debug = partialmethod(log, "debug")
    info = partialmethod(log, "info")
    warning = partialmethod(log, "warning")
    error = partialmethod(log, "error")

    # -- asking the client

    def elicit(self, message: str, schema: Any, key: str | None = None) -> Any:
        """Ask the user to fill in a form -> {"action": "accept", "content": {...}}.

        The schema is an object of plain fields; a dataclass or TypedDict will do.  The
        action may also be "decline" or "cancel", and then there is no content."""
        form = schema if isinstance(schema, dict) else schema_of(schema)
        params = {"message": message, "requestedSchema": form}
        return self._ask_one("elicitation/create", params, key)

    def elicit_url(self, message: str, url: str, key: str | None = None) -> Any:
        """Ask the user to open a web page, for what must not pass through the client."""
        params = {"mode": "url", "message": message, "url": url}
        return self._ask_one("elicitation/create", params, key)

    def sample(self, messages: Any, max_tokens: int = 1000, key: str | None = None,
               **options: Any) -> Any:
        """Have the client's model answer -> {"role", "content", "model", ...}."""
        return self._ask_one("sampling/createMessage", {
            "messages": messages, "maxTokens": max_tokens,
            **{camel(name): plain(value) for name, value in options.items()
               if value is not None}}, key)

    def list_roots(self, key: str | None = None) -> Any:
        """The folders that the client works in -> [{"uri": "file:///...", ...}]."""
        return self._ask_one("roots/list", {}, key, lambda result: result["roots"])

    def ask(self, questions: dict[str, dict[str, Any]]) -> Any:
        """Ask several things at once: {key: {"method", "params"}} -> {key: result}."""
        self._call.asked = (*self._call.asked, *questions)  # in the order of asking
        return self._wait(partial(self._ask, questions))

    def _ask_one(self, method, params, key, pick=lambda result: result):
        key = key or f"{QUESTIONS[method][0]}-{len(self._call.asked) + 1}"
        self._call.asked = (*self._call.asked, key)
        question = {key: {"method": method, "params": params}}
        return self._wait(lambda: pick(self._ask(question)[key]))

    def _ask(self, questions):
        self.check_cancelled()
        call, client = self._call, self._call.client
        questions = {key: fit_question(questions[key], client) for key in questions}
        lacks = {}
        for question in questions.values():
            lacks.update(missing_capability(question, client))
        if lacks or not (self._session.connection or client.is_modern):
            methods = " and ".join(question["method"] for question in questions.values())
            raise self._refusal(
                MISSING_CAPABILITY, f"{methods}: this client cannot be asked, "
                f"it has not declared the capability {json.dumps(lacks)}",
                {"requiredCapabilities": lacks})
        if client.is_modern:  # the answers came with this request, or it ends here
            missing = {key: questions[key] for key in questions if key not in call.answers}
            if missing:
                raise InputRequired(missing)
            answers = {key: dict(call.answers[key]) for key in questions}
        else:
            patience = self._session.server.patience
            answers = self._session.connection.ask(questions, call, patience)
        for key, question in questions.items():
            problems = answer_problems(question, answers[key])
            if problems:
                raise self._refusal(INVALID_PARAMS, "\n".join(
                    [f"The answer to {key!r} does not fit:", *problems]))
        return answers

    def _refusal(self, code, message, data=None):
        modern = self._call.client.is_modern  # there it is for the client, not the model
        return RpcError(code, message, data) if modern else ToolError(message)

    def read_resource(self, uri: str) -> Any:
        """Read a resource of this server -> its contents, as a client would get them."""
        return self._wait(partial(self._read_resource, uri))

    def _read_resource(self, uri):
        try:
            return self._session.read_resource(self._call, uri)
        except RpcError as error:
            if self._call.method == "tools/call" and error.code != MISSING_CAPABILITY:
                raise ToolError(error.message) from None  # a tool that fails says so
            raise

# ----------------------------------------------------------------------------------
# 13. Records: a function and all that a client may know of it
# ----------------------------------------------------------------------------------

KINDS = ("tools", "resources", "prompts")
CO_COROUTINE = 0x80  # of code objects; inspect would cost 7 ms to import
NAME = r"[A-Za-z0-9_-]{1,64}"

# The first revision that knows a field; those not named are known to all.
RECORD_FIELDS = {"title": V2025_06, "_meta": V2025_06, "icons": V2025_11}
TOOL_FIELDS = {**RECORD_FIELDS, "annotations": V2025_03, "outputSchema": V2025_06}
SERVER_FIELDS = {"title": V2025_06, "description": V2025_11, "websiteUrl": V2025_11,
                 "icons": V2025_11}

def fit(entry, since, version):
    """The fields that a client of that revision knows."""
    return {name: value for name, value in entry.items()
            if since.get(name, version) <= version}

def check_name(name):
    """A name that every client accepts, or a ValueError that says how to get one."""
    if isinstance(name, str) and re.fullmatch(NAME, name):
        return name
    advice = re.sub(r"[^A-Za-z0-9_-]+", "_", str(name)).strip("_")[:64] or "my_tool"
    raise ValueError(f"name: expected 1 to 64 letters, digits, _ or -, got {name!r}; "
                     f"pass name={advice!r}")

def usable(schema, where, any_root=False):
    """A schema that clients take -> the function that checks values against it."""
    if not isinstance(schema, dict) or schema.get("type") != "object" and not any_root:
        raise ValueError(f'{where}: expected a schema with "type": "object" at its root, '
                         f"got {json.dumps(schema, default=repr)[:80]}")
    try:
        return prepare(schema)
    except SchemaError as error:
        raise ValueError(f"{where}: {error}") from None

WORDS, NUMBER_ABOVE = {"type": "string"}, {"type": "number", "minimum": 0}
COUNT, SWITCH = {"type": "integer", "minimum": 1}, {"type": "boolean"}
OPTIONS = {"properties": {  # what would only show later, in a client that loses all tools
    **dict.fromkeys(["name", "version", "title", "description", "instructions",
                     "websiteUrl", "mimeType"], WORDS),
    **dict.fromkeys(["timeout", "heartbeat", "patience", "ttlMs"], NUMBER_ABOVE),
    **dict.fromkeys(["max_workers", "page_size", "max_line"], COUNT),
    "icons": {"type": "array", "items": {
        "type": "object", "required": ["src"], "properties": {"src": WORDS}}},
    "annotations": {"type": "object", "properties": {"title": WORDS, **dict.fromkeys(
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"], SWITCH)}},
    "_meta": {"type": "object"}, "size": {"type": "integer", "minimum": 0},
    "cacheScope": {"enum": ["public", "private"]},
}}

option_problems = lru_cache(maxsize=None)(lambda: prepare(OPTIONS))  # once, when needed

def check_options(where, options):
    """Refuse what is no JSON, or of the wrong type: a ValueError lists all problems."""
    try:
        ENCODER.encode(options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}; schemas, annotations, icons and meta must be "
                         "plain JSON") from None
    problems = option_problems()(options, "options")
    if problems:
        raise ValueError(f"{where}: " + "; ".join(problems))

LOOP_LOCK = threading.Lock()  # held to call the next function: two would make two loops

@lru_cache(maxsize=None)
def event_loop():
    """The one event loop, on a thread of its own, for all `async def` handlers."""
    import asyncio
    loop = asyncio.new_event_loop()

    def live():
        while True:  # a task that raises SystemExit ends run_forever: not for long
            try:
                loop.run_forever()
            except BaseException:
                log_traceback("a task of an async handler failed")
    start_thread(live, "mcp-async")
    return loop

def finished(call, value):
    """What a handler returned; if it is an `async def`, what that returns in the end."""
    if not hasattr(value, "__await__"):
        return value
    import asyncio

    async def in_loop():
        try:
            return await value
        except BaseException as error:  # a question inside a TaskGroup
            while getattr(error, "exceptions", ()):
                error = error.exceptions[0]
            raise error
    with LOOP_LOCK:
        loop = event_loop()
    future = asyncio.run_coroutine_threadsafe(in_loop(), loop)
    call.on_cancel(future.cancel)
    return future.result()

class BadArguments(ValueError):
    """What came does not fit what the function takes; the text lists all problems."""

class Record:
    """What tools, resources and prompts have in common."""

    fields = RECORD_FIELDS

    def __init__(self, key, where, fn, input_schema=None, **written):
        self.key = key            # what clients call it by
        self.fn = fn
        self.completions = {}     # argument -> function that finds candidates
        self.signature = Signature(fn, Context, where, input_schema)
        self.is_async = self.signature.function.__code__.co_flags & CO_COROUTINE
        self.input_schema = self.signature.schema
        written["description"] = written["description"] or self.signature.doc or None
        self.entry = compact(**written)
        if self.entry.keys() != {"name", "description"} or type(self.entry["description"]) != str:
            check_options(where, self.entry)  # now, not in the first list

    def call(self, session, call, given, coerces):
        """Call the function with what the client sent.  Raises BadArguments."""
        kinds = {name: type(value) for name, value in given.items()}
        is_plain = kinds == self.signature.usual  # nothing to check, nothing to convert
        ready = given if is_plain else self.ready(given, coerces)
        context = self.signature.context and Context(session, call, self.is_async)
        args, kwargs = self.signature.bind(ready, context)
        return finished(call, self.fn(*args, **kwargs))

    def ready(self, given, coerces):
        """Check what the client sent -> what the function wants.

        coerces: take "5" for 5, where that helps."""
        problems = self.check_input(given, "arguments")
        if problems and coerces:
            given = coerce(given, self.input_schema, fitting())
            problems = self.check_input(given, "arguments")
        if problems:
            raise BadArguments("\n".join(problems))
        try:
            return self.signature.load_arguments(given)
        except ValueError as error:
            raise BadArguments(str(error)) from None

    @cached_property  # an inferred schema is known to be good: prepared when needed
    def check_input(self):
        return prepare(self.input_schema)

class Tool(Record):
    """A function, its schemas, and its entry in tools/list."""

    fields = TOOL_FIELDS

    def __init__(self, fn, name, title, description, input_schema, output_schema,
                 annotations, icons, meta, timeout, serial, coerce, allow_extra):
        name = check_name(name or getattr(fn, "__name__", type(fn).__name__))
        where = f"tool {name!r}"
        super().__init__(name, where, fn, input_schema, name=name, title=title,
                         description=description, inputSchema=input_schema,
                         outputSchema=output_schema, annotations=annotations, icons=icons,
                         _meta=meta)
        if timeout is not None:
            check_options(where, {"timeout": timeout})
        self.timeout, self.serial, self.coerce = timeout, serial, coerce
        if allow_extra and input_schema is None:
            self.input_schema = {**self.input_schema, "additionalProperties": True}
        self.output_schema = self.signature.returns if output_schema is None else output_schema
        self.entry.setdefault("description", title or name)
        self.entry["inputSchema"] = self.input_schema
        if input_schema is not None:
            self.check_input = usable(input_schema, f"{where}: input_schema")
        if self.output_schema is not None:
            self.entry["outputSchema"] = self.output_schema
            self.check_output = usable(self.output_schema, f"{where}: output_schema", True)
            if self.output_schema.get("type") != "object":  # costs others the whole list
                self.fields = {**self.fields, "outputSchema": MODERN}

    def result(self, value, version):
        """What the function returned -> the result of tools/call."""
        if self.output_schema is None:
            return {"content": [fit_block(block, version) for block in blocks_of(value)]}
        value = without_nulls(plain(value), self.output_schema)
        problems = self.check_output(value, "result")
        if problems:
            raise ToolError(f"Tool {self.key!r} broke its promise: what it returned does "
                            "not fit its output schema.\n" + "\n".join(problems))
        result = {"content": [text(json.dumps(value, ensure_ascii=False))]}
        if version >= self.fields["outputSchema"]:
            result["structuredContent"] = value
        return result

def error_result(message):
    """A failure that the model is meant to read."""
    return {"content": [text(message)], "isError": True}

# A resource has a fixed URI, or a template (RFC 6570) with three kinds of variables:
# {id} is one segment, {+path} may have several, {?q,lang} are optional in the query.

URI = r"[A-Za-z][\w+.-]*:"  # how one begins
VARIABLE = r"\{([+?]?)(\w+(?:,\w+)*)\}"
TEMPLATE = r"[^{}]*(\{\+?\w+\}[^{}]+)*(\{\+?\w+\}[^{}]*)?(\{\?\w+(,\w+)*\})?"
UNSAFE = r"[\0-\x1f\x7f\\]|^[A-Za-z]:|(^|/)\.\.?(/|$)"

def template_pattern(template):
    """"notes://{topic}" -> (regex of its URIs, {"topic": ""}: the kind of each variable)."""
    text, *rest = re.split(VARIABLE, template)  # then kind, names, text for each variable
    names = ",".join(rest[1::3]).split(",")
    if not re.fullmatch(TEMPLATE, template) or len(set(names)) < len(names):
        raise ValueError(f"resource {template!r}: expected variables like {{id}}, {{+path}} "
                         "or, at the end, {?q,lang}, each once and not side by side")
    pattern, kinds = re.escape(text), {}
    while rest:
        kind, names, text, *rest = rest
        kinds.update(dict.fromkeys(names.split(","), kind))
        # ends where the text behind it begins: {a}-{b} must not take for ever
        stops = "?#" if kind else "/?#" + re.escape(text[:1] if rest else "")
        pattern += (r"(?:\?(?P<query_>[^#]*))?" if kind == "?" else
                    f"(?P<{names}>[^{stops}]+)" + re.escape(text))
    return re.compile(pattern), kinds

class Resource(Record):
    """A function that gives the contents of a URI, or of all URIs of a template."""

    def __init__(self, fn, uri, name, title, description, mime_type, size, annotations,
                 icons, meta, ttl_ms, cache_scope):
        where = f"resource {uri!r}"
        self.caching = compact(ttlMs=ttl_ms, cacheScope=cache_scope)
        if self.caching:
            check_options(where, self.caching)
        if not re.match(URI, uri):
            raise ValueError(f"{where}: expected a URI such as notes://today")
        self.pattern, self.kinds = template_pattern(uri)
        self.is_template = bool(self.kinds)
        self.mime_type = mime_type
        if mime_type is None:
            from mimetypes import guess_type
            self.mime_type = guess_type(uri.partition("{?")[0].rpartition("/")[2])[0]
        super().__init__(
            uri, where, fn, name=name or getattr(fn, "__name__", uri), title=title,
            description=description, mimeType=self.mime_type, size=size,
            annotations=annotations, icons=icons, _meta=meta)
        self.entry["uriTemplate" if self.is_template else "uri"] = uri
        takes, needs = self.input_schema["properties"], self.input_schema["required"]
        path = {name for name, kind in self.kinds.items() if kind != "?"}
        wrong = sorted((set(needs) - path) | (set(self.kinds) - set(takes)))
        if wrong:
            raise ValueError(f"{where}: the variables of the URI and the parameters of the "
                             f"function differ in {', '.join(wrong)}; name both the same, "
                             "and give those in {?...} a default")

    def match(self, uri):
        """The variables of a URI, or None where it is not one of ours.

        Decoded once; then a value may not leave its place: no "..", no drive letter, no
        control character, and no "/" except in {+path}, which may not start with one."""
        from urllib.parse import parse_qsl, unquote
        found = self.pattern.fullmatch(uri) if len(uri) <= MAX_URI else None
        if not found:
            return None
        raw = found.groupdict()
        query = dict(parse_qsl(raw.pop("query_", None) or "", keep_blank_values=True))
        values = {name: unquote(value) for name, value in raw.items()}
        values.update((name, query[name]) for name in query if self.kinds.get(name) == "?")
        for name, value in values.items():
            if re.search(UNSAFE, value) or "/" in (value[:1] if self.kinds[name] else value):
                return None
        return values

    def contents(self, value, uri):
        """What the function returned -> the contents of the result."""
        items = [value] if isinstance(value, Block) else value
        if isinstance(items, (list, tuple)) and items and all(
                isinstance(item, Block) and item["type"] == "resource" for item in items):
            return [item["resource"] for item in items]
        if isinstance(value, (str, bytes, bytearray)):
            return [contents_of(uri, value, self.mime_type)]
        whole = json.dumps(plain(value), ensure_ascii=False)
        return [contents_of(uri, whole, self.mime_type or "application/json")]

class Prompt(Record):
    """A function that gives the messages of a prompt; its arguments come as text."""

    def __init__(self, fn, name, title, description, icons, meta):
        name = check_name(name or getattr(fn, "__name__", type(fn).__name__))
        super().__init__(name, f"prompt {name!r}", fn, name=name, title=title,
                         description=description, icons=icons, _meta=meta)
        required = self.input_schema["required"]
        self.entry.setdefault("description", title or name)
        self.entry["arguments"] = [
            compact(name=argument, description=schema.get("description"),
                    required=argument in required)
            for argument, schema in self.input_schema["properties"].items()]

# ----------------------------------------------------------------------------------
# 14. Lifecycle: the states of a session, as data
#
#     CREATED --initialize--> INITIALIZING --notifications/initialized--> OPERATING
#        |                         |                                          |
#        +-------------------------+---- end of input -> SHUTDOWN <-----------+
# ----------------------------------------------------------------------------------

CREATED, INITIALIZING, OPERATING, SHUTDOWN = (
    "created", "initializing", "operating", "shutdown")

NEXT_STATE = {
    (CREATED, "initialize"): INITIALIZING,
    (INITIALIZING, "initialized"): OPERATING,
}
LEGAL = {  # method -> the states in which it may be called; all others: in OPERATING
    "initialize": {CREATED},
    "initialized": {INITIALIZING, OPERATING},
    "notifications/initialized": {INITIALIZING, OPERATING},
    "ping": {CREATED, INITIALIZING, OPERATING},
}
ADVICE = {  # state -> what to say of a method that may not be called in it
    CREATED: "send initialize first",
    INITIALIZING: "send notifications/initialized first",
    OPERATING: "this session is initialized already",
    SHUTDOWN: "this session is over",
}

class Client:
    """Whom a request comes from, as far as that request may know."""

    def __init__(self, version=NEWEST_HANDSHAKE, capabilities=(), info=(),
                 log_level="info"):
        self.version = version
        self.is_modern = version >= MODERN
        self.capabilities, self.info = dict(capabilities), dict(info)
        self.log_level = log_level  # None: it wants no log messages

# ----------------------------------------------------------------------------------
# 15. Session: the methods of the protocol
#
# A method is a function (session, call) -> the result, or a function that will find it
# on the crew's time, because user code is involved.
# ----------------------------------------------------------------------------------

def param(params, name, kind, default=..., choices=None):
    """params[name], of that type, one of the choices; with no default it must be there."""
    value = params.get(name, default)
    if isinstance(value, kind) and (choices is None or value in choices):
        return value
    if value is default and default is not ...:
        return value
    words = f"one of {', '.join(choices)}" if choices else (
        {str: "a string", dict: "an object"}[kind])
    raise RpcError(INVALID_PARAMS, f"{name}: expected {words}, got {show(value)}")

LIST_CHANGED, UPDATED = "notifications/{}/list_changed", "notifications/resources/updated"

def initialize(session, call):
    if call.batch is not None:
        raise RpcError(INVALID_REQUEST, "initialize cannot be part of a batch")
    asked = param(call.params, "protocolVersion", str, NEWEST_HANDSHAKE)
    version = asked if asked in PROTOCOL_VERSIONS[1:] else NEWEST_HANDSHAKE
    session.client = Client(version, param(call.params, "capabilities", dict, {}),
                            param(call.params, "clientInfo", dict, {}))
    session.enter("initialize")
    capabilities = session.server.capabilities()
    capabilities.pop("extensions", None)
    if version < V2025_03:  # knows no such capability, but has the method
        capabilities.pop("completions", None)
    session.topics = {(LIST_CHANGED.format(kind), None) for kind in capabilities}
    return {"protocolVersion": version, "capabilities": capabilities,
            "serverInfo": fit(session.server.info, SERVER_FIELDS, version),
            **compact(instructions=session.server.instructions)}

def initialized(session, call):
    session.enter("initialized")
    return {}

EMPTY = Kept({})

def ping(session, call):
    return EMPTY

LISTS = {  # method -> the name of the list in its result
    "tools/list": "tools", "resources/list": "resources",
    "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}

def list_page(session, call):
    """One page of a list.  A cursor names the last entry seen, and its place in case
    that entry is gone.  The first page is kept until the server's lists change."""
    kind = LISTS[call.method]
    cursor, start = call.params.get("cursor", ...), 0
    kept, key = session.server.kept, (kind, call.client.version)
    if cursor is ... and key in kept:
        return kept[key]
    records = session.server.records(kind)  # not before: what changes now is not in `kept`
    if cursor is not ...:
        try:
            from binascii import a2b_base64
            start, name = json.loads(a2b_base64(cursor.encode("ascii")))[kind]
            names = [record.key for record in records]
            start = names.index(name) + 1 if name in names else max(int(start) - 1, 0)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError,
                RecursionError):
            raise RpcError(INVALID_PARAMS, "cursor: expected one from an earlier answer "
                           "of this list, or none to start over") from None
    end = start + session.server.page_size if session.server.page_size else len(records)
    shown, version = records[start:end], call.client.version
    result = {kind: [fit(record.entry, record.fields, version) for record in shown]}
    if end < len(records):
        mark = json.dumps({kind: [end, shown[-1].key]})
        result["nextCursor"] = as_base64(mark.encode())
    if cursor is ...:
        result = kept[key] = Kept(result)
    return result

def refuse(message):
    raise RpcError(INTERNAL_ERROR, message)

def guarded(session, call, what, work, on_failure):
    """work(), which is user code.  If it fails: on_failure(a sentence for the client,
    masked if that is asked for), which makes a result, or raises; the traceback goes to
    stderr."""
    try:
        return work()
    except (RpcError, InputRequired):
        raise
    except ToolError as error:
        return on_failure(str(error))
    except BaseException as error:  # SystemExit too: the call ends, the server does not
        if call.cancelled:
            return on_failure("cancelled")
        why = describe(error)
        if session.server.mask_errors:
            why = f"internal error (reference {os.urandom(4).hex()})"
        elif isinstance(error, EOFError):
            why += "; stdin belongs to the client: take a parameter, or ask with ctx.elicit"
        log_traceback(f"{what} failed: {why}")
        return on_failure(f"{what} failed: {why}")

def as_job(session, call, what, work, timeout=None):
    """work(), guarded, as the crew will run it: with a time limit and a heartbeat."""
    on_failure = error_result if call.method == "tools/call" else refuse
    call.timeout = session.server.timeout if timeout is None else timeout
    if call.timeout:
        call.late = partial(
            on_failure, f"{what} timed out after {call.timeout:g} s and was stopped")
    meta, heartbeat = call.params.get("_meta"), session.server.heartbeat
    if meta and session.connection and is_id(meta.get("progressToken")):
        call.progress = Progress(session.connection, call, meta["progressToken"], heartbeat)
        if heartbeat:
            first = time.monotonic() + heartbeat
            session.connection.set_alarm(call, first, call.progress.beat)
    return partial(call.run, guarded, session, call, what, work, on_failure)

def named(records, kind, call):
    """The record that a request names, and the arguments that it gives."""
    name, given = param(call.params, "name", str), param(call.params, "arguments", dict, {})
    record = records.get(name)
    if record is None:
        raise RpcError(INVALID_PARAMS, f"Unknown {kind.lower()}: {name[:200]}",
                       {f"available{kind}s": list(records)[:100]})
    return record, given

def tools_call(session, call):
    tool, given = named(session.server.tools, "Tool", call)
    version, coerces = call.client.version, tool.coerce or session.server.coerce
    call.serial = tool.serial

    def work():
        try:
            return tool.result(tool.call(session, call, given, coerces), version)
        except BadArguments as error:
            message = f"Invalid arguments for tool {tool.key!r}:\n{error}"
            log("debug", message)
            if version < V2025_11:
                raise RpcError(INVALID_PARAMS, message) from None
            return error_result(message)
    return as_job(session, call, f"Tool {tool.key!r}", work, tool.timeout)

def not_found(uri, why=""):
    return RpcError(RESOURCE_NOT_FOUND, f"Resource not found: {uri}{why}", {"uri": uri})

def find_resource(server, uri):
    """The resource of a URI and its variables: exact matches first, then templates."""
    exact = server.resources.get(uri)
    if exact and not exact.is_template:
        return exact, {}
    for resource in list(server.resources.values()):
        values = resource.match(uri) if resource.is_template else None
        if values is not None:
            return resource, values
    raise not_found(uri)

def read_resource(session, call, uri):
    """Find a resource and read it -> the result of resources/read."""
    resource, values = find_resource(session.server, uri)
    try:
        value = resource.call(session, call, values, coerces=True)
        result = {"contents": resource.contents(value, uri)}
    except BadArguments as error:
        raise not_found(uri, f"\n{error}") from None
    except (LookupError, FileNotFoundError) as error:
        if not values:  # of a template, it means that there is no such thing
            raise
        why = "" if session.server.mask_errors else f" ({describe(error)})"
        raise not_found(uri, why) from None
    return {**result, **resource.caching} if call.client.is_modern else result

def resources_read(session, call):
    uri = param(call.params, "uri", str)
    work = partial(read_resource, session, call, uri)
    return as_job(session, call, f"Resource {uri}", work)

def resources_subscribe(session, call):
    session.topics.add((UPDATED, param(call.params, "uri", str)))
    return {}

def resources_unsubscribe(session, call):
    session.topics.discard((UPDATED, param(call.params, "uri", str)))
    return {}

def prompts_get(session, call):
    prompt, given = named(session.server.prompts, "Prompt", call)

    def work():
        try:
            value = prompt.call(session, call, given, coerces=True)
        except BadArguments as error:
            raise RpcError(INVALID_PARAMS, f"Invalid arguments for prompt {prompt.key!r}:\n"
                           f"{error}") from None
        return {"description": prompt.entry["description"],
                "messages": messages_of(value, call.client.version)}
    return as_job(session, call, f"Prompt {prompt.key!r}", work)

def completions(session, call, record, argument, value):
    """The candidates for what was typed: from a function, or from the type of the
    parameter if that has only so many values."""
    others = param(param(call.params, "context", dict, {}), "arguments", dict, {})
    function = record.completions.get(argument)
    if function:
        takes_others = len(parameters_of(function)) > 1
        found = finished(call, function(value, others) if takes_others else function(value))
        found = [str(plain(candidate)) for candidate in found or ()]
    else:
        schema = record.input_schema["properties"][argument]
        known = schema.get("enum", [True, False] if schema.get("type") == "boolean" else ())
        found = [key if isinstance(key, str) else json.dumps(key) for key in known]
        found = [name for name in found if name.lower().startswith(value.lower())]
    return {"completion": {"values": found[:MAX_COMPLETIONS], "total": len(found),
                           "hasMore": len(found) > MAX_COMPLETIONS}}

def completion_complete(session, call):
    ref, argument = param(call.params, "ref", dict), param(call.params, "argument", dict)
    kind = param(ref, "type", str, choices=("ref/prompt", "ref/resource"))
    records, field = ((session.server.prompts, "name") if kind == "ref/prompt" else
                      (session.server.resources, "uri"))
    record = records.get(str(ref.get(field)))
    name, value = str(argument.get("name")), argument.get("value")
    if record is None:
        raise RpcError(INVALID_PARAMS, "ref: expected the name of a prompt (ref/prompt) or "
                       f"a URI template (ref/resource), got {json.dumps(ref)[:200]}")
    if name not in record.input_schema["properties"] or not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, "argument: expected a name out of "
                       f"{list(record.input_schema['properties'])} and a text value")
    work = partial(completions, session, call, record, name, value)
    return as_job(session, call, f"Completion of {name!r}", work)

def logging_set_level(session, call):
    session.client.log_level = param(call.params, "level", str, choices=LOG_LEVELS)
    return {}

# The modern era: every request says who asks, and nothing is remembered between two.

MODERN_KEYS = {MCP + "protocolVersion", MCP + "clientCapabilities", MCP + "clientInfo",
               MCP + "logLevel"}  # a request with one of them in _meta is modern

def modern_client(meta):
    """The client that a request's _meta describes."""
    version = param(meta, MCP + "protocolVersion", str)
    capabilities = param(meta, MCP + "clientCapabilities", dict)
    for name in capabilities:
        param(capabilities, name, dict)
    if version != MODERN:
        raise RpcError(UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}",
                       {"supported": [MODERN], "requested": version})
    return Client(version, capabilities, param(meta, MCP + "clientInfo", dict, {}),
                  param(meta, MCP + "logLevel", str, None, LOG_LEVELS))

def server_discover(session, call):
    return {"supportedVersions": [MODERN], "capabilities": session.server.capabilities(),
            **compact(instructions=session.server.instructions)}

def subscription(call):
    """The mark of all that is sent on behalf of a subscriptions/listen."""
    return {"_meta": {MCP + "subscriptionId": call.id}}

def subscriptions_listen(session, call):
    """Stays open: what the client wants to hear of is sent under this request's id."""
    if call.batch is not None:
        raise RpcError(INVALID_REQUEST, "subscriptions/listen cannot be part of a batch")
    wants = param(call.params, "notifications", dict)
    capabilities = session.server.capabilities()
    kinds = [kind for kind in KINDS
             if wants.get(f"{kind}ListChanged") is True and kind in capabilities]
    topics = {(LIST_CHANGED.format(kind), None) for kind in kinds}
    honoured = {f"{kind}ListChanged": True for kind in kinds}
    uris = wants.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise RpcError(INVALID_PARAMS, "resourceSubscriptions: expected a list of URIs")
    if uris and "resources" in capabilities:
        honoured["resourceSubscriptions"] = uris
        topics.update((UPDATED, uri) for uri in uris)
    if session.connection is None:
        raise RpcError(METHOD_NOT_FOUND, "subscriptions/listen needs a connection")
    call.on_cancel(lambda: session.listeners.pop(call.key, None))
    with call.gate:  # nothing else on this stream before the acknowledgement
        session.listeners[call.key] = call, topics  # before it: no event is lost
        session.connection.notify("notifications/subscriptions/acknowledged", {
            "notifications": honoured, **subscription(call)})
    return UNANSWERED

CACHED = {*LISTS, "server/discover", "resources/read"}  # what a client may keep for a while
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}

def modern_result(server, call, result):
    """A result of the modern era, with all that one must carry."""
    result = {"resultType": "complete", **result}
    if call.method in CACHED and result["resultType"] == "complete":
        usual = NOT_KEPT if call.method == "resources/read" else server.caching
        was_asked = {"requestState", "inputResponses"} & call.params.keys()
        result = {**usual, **result, **(NOT_KEPT if was_asked else {})}
    return {**result, "_meta": {MCP + "serverInfo": server.info, **result.get("_meta", {})}}

# requestState: the answers so far travel to the client and back, signed, because the
# server keeps nothing.  It is bound to the request that it belongs to, and expires.

class Seal:
    """Makes and opens requestState.  MCP_STATE_KEY lets several processes share a key."""

    def __init__(self):
        shared = os.environ.get("MCP_STATE_KEY")
        self._key = shared.encode() if shared else os.urandom(32)

    def _sign(self, call, body):
        """Good for this method only, with this name or URI and these arguments."""
        import hmac
        bound = [body, call.method, call.params.get("name"), call.params.get("uri"),
                 call.params.get("arguments") or {}]
        signed = json.dumps(bound, sort_keys=True).encode()
        return hmac.new(self._key, signed, "sha256").hexdigest()

    def close(self, call, answers):
        state = {"answers": answers, "until": time.time() + STATE_LIFE}
        body = as_base64(json.dumps(state).encode())
        return f"{body}.{self._sign(call, body)}"

    def open(self, call, sealed):
        """The answers in a requestState; whatever is wrong with it, one error."""
        try:
            import hmac
            from binascii import a2b_base64
            body, _, signature = sealed.partition(".")
            if hmac.compare_digest(signature.encode(), self._sign(call, body).encode()):
                state = json.loads(a2b_base64(body))
                if state["until"] > time.time():
                    return state["answers"]
        except (ValueError, AttributeError, TypeError):
            pass
        raise RpcError(INVALID_PARAMS, "Invalid or expired requestState")

def open_answers(session, call):
    """The client's answers to what an earlier round of this request has asked."""
    state, fresh = call.params.get("requestState"), call.params.get("inputResponses", {})
    answers = {} if state is None else session.server.seal.open(call, state)
    if not isinstance(fresh, dict) or not all(isinstance(a, dict) for a in fresh.values()):
        raise RpcError(INVALID_PARAMS, "inputResponses: expected {key: result object}")
    return {**fresh, **answers}  # what was answered before stays as it was

MAY_ASK = {"tools/call", "prompts/get", "resources/read"}

def run_modern(session, call, work):
    """Finish a request of the modern era: with its result, or with its questions."""
    try:
        return modern_result(session.server, call, work())
    except InputRequired as pause:
        answers = {key: call.answers[key] for key in call.asked if key in call.answers}
        return modern_result(session.server, call, {
            "resultType": "input_required", "inputRequests": pause.args[0],
            "requestState": session.server.seal.close(call, answers)})
    except RpcError as error:
        if error.code == RESOURCE_NOT_FOUND:  # a code of the old era
            error.code = INVALID_PARAMS
        raise

# To add a method: a function above and a row here.
LEGACY_ONLY, MODERN_ONLY, BOTH = "legacy", "modern", "both"
METHODS = {  # method: (function, the era that knows it, the capability it belongs to)
    "initialize": (initialize, LEGACY_ONLY, None),
    "initialized": (initialized, LEGACY_ONLY, None),
    "notifications/initialized": (initialized, LEGACY_ONLY, None),
    "ping": (ping, LEGACY_ONLY, None),
    "logging/setLevel": (logging_set_level, LEGACY_ONLY, None),
    "server/discover": (server_discover, MODERN_ONLY, None),
    "subscriptions/listen": (subscriptions_listen, MODERN_ONLY, None),
    "tools/list": (list_page, BOTH, "tools"),
    "tools/call": (tools_call, BOTH, "tools"),
    "resources/list": (list_page, BOTH, "resources"),
    "resources/templates/list": (list_page, BOTH, "resources"),
    "resources/read": (resources_read, BOTH, "resources"),
    "resources/subscribe": (resources_subscribe, LEGACY_ONLY, "resources"),
    "resources/unsubscribe": (resources_unsubscribe, LEGACY_ONLY, "resources"),
    "prompts/list": (list_page, BOTH, "prompts"),
    "prompts/get": (prompts_get, BOTH, "prompts"),
    "completion/complete": (completion_complete, BOTH, "completions"),
}

class Session:
    """One conversation: its state, its client, and the rules that follow from both."""

    def __init__(self, server):
        self.server = server
        self.state = CREATED
        self.client = Client()
        self.topics = set()     # what the client hears of: (method, URI or None)
        self.listeners = {}     # the same in the modern era: Call.key -> (call, topics)
        self.connection = None  # none in Server.handle

    def enter(self, event):
        """Go where the event leads from here; where it leads nowhere, stay."""
        self.state = NEXT_STATE.get((self.state, event), self.state)

    def on_request(self, call):
        """Find out which era a request belongs to, and answer it by the rules of that."""
        if call.params.get("_meta") is None:
            return self._legacy_request(call)
        meta = param(call.params, "_meta", dict)
        handshake = call.method == "initialize" and "protocolVersion" in call.params
        if handshake or MODERN_KEYS.isdisjoint(meta):
            return self._legacy_request(call)
        return self._modern_request(call, meta)

    def _legacy_request(self, call):
        function, era, capability = METHODS.get(call.method, (None, None, None))
        if era == MODERN_ONLY and self.state == CREATED:
            raise RpcError(INVALID_PARAMS, f"{call.method}: expected _meta with {MCP}"
                           f"protocolVersion and {MCP}clientCapabilities")
        if function is None or era == MODERN_ONLY:
            raise RpcError(METHOD_NOT_FOUND, f"Unknown method: {call.method}")
        if self.state not in LEGAL.get(call.method, {OPERATING}):
            raise RpcError(INVALID_REQUEST, f"{call.method}: {ADVICE[self.state]}")
        if not self.server.serves(capability) and call.method not in LISTS:
            raise RpcError(METHOD_NOT_FOUND, f"{call.method}: this server has no {capability}")
        call.client = self.client
        return function(self, call)

    def _modern_request(self, call, meta):
        call.client = modern_client(meta)
        function, era, capability = METHODS.get(call.method, (None, LEGACY_ONLY, None))
        if era == LEGACY_ONLY or not self.server.serves(capability):
            raise RpcError(METHOD_NOT_FOUND, f"{call.method}: not in {MODERN}, or nothing "
                           f"here has it; there are: {', '.join(self.server.capabilities())}")
        if call.method in MAY_ASK:
            call.answers = open_answers(self, call)
        outcome = function(self, call)
        if outcome is UNANSWERED:
            return outcome
        if callable(outcome):
            call.late = call.late and partial(run_modern, self, call, call.late)
            return partial(run_modern, self, call, outcome)
        return modern_result(self.server, call, outcome)

    def on_notification(self, method, params):
        if method == "notifications/cancelled" and self.connection:
            if isinstance(params, dict):
                self.connection.cancel(params.get("requestId"))
        elif method in ("notifications/initialized", "initialized"):
            self.enter("initialized")

    def on_end(self):
        self.state = SHUTDOWN
        listeners, self.listeners = self.listeners, {}  # which hear no more from tell()
        if listeners:  # on a thread: the client may have stopped reading
            start_thread(self._say_goodbye, "mcp-goodbye", listeners)

    def _say_goodbye(self, listeners):
        for call, _ in list(listeners.values()):
            result = modern_result(self.server, call, subscription(call))
            self.connection.settle(call, {"result": result}, partial(
                self.connection.notify, "notifications/cancelled", {"requestId": call.id}))

    def read_resource(self, call, uri):
        work = partial(read_resource, self, call, uri)
        return guarded(self, call, f"Resource {uri}", work, refuse)["contents"]

    def tell(self, method, uri=None):
        """Notify a legacy client that is ready, and each listener of the modern era, if
        they want to hear of this: that a list, or the resource with this URI, changed."""
        about = compact(uri=uri)
        if self.state == OPERATING and (method, uri) in self.topics:
            self.connection.notify(method, about or None)
        for call, topics in list(self.listeners.values()):
            if (method, uri) in topics:
                self.connection.notify(method, {**about, **subscription(call)}, call)

    def handle(self, message, in_batch=False):
        """One decoded message -> its response, or None; a list of them for a batch."""
        if isinstance(message, list) and message and not in_batch:
            replies = [self.handle(entry, True) for entry in message]
            return [reply for reply in replies if reply is not None] or None
        message = message_of(message)
        if isinstance(message, Request):
            outcome = attempt(self.on_request, Call(message, batch=in_batch or None))
            outcome = attempt(outcome) if callable(outcome) else outcome
        elif isinstance(message, Malformed):
            outcome = {"error": message.error.as_json()}
        else:
            if isinstance(message, Notification):
                attempt(self.on_notification, message.method, message.params)
            return None
        return {"jsonrpc": "2.0", "id": message.id, **outcome}

# ==================================================================================
# Part IV.  The front door.
# ==================================================================================

# ----------------------------------------------------------------------------------
# 16. Visitor: a client, to try a server with
# ----------------------------------------------------------------------------------

class Visitor:
    """A client in a few lines: with Visitor(server, "2026-07-28") as visitor: ...

    It speaks with the server over a pair of sockets, in either era.  (A pipe would not
    end where a tool has forked: the child has its ends, too.)"""

    can = {}  # the capabilities that it declares

    def __init__(self, server, version=NEWEST_HANDSHAKE):
        from socket import socketpair
        self._last_id, self._meta = 0, {}
        self._sockets = socketpair()
        self._streams = [end.makefile("rwb") for end in self._sockets]
        self._stream, stream = self._streams
        self._thread = start_thread(server.serve, "mcp-visited", stream, stream)
        who = {"name": "mcp_server.py", "version": __version__}
        if version == MODERN:
            self._meta = {MCP + "protocolVersion": version, MCP + "clientInfo": who,
                          MCP + "clientCapabilities": self.can, MCP + "logLevel": "info"}
            welcome = self.ask("server/discover")
        else:
            welcome = self.ask("initialize", protocolVersion=version, clientInfo=who,
                               capabilities=self.can)
            self._send(method="notifications/initialized")
        self.server_can = welcome["capabilities"]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        from socket import SHUT_RDWR, SHUT_WR
        for how, seconds in ((SHUT_WR, 2 * DRAIN), (SHUT_RDWR, GRACE)):  # the end; or else
            try:
                self._sockets[0].shutdown(how)
            except OSError:  # the other side is gone
                pass
            self._thread.join(seconds)
        for end in (*self._streams, *self._sockets):
            try:
                end.close()
            except OSError:  # what was not sent
                pass

    def hear(self, method, params):
        """What to do about a notification."""

    def answer(self, method, params):
        """The result of a question of the server's."""

    def _send(self, **message):
        self._stream.write(encode({"jsonrpc": "2.0", **message}))
        self._stream.flush()

    def ask(self, method, **params):
        """The result of a request.  What comes before it is heard, or answered."""
        self._last_id += 1
        meta = {"_meta": {**self._meta, "progressToken": self._last_id}}
        self._send(id=self._last_id, method=method, params={**params, **meta})
        while True:
            message = json.loads(self._stream.readline())
            if "method" not in message:
                break
            if "id" in message:
                result = self.answer(message["method"], message["params"])
                self._send(id=message["id"], result=result)
            else:
                self.hear(message["method"], message.get("params", {}))
        if "error" in message:
            raise RpcError(**message["error"])
        result = message["result"]
        if result.get("resultType") != "input_required":
            return result
        answers = {key: self.answer(question["method"], question["params"])
                   for key, question in result["inputRequests"].items()}
        params.update(inputResponses=answers, requestState=result["requestState"])
        return self.ask(method, **params)

    def ask_all(self, method, **cursor):
        """All entries of a list, page by page; none where there is no such list."""
        if method.partition("/")[0] not in self.server_can:
            return []
        result = self.ask(method, **cursor)
        more = (self.ask_all(method, cursor=result["nextCursor"])
                if "nextCursor" in result else [])
        return result[LISTS[method]] + more

# ----------------------------------------------------------------------------------
# 17. Standard I/O: stdin and stdout taken away from user code
#
# The wire moves to private descriptors.  In its place user code, C libraries and child
# processes find an empty stdin, and a pipe behind stdout and stderr that a thread of
# ours carries to the real stderr: what is printed shows up there, never on the wire,
# and a client that does not read its stderr cannot block anybody.
# ----------------------------------------------------------------------------------

def flush_streams():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # broken, closed, or none at all
            pass

class Printed:
    """What is printed, on its way to the real stderr: a pipe that is always emptied.

    A client that does not read its stderr is waited for once; then it is dropped."""

    def __init__(self, stderr):
        self._stderr = stderr
        self.out, self.into = os.pipe()
        self.dropped = 0                  # bytes that stderr did not take
        self.written = threading.Event()  # it has taken all else
        self.written.set()

    def carry(self):
        """Bring some of it to stderr.  False at the end."""
        data = os.read(self.out, PIECE)
        if data and self.written.wait(0 if self.dropped else 1):
            note = f"[{self.dropped} bytes dropped]\n" if self.dropped else ""
            self.dropped = 0
            self.written.clear()
            try:
                start_thread(self._write, "mcp-stderr", note.encode() + data)
            except RuntimeError:  # the system has no more threads
                self._write(note.encode() + data)
        else:
            self.dropped += len(data)
        return bool(data)

    def _write(self, data):
        # on a thread of its own, as it may take for ever
        try:
            while data:
                try:
                    data = data[os.write(self._stderr, data):]
                except BlockingIOError:  # somebody who shares it has made it so
                    time.sleep(TICK)
        except OSError:
            pass
        self.written.set()

class StandardIO:
    """with StandardIO() as io: ... io.reader, io.writer ...

    io.on_gone is called when nobody reads our stdout or our parent process has ended.
    Without `restore`, what is printed afterwards goes to stderr for good."""

    def __init__(self, restore=True, signals=()):
        self.on_gone = lambda: None
        self._restore = restore
        self._stop_signals = signals  # numbers of those that end us
        self._parent = os.getppid()

    def __enter__(self):
        self._move_descriptors()
        self._mend_streams()
        self._hear_signals()
        self._carrier = start_thread(self._carry, "mcp-stderr")
        flush_streams()  # what was printed before now
        return self

    def _move_descriptors(self):
        for standard in (0, 1, 2):
            try:
                os.fstat(standard)
            except OSError:  # closed: the next file to be opened would take its place
                os.open(os.devnull, os.O_RDWR)
        self._in, self._out, self._err = map(os.dup, (0, 1, 2))  # children do not see them
        if os.name == "posix":
            os.set_blocking(self._in, True)
            os.set_blocking(self._out, True)
        self.reader = os.fdopen(self._in, "rb", PIECE, closefd=False)
        self.writer = os.fdopen(self._out, "wb", PIECE, closefd=False)
        self._printed = Printed(self._err)
        empty = os.open(os.devnull, os.O_RDONLY)
        # Windows: dup2 onto 0, 1 and 2 calls SetStdHandle too, so children follow
        for source, standard in ((empty, 0), (self._printed.into, 1), (self._printed.into, 2)):
            os.dup2(source, standard)
        os.close(empty)

    def _mend_streams(self):
        self._consoles = {}
        for name, standard, real in (("stdout", 1, self._out), ("stderr", 2, self._err)):
            if os.name != "posix" and os.isatty(real):
                # Windows: the stream of a console fails on anything else, as 1 and 2 are now
                self._consoles[name] = getattr(sys, name)
                setattr(sys, name, os.fdopen(standard, "w", 1, "utf-8", "backslashreplace",
                                             closefd=False))
        self._held_back = hasattr(sys.stdout, "reconfigure") and not sys.stdout.line_buffering
        if self._held_back:  # what is printed into a pipe would be, until there is much of it
            sys.stdout.reconfigure(line_buffering=True)

    def _hear_signals(self):
        # subtle: the system may hand a signal to any thread, and then the main one sleeps
        # on.  Its number arrives in this pipe, and the carrier wakes the main thread.
        self._signals = self._wake = None
        if self._stop_signals and os.name == "posix":
            import signal
            self._signals, self._wake = os.pipe()
            os.set_blocking(self._wake, False)
            signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def __exit__(self, *exception):
        if self._wake is not None:
            import signal
            signal.set_wakeup_fd(-1)
        flush_streams()
        printed, err = self._printed, self._err
        out = self._out if self._restore else err
        if not printed.written.wait(GRACE) and os.name != "posix":
            out = err = os.open(os.devnull, os.O_WRONLY)  # Windows: dup2 would wait, too
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(printed.into)
        self._carrier.join(GRACE)  # the pipe has no writer left, unless a child has it
        printed.written.wait(GRACE)
        if self._restore:
            for name, stream in self._consoles.items():
                setattr(sys, name, stream)
            if self._held_back:
                sys.stdout.reconfigure(line_buffering=False)
            os.dup2(self._in, 0)
            for descriptor in (self._in, self._out, self._err):
                os.close(descriptor)
        elif printed.dropped and os.name == "posix":
            os.set_blocking(2, False)  # nobody reads it: what is printed now is lost

    def _carry(self):
        """On a thread: carry what is printed, and see who is gone."""
        import select
        if hasattr(select, "poll"):
            self._carry_and_watch(select)
        else:  # Windows: there is no way to watch anybody
            while self._printed.carry():
                pass
        os.close(self._printed.out)

    def _carry_and_watch(self, select):
        watch, printed = select.poll(), self._printed.out
        watch.register(printed, select.POLLIN)
        # told only when nobody reads it any more; macOS tells only who asks for it, and
        # would tell of what is typed on a terminal
        watch.register(self._out, 0 if os.isatty(self._out) else select.POLLHUP)
        try:
            parent = os.pidfd_open(self._parent)
            watch.register(parent, select.POLLIN)
        except (AttributeError, OSError):  # not Linux: look every other second
            parent = None
        if self._signals is not None:
            watch.register(self._signals, select.POLLIN)
        while True:
            ready = dict(watch.poll(2000 if parent is None else None))
            if printed in ready and not self._printed.carry():
                break
            if self._signals in ready:
                if set(os.read(self._signals, 64)) & set(self._stop_signals):
                    self.on_gone()
            others = ready.keys() - {printed, self._signals}
            for descriptor in others:
                watch.unregister(descriptor)
            # macOS: POLLNVAL is all it has to say of devices such as /dev/null
            gone = [each for each in others if ready[each] != select.POLLNVAL]
            if gone or os.getppid() != self._parent:
                self._parent = os.getppid()
                self.on_gone()
        if parent is not None:
            os.close(parent)

# ----------------------------------------------------------------------------------
# 18. Server: register, serve, run
# ----------------------------------------------------------------------------------

class Stopped(BaseException):
    """A signal asks us to end: Stopped(exit code)."""

def stop_on_signals():
    """Have SIGINT, SIGTERM and their like raise Stopped in the main thread, a second exit.

    -> {number: the usual handler}; those that the program has set are left alone."""
    import signal

    def stop(number, frame):
        for each in mine:
            signal.signal(each, lambda number, frame: os._exit(128 + number))
        raise Stopped(128 + number)
    mine = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):  # the last: Windows only
            number = getattr(signal, name, None)
            usual = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
            if number and signal.getsignal(number) is usual:
                mine[number] = usual
                signal.signal(number, stop)
    return mine

def end_process(code):
    """Exit without waiting for threads and children that will not end."""
    import atexit
    watchdog = threading.Timer(GRACE, os._exit, (code,))  # for what hangs below
    watchdog.daemon = True
    watchdog.start()
    try:
        atexit._run_exitfuncs()
        flush_streams()
    finally:
        os._exit(code)

class CannotServe(Exception):
    """There is nothing to serve, and a person must be told why."""

NOTICE = """{name} is an MCP server, made to be started by a client such as Claude.
It offers {offers}.
It reads JSON-RPC messages, one a line, and {end} ends it.  Try this one:
{{"jsonrpc": "2.0", "id": 1, "method": "ping"}}
More ways to try it: python3 mcp_server.py FILE.py --help"""

def notice(server):
    """What a person is told who starts a server on a terminal."""
    offers = []
    for kind in KINDS:
        names = list(getattr(server, kind))
        if names:
            shown = ", ".join(names[:8] + ["..."] * (len(names) > 8))
            offers.append(f"{counted(len(names), kind[:-1])} ({shown})")
    return NOTICE.format(name=server.info["name"], offers=", ".join(offers) or "nothing",
                         end="Ctrl-D" if os.name == "posix" else "Ctrl-Z Enter")

def loaded_twice():
    """What to say of a script, or FILE.py, that is imported by what it imports, or ""."""
    modules = {name: module for name, module in list(sys.modules.items())
               if getattr(module, "__dict__", {}).get("__file__")}
    for script in modules:
        for name in modules if script == "__main__" or script.startswith("served.") else ():
            one, other = modules[script], modules[name]
            if one is not other and one.__file__ == other.__file__:
                return (f"{one.__file__} was loaded twice, as {script} and as {name}; what "
                        "several files import belongs into a file of its own")
    return ""

def run_process(get_server):
    """Serve this process's stdin and stdout, which are ours before get_server is called."""
    import signal
    code, all_ended = 0, False
    usual_handlers = stop_on_signals()
    on_terminal = sys.stdin and sys.stdin.isatty()
    sys.setswitchinterval(TICK)  # so long may a tool that computes keep the others waiting
    try:
        with StandardIO(restore=False, signals=list(usual_handlers)) as io:
            server = get_server()
            if not server.kinds and loaded_twice():
                log("error", f"nothing is registered: {loaded_twice()}")
            if on_terminal:
                print(notice(server), file=sys.stderr)
            all_ended = server.serve_streams(io.reader, io.writer, io)
    except Stopped as stopped:
        code = stopped.args[0]
    except CannotServe as error:
        code = 1
        print(error, file=sys.stderr)
    for number, usual in usual_handlers.items():
        signal.signal(number, usual)
    alive = [thread for thread in threading.enumerate()
             if not thread.daemon and thread is not threading.main_thread()]
    if "multiprocessing" in sys.modules:  # its children are waited for at exit
        alive += sys.modules["multiprocessing"].active_children()
    if code or alive or not all_ended:
        end_process(code)

def remind(filled):
    """Tell a person what a script has registered and offers to nobody."""
    for server in filled:
        if not (server.in_use or hasattr(sys, "last_type")):  # else the script has failed
            names = ", ".join([*server.tools, *server.resources, *server.prompts])
            print(f"mcp_server: {names[:200]}: registered, but not served.  End the script "
                  "with run() for @register, or server.run() for @server.register; of two "
                  "servers, one can include() the other.", file=sys.stderr)
    filled.clear()

class Server:
    """A set of tools, resources and prompts, and the ways to offer it.

    To fill it:   register (also called tool), resource, prompt, completion, unregister,
                  include; resource_updated when a resource has changed
    To offer it:  run (this process's stdin and stdout), serve (any two streams)
    To try it:    handle (one message), call (one tool)
    """

    loading = False  # a file is read for what it registers: its run() does nothing
    filled = []      # those that the script itself has registered something with

    def __init__(self, name: str | None = None, version: str = "1.0.0", *,
                 title: str | None = None, description: str | None = None,
                 instructions: str | None = None, icons: list[Any] | None = None,
                 website_url: str | None = None, timeout: float | None = None,
                 max_workers: int = MAX_WORKERS, page_size: int | None = None,
                 mask_errors: bool = False, coerce: bool = False,
                 heartbeat: float | None = HEARTBEAT, patience: float = PATIENCE,
                 max_line: int = MAX_LINE, ttl_ms: int = 0, cache_scope: str = "private",
                 extensions: dict[str, Any] | None = None) -> None:
        script = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
        self.info = compact(
            name=name or script.strip("-") or "mcp_server", version=version, title=title,
            description=description, websiteUrl=website_url, icons=icons)
        self.caching = {"ttlMs": ttl_ms, "cacheScope": cache_scope}  # of lists
        check_options("Server", {**self.info, **self.caching, **compact(
            instructions=instructions, timeout=timeout, max_workers=max_workers,
            page_size=page_size, heartbeat=heartbeat, patience=patience, max_line=max_line)})
        self.instructions = instructions
        self.timeout, self.page_size = timeout, page_size
        self.mask_errors, self.coerce = mask_errors, coerce
        self.heartbeat, self.patience = heartbeat, patience
        self.extensions = extensions
        self.tools = {}              # name -> Tool, in the order of registration
        self.resources = {}          # URI or template -> Resource
        self.prompts = {}            # name -> Prompt
        self.kinds = set()           # the KINDS that it has, or has had
        self.kept = {}               # answers that hold until a list changes: first pages
        self._limits = {"max_workers": max_workers, "max_line": max_line}
        self.seal = Seal()
        self._lane = SerialLane()
        self._sessions = []          # being served right now
        self._own_session = Session(self)  # the one that handle() speaks in
        self.in_use = False          # run, served, handled or included by somebody
        self._is_over = False        # run() has returned

    # -- filling it

    if TYPE_CHECKING:  # what is decorated keeps its type
        @overload
        def register(self, fn: F, **options: Any) -> F: ...
        @overload
        def register(self, *, name: str | None = None, title: str | None = None,
                     description: str | None = None,
                     input_schema: dict[str, Any] | None = None,
                     output_schema: dict[str, Any] | None = None,
                     annotations: dict[str, Any] | None = None,
                     icons: list[Any] | None = None, meta: dict[str, Any] | None = None,
                     timeout: float | None = None, serial: bool = False,
                     coerce: bool = False, allow_extra: bool = False
                     ) -> Callable[[F], F]: ...

    def register(self, fn=None, *, name=None, title=None, description=None,
                 input_schema=None, output_schema=None, annotations=None, icons=None,
                 meta=None, timeout=None, serial=False, coerce=False, allow_extra=False):
        """Make a function a tool: @register, @register(name="sum"), or register(fn)."""
        if not isinstance(self, Server):  # it is the function, and the class has no name
            raise TypeError('register: write server = Server("name") first, with parentheses')

        def add(fn):
            if not callable(fn):
                raise TypeError(f"register: expected a function, got {fn!r}; to give a "
                                'name, write @register(name="...")')
            self._add("tools", Tool(
                fn, name, title, description, input_schema, output_schema, annotations,
                icons, meta, timeout, serial, coerce, allow_extra))
            return fn
        return add if fn is None else add(fn)

    tool = register

    def resource(self, uri: str, *, name: str | None = None, title: str | None = None,
                 description: str | None = None, mime_type: str | None = None,
                 size: int | None = None, annotations: dict[str, Any] | None = None,
                 icons: list[Any] | None = None, meta: dict[str, Any] | None = None,
                 ttl_ms: int | None = None, cache_scope: str | None = None
                 ) -> Callable[[F], F]:
        """Offer what a function returns under a URI, or under all URIs of a template."""
        if not isinstance(uri, str):
            raise TypeError('resource: expected a URI, as in @resource("notes://today")')

        def add(fn):
            self._add("resources", Resource(
                fn, uri, name, title, description, mime_type, size, annotations, icons,
                meta, ttl_ms, cache_scope))
            return fn
        return add

    if TYPE_CHECKING:
        @overload
        def prompt(self, fn: F, **options: Any) -> F: ...
        @overload
        def prompt(self, *, name: str | None = None, title: str | None = None,
                   description: str | None = None, icons: list[Any] | None = None,
                   meta: dict[str, Any] | None = None) -> Callable[[F], F]: ...

    def prompt(self, fn=None, *, name=None, title=None, description=None, icons=None,
               meta=None):
        """Offer a function as a prompt: @prompt, @prompt(name="..."), or prompt(fn)."""
        def add(fn):
            self._add("prompts", Prompt(fn, name, title, description, icons, meta))
            return fn
        return add if fn is None else add(fn)

    def completion(self, ref: str, argument: str) -> Callable[[F], F]:
        """@server.completion("prompt name or URI template", "argument"): a function of
        what was typed (and of the other arguments, if it wants them) -> candidates."""
        record = self.prompts.get(ref) or self.resources.get(ref)
        if record is None or argument not in record.input_schema["properties"]:
            raise ValueError(f"completion: no prompt or template {ref!r} with an argument "
                             f"{argument!r}; register it first")

        def add(fn):
            record.completions[argument] = fn
            return fn
        return add

    def unregister(self, name: str) -> None:
        """Take a tool, a prompt (by name) or a resource (by URI) away again."""
        for kind in KINDS:
            if getattr(self, kind).pop(name, None):
                self._tell_of_list(kind)
                return
        raise ValueError(f"unregister: nothing is called {name!r}; there are: "
                         + ", ".join([*self.tools, *self.prompts, *self.resources]))

    def include(self, other: Server, prefix: str = "") -> None:
        """Offer all that another server has now; tools and prompts with a prefix."""
        import copy
        other.in_use = True
        for kind in KINDS:
            for record in list(getattr(other, kind).values()):
                if kind != "resources" and prefix:
                    record = copy.copy(record)
                    record.key = check_name(prefix + record.key)
                    record.entry = {**record.entry, "name": record.key}
                self._add(kind, record)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that have subscribed to a resource that it has changed."""
        for session in list(self._sessions):
            session.tell(UPDATED, uri)

    def _add(self, kind, record):
        records = getattr(self, kind)
        if record.key in records:
            raise ValueError(f"a {kind[:-1]} called {record.key!r} is registered already; " + (
                loaded_twice() or "pass another name=, or call "
                f"unregister({record.key!r}) first"))
        records[record.key] = record
        self.kinds.add(kind)
        self._tell_of_list(kind)
        if self._is_over:
            log("error", f"{record.key}: registered when run() was over; put run() at the end")
        if not self.in_use and self not in Server.filled:
            by_script = getattr(record.fn, "__module__", "") == "__main__" != __name__
            if by_script and hasattr(sys.modules["__main__"], "__file__"):
                import atexit
                atexit.register(remind, Server.filled)
                Server.filled.append(self)

    def take_over(self, other: Server) -> None:
        """Serve the clients of another server from now on, and tell them of it."""
        self._sessions, self.seal = other._sessions, other.seal
        self.kinds |= other.kinds
        for session in list(self._sessions):
            session.server = self
        for kind in self.kinds:
            self._tell_of_list(kind)

    def _tell_of_list(self, kind):
        self.kept = {}  # a new one: who fills the old one right now does no harm
        for session in list(self._sessions):
            session.tell(LIST_CHANGED.format(kind))

    def records(self, kind):
        """The records in a list: of `resources` those with a fixed URI."""
        if kind not in ("resources", "resourceTemplates"):
            return list(getattr(self, kind).values())
        return [resource for resource in list(self.resources.values())
                if resource.is_template == (kind == "resourceTemplates")]

    def capabilities(self) -> dict[str, Any]:
        """What this server has to offer, and nothing else."""
        kept = self.kept  # it is asked for with each modern request
        if "capabilities" not in kept:
            has_arguments = self.prompts or self.records("resourceTemplates")
            kept["capabilities"] = compact(
                tools={"listChanged": True} if "tools" in self.kinds else None,
                resources=({"listChanged": True, "subscribe": True}
                           if "resources" in self.kinds else None),
                prompts={"listChanged": True} if "prompts" in self.kinds else None,
                completions={} if has_arguments else None,
                logging={}, extensions=self.extensions)
        return dict(kept["capabilities"])

    def serves(self, capability: str | None) -> bool:
        """Whether it has what a method needs: a capability, or none."""
        return capability is None or capability in self.kinds or (
            capability in self.capabilities())

    # -- trying it

    def handle(self, message: Any) -> Any:
        """One decoded message in, the response or None out, all on this thread."""
        import copy
        self.in_use = True
        return copy.deepcopy(self._own_session.handle(message))  # a list may be kept

    def call(self, tool_name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool as a client would -> the result, with `content` and `isError`."""
        tool = self.tools.get(tool_name)
        if tool and tool.serial and self._lane.thread == threading.get_ident():
            raise RuntimeError("a serial tool cannot wait for the thread that it runs on; "
                               f"call the function of {tool_name!r} itself")
        with Visitor(self) as visitor:
            return visitor.ask("tools/call", name=tool_name, arguments=plain(arguments))

    # -- offering it

    def serve(self, reader: BinaryIO | None = None,
              writer: BinaryIO | None = None) -> bool:
        """Speak with one client on two binary streams until it closes its end.

        Without streams: this process's own, given back afterwards.
        True: all handlers came back; False: some were left behind."""
        if reader is None or writer is None:
            with StandardIO() as io:
                return self.serve_streams(io.reader, io.writer, io)
        return self.serve_streams(reader, writer)

    def serve_streams(self, reader, writer, io=None):
        set_log_level()
        self.in_use = True
        session = Session(self)
        connection = session.connection = Connection(
            reader, writer, session.on_request, session.on_notification, session.on_end,
            lane=self._lane, **self._limits)
        if io:
            io.on_gone = connection.end
        self._sessions.append(session)
        try:
            connection.start()
            connection.wait()
            return connection.finish(DRAIN)
        except BaseException:  # a signal: stop what runs, do not wait for it
            connection.finish(0)
            raise
        finally:
            self._sessions.remove(session)

    def run(self) -> None:
        """Serve stdin and stdout until the client is gone.  The last line of a server.

        Returns when everything has ended; else ends the process: after SIGINT (130)
        and SIGTERM (143), and when a handler or a thread of yours would not end."""
        if not Server.loading:
            self.in_use = True
            remind(Server.filled)
            if {"--list", "--schema", "--call", "--config", "--reload"} & set(sys.argv):
                print(f"mcp_server: not understood here; write python3 {__file__} "
                      + " ".join(sys.argv), file=sys.stderr)
            run_process(lambda: self)
            self._is_over = True

default_server = Server()
register = default_server.register
resource = default_server.resource
prompt = default_server.prompt
run = default_server.run

# ----------------------------------------------------------------------------------
# 19. Demo: what runs when no file is given
# ----------------------------------------------------------------------------------

def demo():
    """A server with one example of each thing, none of which can do harm."""
    server = Server("demo", __version__, title="mcp_server.py demo")
    meters = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mile": 1609.344}

    @server.register(annotations={"readOnlyHint": True})
    def convert(length: float, unit: str, to: str = "m") -> float:
        """Convert a length between m, km, ft and mile."""
        for name in (unit, to):
            if name not in meters:
                raise ToolError(f"expected one of {', '.join(meters)}, got {name!r}")
        return length * meters[unit] / meters[to]

    @server.register(annotations={"readOnlyHint": True})
    def timer(seconds: float, ctx: Context) -> str:
        """Wait, report progress, and stop at once when the call is cancelled."""
        for _ in ctx.track(range(max(1, int(seconds * 10)))):
            ctx.sleep(min(seconds, 0.1))
        return f"{seconds:g} seconds are over"

    @server.register(annotations={"readOnlyHint": True})
    def chart(values: list[float]) -> object:
        """Draw a bar chart of up to 100 numbers, none below zero."""
        if not 0 < len(values) <= 100 or min(values) < 0:
            raise ToolError("values: expected 1 to 100 numbers, 0 or more")
        import struct
        import zlib
        rows = b""  # each is a 0, and then one byte for a pixel
        for width in [round(100 * value / (max(values) or 1)) for value in values]:
            rows += 6 * (b"\0" + b"\x40" * width + b"\xff" * (100 - width))
            rows += 2 * (b"\0" + b"\xff" * 100)

        def chunk(name, data):
            checksum = struct.pack(">I", zlib.crc32(name + data))
            return struct.pack(">I", len(data)) + name + data + checksum
        header = struct.pack(">IIBBBBB", 100, 8 * len(values), 8, 0, 0, 0, 0)  # grey
        return image(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

    @server.register(annotations={"readOnlyHint": True})
    def choose(question: str, options: list[str], ctx: Context) -> str:
        """Let the user choose one of several options."""
        answer = ctx.elicit(question, {"type": "object", "required": ["choice"], "properties": {
            "choice": {"type": "string", "enum": options}}})
        if answer["action"] != "accept":
            return "The user did not want to choose."
        return f"The user chose {answer['content']['choice']}."

    @server.resource("calendar://{year}/{month}")
    def calendar_page(year: int, month: int) -> str:
        """The calendar of a month, such as calendar://2026/11."""
        import calendar
        return calendar.month(year, month)

    @server.prompt
    def translate(text: str, language: str) -> str:
        """Translate a text."""
        return f"Translate into {language}, and give nothing but the translation:\n\n{text}"

    @server.completion("translate", "language")
    def languages(typed: str) -> list[str]:
        known = ["Arabic", "Chinese", "English", "French", "German", "Hindi", "Spanish"]
        return [name for name in known if name.lower().startswith(typed.lower())]

    return server

# ----------------------------------------------------------------------------------
# 20. Command line: for people
# ----------------------------------------------------------------------------------

def place_of(error, folder):
    """Where an import failed, in a file of that folder -> (file, line, what happened)."""
    if isinstance(error, SyntaxError):
        return error.filename, error.lineno, f"{type(error).__name__}: {error.msg}"
    import traceback
    file, line = None, "?"
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(folder) and frame.filename != __file__:
            file, line = frame.filename, frame.lineno
    return file, line, describe(error)

def import_file(path):
    """Run FILE.py as a module -> it.  Its neighbours can be imported, also by `from .`"""
    from importlib.util import module_from_spec, spec_from_file_location
    from types import ModuleType
    whole_path = os.path.abspath(path)
    folder, name = os.path.split(whole_path)
    package = ModuleType("served")
    package.__path__ = [folder]
    sys.modules["served"] = package
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(f"served.{os.path.splitext(name)[0]}", whole_path)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        Server.loading = True
        spec.loader.exec_module(module)
    except Stopped:
        raise
    except BaseException as error:  # SyntaxError, ImportError, a bad registration, exit()
        file, line, text = place_of(error, folder)
        hint = (f"\nIf the name is right: {sys.executable} -m pip install {error.name}"
                if isinstance(error, ModuleNotFoundError) else "")
        raise CannotServe(f"{file or path}, line {line}: {text}{hint}") from None
    finally:
        Server.loading = False
    return module

def split_target(target):
    """FILE.py or FILE.py:object -> (path, name of the object or "")."""
    path, _, name = target.rpartition(":")
    if not path or not name.isidentifier() or os.path.exists(target):  # C:\FILE.py, too
        path, name = target, ""
    if not os.path.isfile(path):
        raise CannotServe(f"{path}: there is no such file in {os.getcwd()}; expected FILE.py "
                          "or FILE.py:object (in a client's configuration, with its folder)")
    return path, name

def register_public(server, module):
    """Make tools of the functions that a module defines and does not call _name."""
    for name, value in list(vars(module).items()):
        if not name.startswith("_") and type(value) is type(register_public) and (
                value.__module__ == module.__name__):
            try:
                server.register(value)
            except (TypeError, ValueError) as error:
                raise CannotServe(
                    f"{module.__file__}, line {value.__code__.co_firstlineno}: {error}\n"
                    f"If it is not meant to be a tool, call it _{name}, or put @register on "
                    "those that are.") from None
    if not server.tools:
        raise CannotServe(f"{module.__file__} registers nothing and has no public functions; "
                          "decorate a function with @register (what stands under if __name__ "
                          '== "__main__" is not run here)')

def server_of(target):
    """FILE.py or FILE.py:object -> the Server that the file fills, holds, or could be."""
    path, name = split_target(target)
    # subtle: what FILE imports as `register` is that of a new server, each time; so it can
    # be loaded again while the old one goes on
    default = Server(os.path.splitext(os.path.basename(path))[0])
    globals().update(default_server=default, register=default.register, run=default.run,
                     resource=default.resource, prompt=default.prompt)
    module = import_file(path)
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if name:
        if name not in servers:
            raise CannotServe(f"{path}: {name} is no Server; there are: "
                              + (", ".join(sorted(servers)) or "none"))
        return servers[name]
    filled = [s for s in (default, *servers.values()) if any(getattr(s, k) for k in KINDS)]
    if len(filled) > 1:
        names = [f"{path}:{key}" for key in sorted(servers) if servers[key] in filled]
        advice = "; @register alone fills none of these" if default in filled else ""
        raise CannotServe(f"{path} fills several servers; pick one: "
                          + ", ".join(names) + advice)
    if not filled and not servers:
        register_public(default, module)
    return (filled or [*servers.values(), default])[0]

# --reload

def files_of(folder):
    """{name: file} of the modules that come from a folder: FILE and its neighbours."""
    files = {name: getattr(module, "__file__", None) or ""
             for name, module in list(sys.modules.items())}
    return {name: file for name, file in files.items() if file != __file__ and
            file.startswith(folder + os.sep) and "-packages" not in file}

def reload_on_change(target, server, get_server):
    """Whenever FILE or a neighbour that it imports has changed, serve what it is now.

    Calls in flight end with the old code; a file that fails leaves everything as it is."""
    from glob import escape, glob
    folder = os.path.dirname(os.path.abspath(split_target(target)[0]))

    def times():
        """{file: when it was modified}"""
        found, neighbours = {}, glob(os.path.join(escape(folder), "*.py"))
        for file in {*neighbours, *files_of(folder).values()}:
            try:
                found[file] = os.stat(file).st_mtime_ns
            except OSError:  # an editor is about to put the new one there
                pass
        return found
    known = times()
    is_broken = False  # then any file in the folder might be what mends it
    while True:
        time.sleep(RELOAD)
        now, mine = times(), files_of(folder)
        changed = {file for file in now if now[file] != known.get(file)}
        known.update(now)
        if not (changed if is_broken else changed & set(mine.values())):
            continue
        old = {name: sys.modules.pop(name) for name in mine}
        try:
            fresh = get_server()
        except CannotServe as error:
            is_broken = True
            sys.modules.update(old)
            log("error", f"not loaded again, the old tools stay: {error}")
        else:
            is_broken = False
            fresh.take_over(server)
            server = fresh
            log("notice", f"{target} was loaded again")

# Trying a server without a client

def typed_value(word, schema):
    """What somebody has typed, as JSON, unless the schema takes text."""
    try:
        return word if takes_text(schema) else json.loads(word)
    except ValueError:
        return word

class Person(Visitor):
    """Progress and log messages go to stderr, questions to whoever types on stdin."""

    can = {"elicitation": {}}
    bar = ""

    def hear(self, method, params):
        if method == "notifications/message":
            print(f"{params['level']}: {params['data']}", file=sys.stderr)
        if method == "notifications/progress" and sys.stderr.isatty():
            done, total = params["progress"], params.get("total")
            share = done / total if total else 0
            bar = f"[{'#' * round(30 * share):30}] {share:4.0%}" if total else f"{done:g}"
            self.bar = f"{bar} {params.get('message', '')}"[:78].ljust(len(self.bar))
            print("\r" + self.bar, end="", file=sys.stderr, flush=True)

    def ask(self, method, **params):
        result = super().ask(method, **params)
        if self.bar:  # wipe it away
            print("\r" + " " * len(self.bar), end="\r", file=sys.stderr)
        return result

    def answer(self, method, params):
        form = params["requestedSchema"]
        print(params["message"], file=sys.stderr)
        content = {name: self._fill_in(name, field, name in form.get("required", ()))
                   for name, field in form["properties"].items()}
        if None in content.values():
            return {"action": "cancel"}
        return {"action": "accept", "content": {
            name: value for name, value in content.items() if value is not ...}}

    def _fill_in(self, name, field, required):
        """What is typed for a field, once it fits; ... for none, None at the end of input."""
        is_switch = field.get("type") == "boolean"
        choices = ["yes", "no"] if is_switch else field.get("enum") or [field.get("type")]
        while True:
            kind = "/".join(map(str, choices))
            print(f"  {name} ({kind}): ", end="", file=sys.stderr, flush=True)
            typed = sys.stdin.readline()
            word = typed.strip()
            if not typed or not word and not required:
                return ... if typed else None
            value = typed_value(word, field)
            if is_switch:
                value = {"y": True, "yes": True, "n": False, "no": False}.get(word, value)
            problems = validate(value, field, name)
            if not problems:
                return value
            print("\n".join(problems), file=sys.stderr)

def headline(entry):
    """How a tool or a prompt is called: add(a, [b]).  Of a resource: its URI."""
    uri = entry.get("uri") or entry.get("uriTemplate")
    if uri:
        return uri
    schema = entry.get("inputSchema", {})
    takes = {name: name in schema.get("required", ()) for name in schema.get("properties", {})}
    takes.update((a["name"], a["required"]) for a in entry.get("arguments", ()))
    names = [name if needed else f"[{name}]" for name, needed in takes.items()]
    return f"{entry['name']}({', '.join(names)})"

def offers_of(person):
    """All that a server offers: [("tool", its entry), ("resource", its entry), ...]"""
    return [(method.partition("s/")[0], entry)
            for method in LISTS for entry in person.ask_all(method)]

def table_of(person):
    """A table for people of all that a server offers."""
    rows = [(kind, headline(entry), entry.get("description", "").partition("\n")[0])
            for kind, entry in offers_of(person)]
    width = min(40, max((len(head) for _, head, _ in rows), default=0))
    return "\n".join(f"{kind:9} {head:{width}}  {about}".rstrip()
                     for kind, head, about in rows) or (
                         f"nothing is registered; {loaded_twice()}".rstrip("; "))

def entry_of(person, name, *kinds):
    """The kind and the entry of what has that name."""
    named = {(kind, entry["name"]): entry for kind, entry in offers_of(person)}
    for kind in kinds:
        if (kind, name) in named:
            return kind, named[kind, name]
    raise CannotServe(f"no {' or '.join(kinds)} is called {name!r}; there are: "
                      + ", ".join(name for kind, name in named if kind in kinds))

def arguments_of(words, schema):
    """["a=2", "b=x"] or ['{"a": 2, "b": "x"}'] -> {"a": 2, "b": "x"}"""
    fields, arguments = schema.get("properties", {}), {}
    advice = (f"write name=value, in quotes if there is a space in it (it takes: "
              f"{', '.join(fields) or 'nothing'}), or one JSON object in quotes")
    if words and words[0].startswith("{"):
        try:
            return json.loads(" ".join(words))
        except ValueError as error:
            raise CannotServe(f"cannot read {' '.join(words)} ({error}); {advice}") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise CannotServe(f"cannot read {word!r}; {advice}")
        arguments[name] = typed_value(value, fields.get(name, {}))
    return arguments

def shown(name, block):
    """A content block as text; a picture or a sound is written to a new file."""
    data = block.get("data") or block.get("blob")
    if "text" in block:
        return block["text"]
    if not data:
        return json.dumps(block, indent=2, ensure_ascii=False)
    from binascii import a2b_base64
    from mimetypes import guess_extension
    name = re.sub(r"[^\w.-]+", "_", name)
    number, ending = 1, guess_extension(block["mimeType"]) or ".bin"
    while os.path.exists(f"{name}-{number}{ending}"):
        number += 1
    with open(f"{name}-{number}{ending}", "xb") as file:
        file.write(a2b_base64(data))
    return f"wrote {file.name}"

def try_out(person, name, words):
    """--call NAME a=2 b=3 calls a tool or gets a prompt, --call URI reads a resource
    -> (what came back, exit code)"""
    if re.match(URI, name):
        result = person.ask("resources/read", uri=name)
        return "\n".join(shown(name, contents) for contents in result["contents"]), 0
    kind, entry = entry_of(person, name, "tool", "prompt")
    schema = entry.get("inputSchema") or {
        "properties": {each["name"]: STRING for each in entry["arguments"]}}
    arguments = arguments_of(words, schema)
    if kind == "prompt":
        messages = person.ask("prompts/get", name=name, arguments=arguments)["messages"]
        return "\n".join(f"{each['role']}: {shown(name, each['content'])}"
                         for each in messages), 0
    result = person.ask("tools/call", name=name, arguments=arguments)
    texts = [shown(name, block) for block in result["content"]]
    return "\n".join(texts), int(result.get("isError", False))

CLIENTS = {  # where to put what --config shows
    "claude": "claude_desktop_config.json (Settings, Developer, Edit Config)",
    "claude-code": "run this",
    "cursor": "~/.cursor/mcp.json, or .cursor/mcp.json in a project",
    "vscode": ".vscode/mcp.json in a project",
    "codex": "~/.codex/config.toml",
}

def client_config(options, server):
    """What to paste or run, so that a client starts this server."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.info["name"]).strip("-") or "server"
    command = [sys.executable, os.path.abspath(__file__)]
    if options.file:
        path, inside = split_target(options.file)
        command.append(os.path.abspath(path) + (f":{inside}" if inside else ""))
    command += ["--reload"] if options.reload else []
    command += ["--trace", os.path.abspath(options.trace)] if options.trace else []
    for flag, value in (("--log-level", options.log_level), ("--timeout", options.timeout)):
        command += [flag, str(value)] if value else []
    entry = {"command": command[0], "args": command[1:]}
    if options.config == "claude-code":
        if os.name == "posix":
            from shlex import join
        else:
            from subprocess import list2cmdline as join
        return f"claude mcp add {name} -- {join(command)}"
    if options.config == "codex":  # a JSON string is a TOML string
        toml = partial(json.dumps, ensure_ascii=False)
        return (f"[mcp_servers.{name}]\ncommand = {toml(command[0])}\n"
                f"args = {toml(command[1:])}")
    if options.config == "vscode":
        return json.dumps({"servers": {name: {"type": "stdio", **entry}}}, indent=2)
    return json.dumps({"mcpServers": {name: entry}}, indent=2)

def read_options():
    import argparse

    def seconds(text):
        if not float(text) > 0:
            raise ValueError
        return float(text)
    parser = argparse.ArgumentParser(
        prog="mcp_server.py", allow_abbrev=False,
        description="Serve a Python file to AI clients over MCP.")
    parser.add_argument("file", nargs="?", metavar="FILE.py[:object]",
                        help="what it registers, or its public functions; none: a demo")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--list", action="store_true", help="show what it offers")
    add("--schema", metavar="NAME", help="show the schema of a tool")
    add("--call", nargs="+", metavar="NAME", action="extend",
        help="call a tool or get a prompt: NAME a=2 b=3, or NAME '{\"a\": 2}'; "
             "or read a resource: URI")
    add("--config", choices=CLIENTS, help="show what to paste or run there")
    add = parser.add_argument
    add("--protocol", choices=PROTOCOL_VERSIONS, default=NEWEST_HANDSHAKE, metavar="DATE",
        help="the revision that --list, --schema and --call speak: "
             f"{', '.join(PROTOCOL_VERSIONS)} (default: {NEWEST_HANDSHAKE})")
    add("--reload", action="store_true", help="load FILE.py again when it changes")
    add("--trace", metavar="FILE", help="append every message to a file")
    add("--log-level", choices=LOG_LEVELS, help="what to show on stderr")
    add("--timeout", type=seconds, help="how long a tool may take")
    add("--version", action="version", version=__version__)
    options = parser.parse_args()
    if not options.file and options.reload:
        parser.error("--reload needs a FILE.py")
    if (options.trace or "").endswith(".py"):
        parser.error("--trace FILE: the file to write to, not a .py")
    if not options.file and any(word.endswith(".py") for word in options.call or ()):
        parser.error("FILE.py comes first: mcp_server.py FILE.py --call NAME a=2")
    return options

def output_of(options, get_server):
    """What --config, --list, --schema or --call shows, and the exit code."""
    if options.config:
        print(CLIENTS[options.config] + ":", file=sys.stderr)
        return client_config(options, get_server()), 0
    with Person(get_server(), options.protocol) as person:
        if options.list:
            return table_of(person), 0
        if options.schema:
            _, tool = entry_of(person, options.schema, "tool")
            return json.dumps(tool["inputSchema"], indent=2), 0
        return try_out(person, options.call[0], options.call[1:])

def main():
    """python mcp_server.py [FILE.py] ...: see --help."""
    from contextlib import redirect_stdout
    sys.modules.setdefault("mcp_server", sys.modules[__name__])  # FILE imports this one
    options = read_options()

    def get_server():
        server = server_of(options.file) if options.file else demo()
        server.timeout = options.timeout or server.timeout
        return server

    def get_server_and_watch():
        sys.dont_write_bytecode |= options.reload  # what was compiled just now may be stale
        server = get_server()
        if options.reload:
            start_thread(reload_on_change, "mcp-reload", options.file, server, get_server)
        return server

    try:
        if options.log_level:
            os.environ["LOG_LEVEL"] = options.log_level
        if options.trace and not options.config:
            Log.file = open(options.trace, "ab", 0)
        if not (options.config or options.list or options.schema or options.call):
            run_process(get_server_and_watch)
            return 0
        with redirect_stdout(sys.stderr):  # for what FILE and its tools print
            text, code = output_of(options, get_server)
        sys.stdout.reconfigure(errors="backslashreplace")  # Windows: a pipe is not UTF-8
        print(text)
        return code
    except (CannotServe, RpcError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130

if __name__ == "__main__":
    raise SystemExit(main())

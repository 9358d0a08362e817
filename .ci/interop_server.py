"""What .ci/interop.py shows to real clients: one of everything, on the public names."""
import os
import sys
from dataclasses import dataclass

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_server import Context, Server, ToolError  # noqa: E402

server = Server("interop", "1.0.0", instructions="One of everything.")
stopped = []    # the calls of `slow` that were cancelled


@dataclass
class Sum:
    total: int
    terms: list[int]


@server.register
def add(a: int, b: int) -> Sum:
    """Add two integers.

    Args:
        a: the first
        b: the second
    """
    return Sum(a + b, [a, b])


@server.register
def slow(seconds: float, ctx: Context) -> str:
    """Take that long, in ten steps, and say so."""
    try:
        for done in range(1, 11):
            ctx.report_progress(done, 10, f"step {done}")
            ctx.sleep(seconds / 10)
    finally:
        if ctx.cancelled:
            stopped.append(seconds)
    return "done"


@server.register
def stopped_calls() -> str:
    """How many calls of `slow` were cancelled."""
    return str(len(stopped))


@server.register
def talk(ctx: Context) -> str:
    """Log at two levels."""
    ctx.debug("too low to be sent")
    ctx.warning("heard", logger="interop")
    return "logged"


@server.register
def order(ctx: Context) -> str:
    """Ask the user two things, one after the other."""
    drink = ctx.elicit("What to drink?", {"type": "object", "required": ["drink"], "properties": {
        "drink": {"type": "string", "enum": ["tea", "coffee"]}}})
    if drink["action"] != "accept":
        raise ToolError("Nothing ordered.")
    cups = ctx.elicit("How many cups?", {"type": "object", "required": ["cups"], "properties": {
        "cups": {"type": "integer", "minimum": 1}}})
    return f"{cups['content']['cups']} {drink['content']['drink']}"


@server.register
def think(question: str, ctx: Context) -> str:
    """Ask the client's model."""
    return ctx.sample(question, max_tokens=50)["content"]["text"]


@server.register
async def folders(ctx: Context) -> str:
    """Ask for the client's roots."""
    return " ".join(root["uri"] for root in await ctx.list_roots())


@server.register
def touch() -> str:
    """Say that the resource note://fixed has changed."""
    server.resource_updated("note://fixed")
    return "touched"


@server.resource("note://fixed", mime_type="text/plain")
def fixed() -> str:
    """A note."""
    return "fixed note"


@server.resource("note://by/{topic}", mime_type="application/json")
def by_topic(topic: str) -> dict:
    """A note on any topic."""
    return {"topic": topic}


@server.prompt
def review(language: str, code: str = "pass") -> str:
    """Ask for a review."""
    return f"Review this {language}: {code}"


@server.completion("review", "language")
def languages(value: str) -> list:
    return [name for name in ("python", "perl", "rust") if name.startswith(value)]


if __name__ == "__main__":
    server.run()

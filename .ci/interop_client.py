"""Every step with the client of the `mcp` package: interop_client.py auto|legacy|1.x COMMAND ...

`auto` and `legacy` want `mcp` 2.x, `1.x` wants `mcp` 1.x. One line per step; exit 1 if one failed.
"""
import json
import sys
import tempfile
import time
import warnings
from contextlib import asynccontextmanager

import anyio
from mcp import StdioServerParameters, types
from mcp.client.stdio import stdio_client

warnings.simplefilter("ignore")    # what is deprecated in one revision is the only way in another
MODE, COMMAND = sys.argv[1], sys.argv[2:]
SUBSCRIBED = "note://fixed"
failed, logs, updates, processes = [], [], [], []

# The clients do not hand out the server's process, and the exit status is part of the check.
open_process = anyio.open_process


async def open_and_remember(*args, **options):
    processes.append(await open_process(*args, **options))
    return processes[-1]


anyio.open_process = open_and_remember


# ------------------------------------------------------------- what the client answers


async def on_sampling(context, params):
    asked = params.messages[0].content.text
    return types.CreateMessageResult(role="assistant", model="none", content=types.TextContent(
        type="text", text=f"{asked} 42"))


async def on_elicitation(context, params):
    answer = {"drink": "tea"} if "drink" in params.message else {"cups": 2}
    return types.ElicitResult(action="accept", content=answer)


async def on_roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///some/folder", name="folder")])


async def on_log(params):
    logs.append((params.level, params.logger, params.data))


async def on_message(message):
    message = getattr(message, "root", message)
    if getattr(message, "method", "") == "notifications/resources/updated":
        updates.append(str(message.params.uri))


CALLBACKS = dict(sampling_callback=on_sampling, elicitation_callback=on_elicitation,
                 list_roots_callback=on_roots, logging_callback=on_log,
                 message_handler=on_message)


@asynccontextmanager
async def connection(errlog):
    """A client and the revision that it and the server agreed on."""
    transport = stdio_client(StdioServerParameters(command=COMMAND[0], args=COMMAND[1:]),
                             errlog=errlog)
    if MODE == "1.x":
        from mcp import ClientSession
        async with transport as (reader, writer):
            async with ClientSession(reader, writer, **CALLBACKS) as client:
                yield client, (await client.initialize()).protocolVersion
    else:
        from mcp import Client
        async with Client(transport, mode=MODE, log_level="info", **CALLBACKS) as client:
            yield client, client.protocol_version


# ----------------------------------------------------------------------------- the steps


def wire(model):
    """As it was sent: both versions of the package agree on that."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")


async def until(condition):
    while not condition():
        await anyio.sleep(0.01)


async def step(name, function, *args):
    problem = None
    try:
        with anyio.fail_after(10):
            await function(*args)
    except Exception as error:
        while getattr(error, "exceptions", None):    # a task group's
            error = error.exceptions[0]
        problem = f"{type(error).__name__}: {str(error) or 'too late'}".replace("\n", " ")
        failed.append(name)
    print(f"FAIL {name} {problem}" if problem else f"PASS {name}", flush=True)


class Steps:
    """One method per step, in the order they are run."""

    def __init__(self, client, version):
        self.client, self.version = client, version

    async def _call(self, name, **arguments):
        return wire(await self.client.call_tool(name, arguments))

    async def _says(self, wanted, name, **arguments):
        result = await self._call(name, **arguments)
        same((result["content"][0]["text"], result.get("isError", False)), (wanted, False))

    async def connect(self):
        same(self.version, "2026-07-28" if MODE == "auto" else "2025-11-25")

    async def list_tools(self):
        tools = wire(await self.client.list_tools())["tools"]
        same([tool["name"] for tool in tools], ["add", "slow", "stopped_calls", "talk", "order",
                                                "think", "folders", "touch"])
        same(tools[0]["inputSchema"]["properties"]["a"]["type"], "integer")

    async def list_resources(self):
        listed = wire(await self.client.list_resources())["resources"]
        same([each["uri"] for each in listed], ["note://fixed"])

    async def list_templates(self):
        listed = wire(await self.client.list_resource_templates())["resourceTemplates"]
        same([each["uriTemplate"] for each in listed], ["note://by/{topic}"])

    async def list_prompts(self):
        listed = wire(await self.client.list_prompts())["prompts"]
        same([(each["name"], each["arguments"][0]["name"]) for each in listed],
             [("review", "language")])

    async def call_structured(self):
        result = await self._call("add", a=2, b=3)
        same(result["structuredContent"], {"total": 5, "terms": [2, 3]})
        same(result.get("isError", False), False)

    async def call_bad_arguments(self):
        result = await self._call("add", a="two")
        same(result.get("isError"), True)
        for word in ("a:", "b", "integer"):
            same((word, word in result["content"][0]["text"]), (word, True))

    async def call_unknown_tool(self):
        try:
            result = await self._call("nothing")
        except Exception as error:
            same((type(error).__name__.lower(), error.error.code), ("mcperror", -32602))
        else:
            raise AssertionError(f"an answer: {result}")

    async def progress(self):
        seen = []

        async def on_progress(*values):
            seen.append(values)
        await self.client.call_tool("slow", {"seconds": 0.2}, progress_callback=on_progress)
        await until(lambda: len(seen) >= 10)
        same(seen, [(done, 10, f"step {done}") for done in range(1, 11)])

    async def logging(self):
        if MODE != "auto":
            await self.client.set_logging_level("info")
        await self._says("logged", "talk")
        await until(lambda: logs)
        same(logs, [("warning", "interop", "heard")])

    async def elicitation(self):
        await self._says("2 tea", "order")

    async def sampling(self):
        await self._says("The answer? 42", "think", question="The answer?")

    async def roots(self):
        await self._says("file:///some/folder", "folders")

    async def read_resource(self):
        contents = wire(await self.client.read_resource("note://fixed"))["contents"]
        same([(each["text"], each["mimeType"]) for each in contents],
             [("fixed note", "text/plain")])

    async def read_template(self):
        contents = wire(await self.client.read_resource("note://by/the%20sea"))["contents"]
        same([(json.loads(each["text"]), each["mimeType"]) for each in contents],
             [({"topic": "the sea"}, "application/json")])

    async def read_unknown(self):
        try:
            result = await self.client.read_resource("note://nowhere/at/all")
        except Exception as error:
            same(error.error.code, -32602 if MODE == "auto" else -32002)
        else:
            raise AssertionError(f"an answer: {result}")

    async def get_prompt(self):
        result = wire(await self.client.get_prompt("review", {"language": "python"}))
        same([(each["role"], each["content"]["text"]) for each in result["messages"]],
             [("user", "Review this python: pass")])

    async def completion(self):
        result = wire(await self.client.complete(
            types.PromptReference(type="ref/prompt", name="review"),
            {"name": "language", "value": "p"}))
        same(result["completion"]["values"], ["python", "perl"])

    async def updates(self):
        if MODE == "auto":
            async with self.client.listen(resource_subscriptions=[SUBSCRIBED]) as events:
                await self._says("touched", "touch")
                async for event in events:
                    same(event.uri, SUBSCRIBED)
                    break
        else:
            await self.client.subscribe_resource(SUBSCRIBED)
            await self._says("touched", "touch")
            await until(lambda: updates)
            same(updates, [SUBSCRIBED])

    async def cancel(self):
        request = getattr(self.client, "_request_id", None)
        started = time.monotonic()
        with anyio.move_on_after(0.5):
            await self._call("slow", seconds=30)
        if MODE == "1.x":    # 1.x gives up without telling the server; its user has to
            await self.client.send_notification(types.ClientNotification(
                types.CancelledNotification(method="notifications/cancelled",
                                            params=types.CancelledNotificationParams(
                                                requestId=request, reason="enough"))))
        while (await self._call("stopped_calls"))["content"][0]["text"] != "1":
            await anyio.sleep(0.05)
        if time.monotonic() - started > 3:
            raise AssertionError("the server took its time")


async def main():
    closing = None

    async def close():
        same(time.monotonic() - closing < 2, True)
        same([process.returncode for process in processes], [0])

    async def quiet():
        errlog.seek(0)
        same(errlog.read(), "")

    with tempfile.TemporaryFile("w+") as errlog:
        try:
            with anyio.fail_after(10) as limit:
                async with connection(errlog) as (client, version):
                    limit.deadline += 60
                    steps = Steps(client, version)
                    for name, method in vars(Steps).items():
                        if not name.startswith("_"):
                            await step(name.replace("_", "-"), method, steps)
                    closing = time.monotonic()
        except Exception as error:
            async def session(error=error):
                raise error
            await step("session", session)
        if closing:
            await step("close", close)
        await step("quiet-stderr", quiet)


anyio.run(main)
sys.exit(bool(failed))

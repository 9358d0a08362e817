"""What the official conformance suite wants a server to offer, on the public names.

It is also an example of nearly everything that mcp_server.py can do.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from mcp_server import Context, Server, ToolError, audio, embedded, image  # noqa: E402

server = Server("conformance", "1.0.0", title="Conformance fixture")

PNG = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
       "AABJRU5ErkJggg==")
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="


def form(**fields):
    return {"type": "object", "properties": fields, "required": list(fields)}


# ------------------------------------------------------------------ tools: content


@server.register
def test_simple_text() -> str:
    """Returns simple text."""
    return "This is a simple text response for testing."


@server.register
def test_image_content() -> object:
    """Returns an image."""
    return image(PNG, "image/png")


@server.register
def test_audio_content() -> object:
    """Returns a sound."""
    return audio(WAV, "audio/wav")


@server.register
def test_embedded_resource() -> object:
    """Returns an embedded resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.",
                    "text/plain")


@server.register
def test_multiple_content_types() -> object:
    """Returns text, an image and a resource."""
    return ["Multiple content types test:", image(PNG, "image/png"),
            embedded("test://mixed-content-resource", '{"test":"data","value":123}',
                     "application/json")]


@server.register
def test_error_handling() -> str:
    """Fails."""
    raise ToolError("This tool intentionally returns an error for testing")


# ------------------------------------------------- tools: talking while they run


@server.register
def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress."""
    for done in (0, 50, 100):
        ctx.report_progress(done, 100)
        ctx.sleep(0.05)
    return "done"


@server.register
def test_tool_with_logging(ctx: Context) -> str:
    """Logs."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.info(line)
        ctx.sleep(0.05)
    return "done"


# --------------------------------------------------- tools: asking the client


@server.register
def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    answer = ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer['content']['text']}"


@server.register
def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user."""
    answer = ctx.elicit(message, form(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"}))
    return f"User response: {answer['action']} {answer.get('content')}"


@server.register
def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with defaults of every kind."""
    answer = ctx.elicit("Please review the defaults", {"type": "object", "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"],
                   "default": "active"},
        "verified": {"type": "boolean", "default": True}}})
    return f"Elicitation completed: {answer}"


@server.register
def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with the five forms of choices."""
    def titled(*names):
        return [{"const": name, "title": name.title()} for name in names]
    answer = ctx.elicit("Please choose", {"type": "object", "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("value1", "value2", "value3")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"],
                       "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {
            "type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("value1", "value2")}}}})
    return f"Elicitation completed: {answer}"


@server.register(input_schema={
    "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {
        "street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                   "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                   "phone": {"type": "string"}, "email": {"type": "string"}},
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]}, "else": {"required": ["email"]},
    "additionalProperties": False})
def json_schema_2020_12_tool(**fields) -> dict:
    """Has a schema that uses the whole language."""
    return fields


# ------------------------------------ tools: asking, with keys that the suite looks for

NAME, OK = form(name={"type": "string"}), form(ok={"type": "boolean"})


def elicitation(message, schema):
    return {"method": "elicitation/create",
            "params": {"message": message, "requestedSchema": schema}}


def sampling(text, tokens):
    return {"method": "sampling/createMessage", "params": {"maxTokens": tokens, "messages": [
        {"role": "user", "content": {"type": "text", "text": text}}]}}


@server.register
def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name."""
    answer = ctx.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.get('content', {}).get('name', 'stranger')}!"


@server.register
def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the model."""
    answer = ctx.sample("What is the capital of France?", 100, key="capital_question")
    return str(answer["content"])


@server.register
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the roots."""
    return str(await ctx.list_roots(key="client_roots"))


@server.register
def test_input_required_result_request_state(ctx: Context) -> str:
    """Asks for a confirmation."""
    ctx.elicit("Please confirm", OK, key="confirm")
    return "state-ok"


@server.register
def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks three things at once."""
    return str(ctx.ask({
        "user_name": elicitation("What is your name?", NAME),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": {"method": "roots/list", "params": {}}}))


@server.register
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks two things, one after the other."""
    name = ctx.elicit("Step 1: What is your name?", NAME, key="step1")
    color = ctx.elicit("Step 2: What is your favorite color?",
                       form(color={"type": "string"}), key="step2")
    return f"{name} likes {color}"


@server.register
def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks for a confirmation; the state comes back changed."""
    ctx.elicit("Please confirm", OK, key="confirm")
    return "confirmed"


@server.register
def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks only what the client can answer."""
    questions = {}
    if "elicitation" in ctx.client_capabilities:
        questions["user_name"] = elicitation("What is your name?", NAME)
    if "sampling" in ctx.client_capabilities:
        questions["greeting"] = sampling("Generate a greeting", 50)
    return str(ctx.ask(questions))


@server.register
def test_missing_capability(ctx: Context) -> str:
    """Cannot do without the client's model."""
    return str(ctx.sample("Hello", 10))


@server.register
def test_streaming_elicitation(ctx: Context) -> str:
    """Asks, after some progress."""
    ctx.report_progress(1, 2)
    return str(ctx.elicit("Go on?", OK, key="confirm"))


@server.register
def test_logging_tool(ctx: Context) -> str:
    """Tries to log."""
    ctx.info("This goes only to those who asked for it")
    return "logged"


@server.register
def test_trigger_tool_change() -> str:
    """Changes the set of tools, and back."""
    server.register(test_simple_text, name="test_temporary")
    server.unregister("test_temporary")
    return "changed"


@server.register
def test_trigger_prompt_change() -> str:
    """Changes the set of prompts, and back."""
    server.prompt(test_simple_prompt, name="test_temporary_prompt")
    server.unregister("test_temporary_prompt")
    return "changed"


# ------------------------------------------------------------------------ resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> object:
    """A picture."""
    import base64
    return base64.b64decode(PNG)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict:
    """Data for any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """Can be subscribed to."""
    return "watched"


# -------------------------------------------------------------------------- prompts


@server.prompt
def test_simple_prompt() -> str:
    """A simple prompt."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list:
    return [word for word in ("test-one", "test-two", "other") if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list:
    """A prompt with a resource."""
    return [embedded(resourceUri, "Embedded resource content for testing.", "text/plain"),
            "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> list:
    """A prompt with an image."""
    return [image(PNG, "image/png"), "Please analyze the image above."]


@server.prompt
def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = ctx.elicit("What context should the prompt use?",
                        form(context={"type": "string"}), key="user_context")
    return f"Use this context: {answer.get('content', {}).get('context')}"


if __name__ == "__main__":
    server.run()
